"""What was measured on, and what was measured."""

import datetime
import os
import platform
import re
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    processor: str
    cores: int
    memory_gb: float
    kernel: str
    commit: str
    date: str

    def as_dict(self) -> dict:
        return asdict(self)


def first_match(path: str, pattern: str) -> str:
    found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    return found.group(1).strip() if found else "unknown"


def describe(root: Path) -> Machine:
    described = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty"], text=True,
                               capture_output=True)
    return Machine(processor=first_match("/proc/cpuinfo", r"^model name\s*:(.*)$"),
                   cores=len(os.sched_getaffinity(0)),
                   memory_gb=round(int(first_match("/proc/meminfo", r"^MemTotal:\s+(\d+)")) / 1e6, 1),
                   kernel=platform.release(), commit=described.stdout.strip() or "unknown",
                   date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"))
