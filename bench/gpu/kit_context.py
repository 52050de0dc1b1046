"""What every check of the kit uses: its place, its time, its programs, and the file of results."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence

KIT = pathlib.Path(__file__).resolve().parent
# Exit code of a program that finds nothing to do here.
SKIPPED = 77
# Seconds that the driver may take for an answer.
PROBE_S = 50


class Skip(Exception):
    """Why a check, or a part of one, does not run on this machine."""


@dataclass
class Context:
    """Thread-safety: add() and run() may be called by several threads of a check."""

    out: pathlib.Path
    device: str
    environment: dict[str, str] = field(default_factory=dict)
    # Name of the check that runs, and the time.monotonic() at which it must be over.
    check: str = ""
    deadline: float = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def has_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def begin(self, check: str, limit_s: float) -> None:
        self.check, self.deadline = check, time.monotonic() + limit_s

    def add(self, part: str, figure: Any) -> None:
        """Writes a figure of the check that runs, which is in the file of results when this returns."""
        self.write({"check": self.check, "part": part, "figure": figure})

    def write(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line)
        with self._lock:
            with open(self.out / "results.jsonl", "a") as file:
                file.write(text + "\n")
            print(text[:2500], flush=True)

    def gpus(self) -> int:
        """Number of GPUs that the driver shows."""
        if not shutil.which("nvidia-smi"):
            return 1
        said = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=PROBE_S).stdout
        return sum(line.startswith("GPU ") for line in said.splitlines())

    def need_gpu(self) -> None:
        if not self.has_gpu:
            raise Skip("there is no GPU")

    def need_package(self) -> None:
        if not (KIT / "python/slackline").exists():
            raise Skip("this kit has no Python package")

    def program(self, name: str) -> str:
        """A program of the kit."""
        path = KIT / "bin" / name
        if not path.exists():
            raise Skip(f"this kit has no {name}")
        return str(path)

    def python(self, script: str, *arguments: object) -> list[str]:
        """The command for a script of the kit."""
        return [sys.executable, str(KIT / script), *map(str, arguments)]

    def run(self, name: str, command: Sequence[str], allowed: Sequence[int] = (0,), **environment: str) -> str:
        """Runs a command until the check's deadline, with its output in OUT/NAME.log. Returns the output."""
        log = self.out / f"{name}.log"
        with open(log, "w") as file:
            child = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True, cwd=self.out,
                env={**os.environ, **self.environment, **environment})
            try:
                code = child.wait(timeout=max(1, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"{name} did not end within the check's time: {tail(log)}") from None
            finally:
                end(child)
        if code == SKIPPED:
            # Warnings of libraries may stand around it.
            reason = re.search(r"SKIP: ([^\n]*)", log.read_text(errors="replace"))
            raise Skip(reason[1] if reason else tail(log, 300))
        if code not in allowed:
            raise RuntimeError(f"{pathlib.Path(command[0]).name} ended with {code}: {tail(log)}")
        return log.read_text(errors="replace")


def end(child: subprocess.Popen[Any]) -> None:
    """Ends the program and what it has started: first kindly, because a launcher takes its children with it."""
    for number, patience_s in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            return
        try:
            child.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            continue


def tail(log: pathlib.Path, characters: int = 1500) -> str:
    return log.read_text(errors="replace").strip()[-characters:]


def find_environment() -> dict[str, str]:
    """Where programs find their libraries: LibTorch and CUDA in the Python environment, all else in the kit."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise SystemExit(f"./run: {sys.executable} has no PyTorch; call the kit with one that has: PYTHON=... ./run")
    torch = pathlib.Path(found.origin).parent
    folders = [KIT / "lib/slackline", torch / "lib", *sorted(torch.parent.glob("nvidia/*/lib"))]
    path = ":".join([*map(str, folders), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    python = ":".join([str(KIT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"LD_LIBRARY_PATH": path, "PYTHONPATH": python, "PYTHONUNBUFFERED": "1", "NCCL_DEBUG": "WARN"}


class Meter:
    """Power and memory of the card by nvidia-smi, and memory of this process's descendants by /proc, while the meter is open."""

    def __init__(self, context: Context) -> None:
        self._samples: list[tuple[float, float, float]] = []  # time, watts, MiB
        self._host: dict[str, int] = {}  # bytes, by program
        self._smi: Optional[subprocess.Popen[str]] = None
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._watch_processes)]
        if context.has_gpu and shutil.which("nvidia-smi"):
            number = int(context.device.partition(":")[2] or 0)
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
            card = visible[number] if number < len(visible) and visible[number] else str(number)
            self._smi = subprocess.Popen(
                ["nvidia-smi", "--query-gpu=power.draw.instant,memory.used", "--format=csv,noheader,nounits", "-lms", "100",
                 "-i", card], stdout=subprocess.PIPE, text=True)
            self._threads.append(threading.Thread(target=self._read_smi, args=(self._smi,)))

    def __enter__(self) -> Meter:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._smi is not None:
            self._smi.kill()
            self._smi.wait()
        for thread in self._threads:
            thread.join()

    def figures(self, seconds: float) -> dict[str, Any]:
        """Joules are those of the last `seconds`; memory is the peak."""
        figures: dict[str, Any] = {"host_bytes": self._host}
        if self._samples:
            begin = self._samples[-1][0] - seconds
            watts = [watts for at, watts, _ in self._samples if at >= begin]
            figures["nvidia_smi_joules"] = sum(watts) / len(watts) * seconds
            figures["gpu_bytes"] = max(used for _, _, used in self._samples) * 2**20
        return figures

    def _read_smi(self, smi: subprocess.Popen[str]) -> None:
        assert smi.stdout is not None
        for line in smi.stdout:
            numbers = re.fullmatch(r"([0-9.]+), ([0-9.]+)", line.strip())
            if numbers:
                self._samples.append((time.monotonic(), float(numbers[1]), float(numbers[2])))

    def _watch_processes(self) -> None:
        while not self._over.wait(0.5):
            parents = {}
            for folder in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                except (OSError, ValueError, IndexError):
                    continue  # it has ended
            for process in parents:
                above = parents[process]
                while above > 1 and above != os.getpid():
                    above = parents.get(above, 0)
                if above == os.getpid():
                    self._look_at(pathlib.Path(f"/proc/{process}"))

    def _look_at(self, folder: pathlib.Path) -> None:
        try:
            name = pathlib.Path(os.fsdecode((folder / "cmdline").read_bytes().split(b"\0")[0])).name
            peak = re.search(r"^VmHWM:\s+(\d+) kB", (folder / "status").read_text(), re.M)
        except OSError:
            return
        if peak and name != "nvidia-smi":
            self._host[name] = max(self._host.get(name, 0), int(peak[1]) * 1024)
