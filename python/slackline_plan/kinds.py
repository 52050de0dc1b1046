"""Machines of several kinds: those of an allocation of SLURM, one of each kind measured where it is."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from slackline_plan.programs import LONGER_MAX, Measured, PlanError, WrongUse
from slackline_plan.windows import Spread

ASK_S = 20.0
# Beside what is measured: srun has to start it, and each batch size its run.
START_S = 120.0
# What an allocation was asked for must not make the step smaller.
ASKED = ("SLURM_HINT", "SLURM_THREADS_PER_CORE", "SLURM_CPUS_PER_TASK", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS",
         "SLURM_EXPORT_ENV")


@dataclass(frozen=True)
class Kind:
    """Nodes that are alike, as SLURM describes them."""
    name: str
    nodes: tuple[str, ...]


def kinds_of(text: str) -> list[Kind]:
    """Of `scontrol -o show node`: alike are nodes with the same CPUs, GPUs and features."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for line in text.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "NodeName" not in fields:
            continue
        own = {name: fields.get(name, "") for name in ("CPUTot", "Gres", "ActiveFeatures")}
        plain = [f"{own['CPUTot'] or '?'} CPUs"]
        plain += [own[name] for name in ("Gres", "ActiveFeatures") if own[name] not in ("", "(null)")]
        groups.setdefault(tuple(plain), []).append(fields["NodeName"])
    return [Kind(", ".join(plain), tuple(nodes)) for plain, nodes in groups.items()]


def in_allocation(environment: Mapping[str, str] = os.environ) -> bool:
    """Not for a task of a step: the largest numbers stand for batch scripts and interactive shells."""
    step = environment.get("SLURM_STEP_ID", "")
    return "SLURM_JOB_ID" in environment and not (step.isdigit() and int(step) < 0xfffffff0)


def of_allocation() -> list[Kind]:
    nodes = os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST", "")
    try:
        done = subprocess.run(["scontrol", "-o", "show", "node", nodes], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=ASK_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlanError(f"scontrol does not say what the nodes of the allocation are: {error}") from error
    found = kinds_of(done.stdout)
    if done.returncode != 0 or not found:
        raise PlanError(f"scontrol does not say what the nodes of the allocation are: {done.stderr.strip() or done.stdout.strip()}")
    return found


def measure_there(kind: Kind, command: Sequence[str], seconds: float) -> list[Measured]:
    """Runs `command` (a `slackline plan --measure-only`) on the kind's first node."""
    node = kind.nodes[0]
    srun = ["env", *(word for name in ASKED for word in ("-u", name)), "srun", f"--nodelist={node}", "--nodes=1", "--ntasks=1",
            "--mem=0", "--overlap", "--cpu-bind=none", "--export=ALL", "--mpi=none", *command]
    longest = LONGER_MAX * seconds + START_S
    try:
        done = subprocess.run(srun, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=longest)
    except subprocess.TimeoutExpired as late:
        raise PlanError(f"{node}: the measuring run has not ended within {longest:.0f} s") from late
    if done.returncode != 0:
        kind_of_error = WrongUse if done.returncode == 2 else PlanError
        raise kind_of_error(f"{node}: {done.stderr.strip() or f'srun has ended with exit code {done.returncode}'}")
    return parse(done.stdout, node)


def to_json(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    return [{**vars(one), "spread": None if one.spread is None else vars(one.spread)} for one in measured]


def parse(text: str, where: str) -> list[Measured]:
    """What `slackline plan --measure-only` has said."""
    try:
        found = json.loads(text)["measured"]
        return [Measured(**{**one, "spread": None if one["spread"] is None else Spread(**one["spread"])}) for one in found]
    except (ValueError, LookupError, TypeError) as error:
        raise PlanError(f"{where}: found what `slackline plan --measure-only` does not write: {error}") from error


def from_files(named: Sequence[str]) -> list[tuple[Kind, list[Measured]]]:
    """Of NAME=FILE, in that order."""
    found = []
    for one in named:
        name, equals, file = one.partition("=")
        if not equals or not re.fullmatch(r"[\w.-]+", name) or name in (kind.name for kind, _ in found):
            raise WrongUse(f"--kind: found '{one}'; allowed is NAME=FILE, each name once, with what --measure-only has written")
        try:
            text = Path(file).read_text()
        except OSError as error:
            raise WrongUse(f"--kind {name}: cannot read {file}: {error.strerror}") from error
        found.append((Kind(name, ()), parse(text, file)))
    return found


def shape(text: str, kinds: int) -> Optional[tuple[int, ...]]:
    """"2+6": so many nodes of each kind; None where it says something else."""
    parts = text.split("+")
    if len(parts) != kinds or not all(re.fullmatch(r"\d{1,7}", part) for part in parts):
        return None
    counts = tuple(int(part) for part in parts)
    return counts if sum(counts) > 0 else None
