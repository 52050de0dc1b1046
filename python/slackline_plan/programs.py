"""What `slackline train` and `slackline simulate` say of a job: how long its steps take, and how long its epochs."""

import json
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional, Sequence

from slackline_plan import windows
from slackline_plan.windows import Spread

# Beside what is measured: starting and ending.
PATIENCE_S = 300.0
LOOK_S = 0.05
STEPS_MIN = 5
# Steps may be long: a measurement goes on for so many times as long, until it has enough of them.
LONGER_MAX = 10
# A simulation that is shorter is its beginning and its end.
SIMULATED_STEPS_MIN = 50
EPOCHS_MAX = 100


class PlanError(Exception):
    """Says what was found and what is allowed."""


class WrongUse(PlanError):
    """The same, of the job."""


@dataclass(frozen=True)
class Measured:
    """One worker and one server on this machine."""
    batch: int
    steps: int
    compute_s: float  # a step
    exchange_s: float  # a step: push, apply, pull
    exchanged_bytes: float  # a step, both ways
    watts: Optional[float]  # None where nothing is metered
    spread: Optional[Spread] = None  # None where it was measured for too short a time
    step_samples: Optional[float] = None  # mean; None: the batch. Fewer if the data set is smaller than the batch
    between_s: float = 0.0  # a step: all else, which is mostly the wait for the next samples where an epoch has few steps
    gpus: Optional[int] = None  # of the worker; None: its devices are those of the job

    @property
    def sample_s(self) -> float:
        """Computing, and what is between steps, for one sample."""
        return (self.compute_s + self.between_s) / (self.step_samples or self.batch)

    def taking(self, factor: float) -> "Measured":
        """The same with steps that take so many times as long."""
        return replace(self, compute_s=self.compute_s * factor, exchange_s=self.exchange_s * factor, between_s=self.between_s * factor)


@dataclass(frozen=True)
class Group:
    """So many nodes on which steps take what was measured."""
    measured: Measured
    nodes: int


@dataclass(frozen=True)
class Simulated:
    epoch_samples: float
    step_samples: float
    epoch_s: float
    once_s: float  # beside its epochs: beginning, and the last evaluation

    @property
    def samples_per_second(self) -> float:
        return self.epoch_samples / self.epoch_s

    def seconds(self, epochs: int) -> float:
        return self.once_s + epochs * self.epoch_s

    def of_images(self, images: int) -> "Simulated":
        """With a larger data set, whose epochs take longer in proportion."""
        return replace(self, epoch_samples=images, epoch_s=self.epoch_s * images / self.epoch_samples)


def measure(slackline: str, job: str, settings: Sequence[str], batch: int, gpus: Optional[int], seconds: float, folder: Path) -> Measured:
    """Trains the job for so long, or longer if its steps are long. Its figures count from its first step on."""
    run = folder / f"measure-{batch}-{gpus or 0}"
    own = ["cluster.workers=1", "cluster.servers=1", f"training.batch_size={batch}", "training.epochs=10000",
           "training.evaluate_every_epochs=0", "training.evaluate_every_samples=0", "training.early_stopping.patience=0",
           "checkpoint.at_end=false", "checkpoint.keep_best=0", "checkpoint.folder=", "durability.folder=",
           "output.report_every_ms=100", "output.tensorboard=false", "output.log_format=text", "wire.same_host=tcp",
           "network.metrics=true", "network.interface=", "network.ports=", "network.listen=127.0.0.1", "network.advertise=", "worker.slowdown={}",
           "worker.trace="]
    if gpus is not None:
        own.append(f"worker.devices=[{', '.join(f'cuda:{one}' for one in range(gpus))}]")
    command = [slackline, "train", job, "--quiet", "--run-folder", str(run), *_sets(settings), *_sets(own)]
    log = folder / f"{run.name}.log"
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    try:
        longest = LONGER_MAX * seconds
        patience = max(PATIENCE_S, longest)
        _wait_until(lambda: _latest(run / "metrics.csv", "samples") > 0 or process.poll() is not None, patience)
        looks = _look_again_and_again(run, process, seconds)
        _wait_until(lambda: _latest(run / "metrics.csv", "step") >= STEPS_MIN or process.poll() is not None, longest - seconds)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired as late:
            raise PlanError(f"batch {batch}: the measuring run has not ended within {patience:.0f} s") from late
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    summary = _read_summary(run)
    worker = next(iter(summary.get("worker_list") or []), None)
    if worker is None:
        raise PlanError(f"batch {batch}: the measuring run has failed: {_tail(log)}")
    steps = worker["steps"]
    if steps < STEPS_MIN:
        raise PlanError(f"batch {batch}: found {steps} steps in {longest:.0f} s; allowed are at least {STEPS_MIN}: measure "
                        "for longer (--measure), or plan a smaller batch")
    return Measured(batch=batch, steps=steps, compute_s=worker["compute_seconds"] / steps,
                    exchange_s=max(1e-6, worker["wait_seconds"] / steps),
                    exchanged_bytes=(worker["pushed_bytes"] + worker["pulled_bytes"]) / steps,
                    watts=_watts(summary), spread=windows.spread(looks), step_samples=worker["samples"] / steps, gpus=gpus,
                    between_s=max(0.0, (summary.get("train_s") or 0.0) - worker["compute_seconds"] - worker["wait_seconds"]) / steps)


def _watts(summary: dict[str, Any]) -> Optional[float]:
    """Mean power while it trained, of all devices of this node."""
    energy, seconds = summary.get("energy"), summary.get("train_s") or 0
    return energy["training"] / seconds if energy and seconds > 0 else None


def _look_again_and_again(run: Path, process: "subprocess.Popen[bytes]", seconds: float) -> list[windows.Look]:
    """At the ends of windows of equal length, until the time is over or the process has ended."""
    looks = []
    address = ""
    for window in range(windows.WINDOWS + 1):
        if window > 0:
            _wait_until(lambda: process.poll() is not None, seconds / windows.WINDOWS)
        address = address or windows.worker_address(run)
        found = windows.look(address)
        looks += [] if found is None else [found]
    return looks


def simulate(slackline: str, job: str, settings: Sequence[str], groups: Sequence[Group],
             epochs_max: int, gbit_per_s: Optional[float], images: Optional[int], folder: Path) -> Simulated:
    """Plays one epoch of the job on these nodes, and as many as it needs to be even, all at most: the difference is what an
    epoch takes. Servers are as slow as the slowest that was measured. More images than the job has make epochs longer in
    proportion."""
    groups = [group for group in groups if group.nodes > 0]
    measured, nodes = groups[0].measured, sum(group.nodes for group in groups)
    exchange_s = max(group.measured.exchange_s for group in groups)
    classes = ", ".join(f"{{workers: {group.nodes}, slowdown: {group.measured.sample_s / measured.sample_s:.9g}}}"
                        for group in groups) if len(groups) > 1 else ""
    wires = [f"simulation.worker_gbit_per_s={gbit_per_s or 0}", f"simulation.server_gbit_per_s={gbit_per_s or 0}"]
    if gbit_per_s is None:
        # It is in what was measured.
        wires.append("simulation.latency_us=0")
    own = [f"cluster.workers={nodes}", f"training.batch_size={measured.batch}", f"simulation.classes=[{classes}]",
           "worker.slowdown={}", f"simulation.compute_us_per_sample={measured.sample_s * 1e6:.9g}",
           "simulation.compute_us_per_step=0", *wires, "output.tensorboard=false",
           f"simulation.server_gbyte_per_s={measured.exchanged_bytes / exchange_s / 1e9:.9g}"]
    if images is not None:
        own.append(f"data.train_images_max={images}")
    first = _play(slackline, job, [*settings, *own], 1, folder / "simulate-1")
    steps = first["steps"] / nodes
    epochs = min(epochs_max, EPOCHS_MAX, max(2, int(SIMULATED_STEPS_MIN / max(steps, 1)) + 1))
    epoch_s = first["time_s"]
    if epochs > 1:
        last = _play(slackline, job, [*settings, *own], epochs, folder / "simulate-all")
        # Where all of it was noise of chance, the first one stands for all.
        epoch_s = max(epoch_s / 100, min(epoch_s, (last["time_s"] - first["time_s"]) / (epochs - 1)))
    found = Simulated(epoch_samples=first["samples"], step_samples=first["samples"] / max(first["steps"], 1), epoch_s=epoch_s,
                      once_s=first["time_s"] - epoch_s)
    return found.of_images(images) if images is not None and images > found.epoch_samples else found


def _play(slackline: str, job: str, settings: Sequence[str], epochs: int, run: Path) -> dict[str, Any]:
    command = [slackline, "simulate", job, "--no-gradients", "--quiet", "--run-folder", str(run), *_sets(settings),
               *_sets([f"training.epochs={epochs}", "optimizer.schedule.warmup_epochs=0"])]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PlanError(done.stderr.strip() or f"the simulation has ended with exit code {done.returncode}")
    return _read_summary(run)


def check_simulation(slackline: str, job: str, settings: Sequence[str]) -> None:
    """Raises PlanError if the job cannot be simulated, for example because the simulator is not installed."""
    command = [slackline, "simulate", job, "--no-gradients", "--check", *_sets(settings)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PlanError(done.stderr.strip())


def job_epochs(slackline: str, job: str, settings: Sequence[str]) -> int:
    """training.epochs, of a job that is valid."""
    done = subprocess.run([slackline, "check", job, *_sets(settings)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise WrongUse(done.stderr.strip())
    # Every field is there, one a line.
    section = ""
    for line in done.stdout.splitlines():
        if line and not line.startswith(" "):
            section = line.split(":")[0]
        if section == "training" and line.startswith("  epochs:"):
            return int(line.split(":")[1])
    raise PlanError("`slackline check` names no training.epochs")


def _sets(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def _read_summary(run: Path) -> dict[str, Any]:
    try:
        return json.loads((run / "summary.json").read_text())
    except (OSError, ValueError):
        return {}


def _latest(metrics: Path, name: str) -> int:
    """The last row's figure; 0 if there is none yet."""
    try:
        lines = metrics.read_text().splitlines()
    except OSError:
        return 0
    if len(lines) < 2:
        return 0
    found = dict(zip(lines[0].split(","), lines[-1].split(","))).get(name, "")
    return int(found) if found.isdigit() else 0


def _wait_until(condition: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition() and time.monotonic() < deadline:
        # What other processes write sends no event to us.
        pause.wait(LOOK_S)


def _tail(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return "\n".join(lines[-6:]) or "it said nothing"
