"""Runs the programs of a measurement: with a time limit, and gone when the runner is."""

import ctypes
import json
import os
import signal
import subprocess
from dataclasses import dataclass, field
from typing import Optional

PR_SET_PDEATHSIG = 1
NOT_BUILT = "built so far is"


@dataclass(frozen=True)
class Program:
    command: tuple[str, ...]
    timeout_s: float = 300
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    rows: tuple[dict, ...]
    # Why there are none; what is not built yet is no failure.
    problem: str = ""


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def last_words(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "said nothing"


def output_of(program: Program) -> tuple[int, str, str]:
    """Exit code, standard output and error; the code is 124 after the time limit."""
    child = subprocess.Popen(program.command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             stdin=subprocess.DEVNULL, env={**os.environ, **program.environment},
                             start_new_session=True, preexec_fn=end_with_parent)
    try:
        out, err = child.communicate(timeout=program.timeout_s)
        return child.returncode, out, err
    except subprocess.TimeoutExpired:
        return 124, "", f"no end within {program.timeout_s:.0f} s"
    finally:
        end_group(child)


def end_group(child: subprocess.Popen) -> None:
    """Ends the program and all that it has started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def parse_rows(text: str) -> tuple[dict, ...]:
    """The JSON lines of a program's output; other lines are somebody's log."""
    rows = []
    for line in text.splitlines():
        if line.startswith('{"what"'):
            rows.append(json.loads(line))
    return tuple(rows)


def run(program: Program, parse=parse_rows) -> Outcome:
    try:
        code, out, err = output_of(program)
    except OSError as error:
        return Outcome((), f"{program.command[0]}: {error.strerror}")
    if code == 2 and (NOT_BUILT in err or "invalid choice" in err):
        return Outcome((), "not built yet")
    rows = parse(out) if code == 0 else ()
    if not rows:
        return Outcome((), f"ended with {code}: {last_words(err or out)}")
    return Outcome(rows)


def find_library(stem: str) -> Optional[str]:
    """A shared library of the distribution, such as `tcmalloc`, or none."""
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"):
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        for name in names:
            if name.startswith(f"lib{stem}") and ".so." in name and "debug" not in name:
                return os.path.join(folder, name)
    return None
