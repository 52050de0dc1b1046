"""How much a worker's steps differ from one short window to the next, by its own metrics."""

import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Sequence

WINDOWS = 6
# Fewer say nothing of how windows differ.
WINDOWS_MIN = 3
TIMEOUT_S = 2.0
COMPUTE, WAIT = "slackline_worker_compute_seconds", "slackline_worker_wait_seconds"


@dataclass(frozen=True)
class Look:
    """Sums since the worker began."""
    steps: float
    seconds: float  # computing, and waiting for servers


@dataclass(frozen=True)
class Spread:
    """Of the time of a step: the fastest and the slowest window, over all of them together."""
    fast: float  # 1 or less
    slow: float  # 1 or more


def worker_address(run: Path) -> str:
    """HOST:PORT of the metrics of the run's worker; empty where it is not known."""
    try:
        groups = json.loads((run / "prometheus/targets.json").read_text())
        return next((group["targets"][0] for group in groups if group["labels"]["role"] == "worker"), "")
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def read(text: str) -> Optional[Look]:
    """Of an exposition; None where it has no steps of a worker."""
    found = {}
    for name in (COMPUTE, WAIT):
        for part in ("sum", "count"):
            match = re.search(rf"^{name}_{part}(?:{{[^}}]*}})? (\S+)", text, re.MULTILINE)
            if match is None:
                return None
            found[name, part] = float(match[1])
    return Look(steps=found[COMPUTE, "count"], seconds=found[COMPUTE, "sum"] + found[WAIT, "sum"])


def look(address: str) -> Optional[Look]:
    if not address:
        return None
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as answer:
            return read(answer.read().decode(errors="replace"))
    except (urllib.error.URLError, OSError, ValueError):
        return None


def spread(looks: Sequence[Look]) -> Optional[Spread]:
    """None where fewer than WINDOWS_MIN windows have steps."""
    steps = []
    before = None
    for one in looks:
        if before is not None and one.steps > before.steps:
            steps.append((one.seconds - before.seconds) / (one.steps - before.steps))
        if before is None or one.steps > before.steps:
            before = one
    if len(steps) < WINDOWS_MIN or before is None:
        return None
    mean = (before.seconds - looks[0].seconds) / (before.steps - looks[0].steps)
    if mean <= 0:
        return None
    return Spread(fast=min(1.0, min(steps) / mean), slow=max(1.0, max(steps) / mean))
