"""Runs what is not complete yet, one after the other or a few at a time."""

import json
import math
import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Callable, Iterator, Optional, Sequence, Union

from slackline_experiment import run_folder
from slackline_experiment.child import Child
from slackline_experiment.definition import Script
from slackline_experiment.progress import Progress
from slackline_experiment.resolve import job_of_run, of_repeat
from slackline_experiment.store import Run, Store

# A run that is told to stop has this long; asked once more, the second span; then it is killed.
STOP_DEADLINE_S = 60.0
SECOND_STOP_DEADLINE_S = 10.0
# Python runs the handler of a signal that comes just before a wait only after that wait: so none is longer.
LOOK_EVERY_S = 1.0


class Interrupt:
    """On the queue of events: Ctrl-C, or a request to terminate."""


@dataclass(frozen=True)
class Plan:
    slackline: Path
    job: Path
    jobs: int = 1
    keep_going: bool = False
    cool_down_s: float = 0.0
    script: Optional[Script] = None
    plain: Optional[Script] = None
    # Repeats of each cell whose workers record a trace.
    profiled: int = 0

    def command(self, run: Run, folder: Path) -> list[str]:
        start = [run.cell.cell.run] if self.script is None else ["launch", str(self.script.path)]
        command = [str(self.slackline), *start, str(self.job), *of_repeat(run.cell.overrides, run.cell.folds, run.repeat), "--set",
                   f"seed={run.seed}", "--run-folder", str(folder)]
        if run.repeat <= self.profiled and run.cell.cell.run == "train":
            command += ["--set", f"worker.trace={folder.absolute() / 'trace.json'}"]
        if self.script is not None:
            command += ["--python", self.script.python, "--", *self.script.arguments, *run.cell.cell.arguments]
        return command


    def plain_command(self, job: Path, folder: Path) -> list[str]:
        """What trains `job` without Slackline."""
        assert self.plain is not None
        return [self.plain.python, str(self.plain.path), str(job), "--run-folder", str(folder)]


@dataclass
class Outcome:
    done: int = 0
    failed: list[Run] = field(default_factory=list)
    interrupted: bool = False


@contextmanager
def interrupts_on(events: "SimpleQueue[Any]") -> Iterator[None]:
    """While it lasts, SIGINT, SIGTERM and SIGHUP become events, except those that were ignored (nohup, a background job).
    SimpleQueue.put() may be called from a handler."""

    def heed(number: int) -> Any:
        # Runs inherit what is ignored, and are stopped by signals: so nothing is ignored, but may do nothing.
        ignored = signal.getsignal(number) is signal.SIG_IGN
        return signal.signal(number, (lambda *_: None) if ignored else (lambda *_: events.put(Interrupt())))

    before = {number: heed(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Runner:
    """Thread-safety: none; lives in the main thread, which takes the signals."""

    def __init__(self, plan: Plan, store: Store, say: Callable[[str], None]):
        self._plan = plan
        self._store = store
        self._say = say
        self._events: "SimpleQueue[Union[Child, Interrupt]]" = SimpleQueue()
        self._children: list[Child] = []
        self._outcome = Outcome()

    def run(self, runs: Sequence[Run]) -> Outcome:
        complete = [run for run in runs if self._store.is_complete(run)]
        waiting = [run for run in runs if run not in complete]
        if complete:
            self._say(f"{len(complete)} of {len(runs)} runs are complete already.")
        progress = Progress(len(runs), self._plan.jobs, self._plan.cool_down_s, self._say)
        progress.finished = [(run, wall_s) for run in complete if (wall_s := self._store.wall_s(run)) is not None]
        with interrupts_on(self._events):
            try:
                self._loop(len(complete), waiting, progress)
            finally:
                # Empty, but where something went wrong here.
                for child in self._children:
                    child.kill()
        return self._outcome

    def _loop(self, number: int, waiting: list[Run], progress: Progress) -> None:
        while waiting or self._children:
            while waiting and len(self._children) < self._plan.jobs:
                number += 1
                progress.started(number, waiting[0], [*(child.run for child in self._children), *waiting])
                self._start(waiting.pop(0))
            event = self._next(math.inf)
            if isinstance(event, Child):
                self._end(event, progress)
            if isinstance(event, Interrupt) or (waiting and self._pause_is_interrupted()):
                self._outcome.interrupted = True
                self._stop_all()
                return
            if self._outcome.failed and not self._plan.keep_going:
                waiting.clear()

    def _start(self, run: Run) -> None:
        self._store.make_room(run)
        if run.cell.cell.run == "plain":
            job = self._store.job(run)
            job.write_text(job_of_run(run.cell, run.seed, run.repeat), encoding="utf-8")
            command = self._plan.plain_command(job, self._store.run_folder(run))
        else:
            command = self._plan.command(run, self._store.run_folder(run))
        self._children.append(Child(run, command, self._store.log(run), self._store.guard, self._events))

    def _end(self, child: Child, progress: Progress) -> None:
        self._children.remove(child)
        failure = self._failure(child)
        if failure:
            self._store.record_failure(child.run, failure)
            self._outcome.failed.append(child.run)
            progress.ended(child.run, child.wall_s, f"FAILED ({failure}); its log: {self._store.log(child.run)}")
            return
        self._store.record(child.run, child.wall_s)
        self._outcome.done += 1
        progress.finished.append((child.run, child.wall_s))
        data = run_folder.read(self._store.run_folder(child.run))
        accuracy = data.figures.get("test_accuracy")
        told = "done" if accuracy is None else f"test {data.metric} {100 * accuracy:.2f} %"
        if "metric" in data.figures:
            told = f"test {data.own_metric} {data.figures['metric']:.6g}"
        progress.ended(child.run, child.wall_s, told)

    def _failure(self, child: Child) -> str:
        """Empty for a run that ended well."""
        try:
            data = run_folder.read(self._store.run_folder(child.run))
        except run_folder.BadRunFolder as error:
            return str(error)
        if child.code != 0:
            return data.reason or f"{child.describe_end()}: {last_line(self._store.log(child.run))}".rstrip(": ")
        if data.state != "done":
            return data.reason or (f"its summary.json says '{data.state}'" if data.state else "it left no summary.json "
                                   "that says how it ended")
        return ""

    def _pause_is_interrupted(self) -> bool:
        """The pause between two runs; another run that ends meanwhile waits its turn."""
        if self._children or self._plan.cool_down_s <= 0 or (self._outcome.failed and not self._plan.keep_going):
            return False
        return isinstance(self._next(time.monotonic() + self._plan.cool_down_s), Interrupt)

    def _stop_all(self) -> None:
        for patience_s in (STOP_DEADLINE_S, SECOND_STOP_DEADLINE_S):
            if not self._children:
                return
            names = ", ".join(child.run.id for child in self._children)
            self._say(f"Stopping {names}; up to {patience_s:.0f} s. Ctrl-C again to hurry.")
            for child in self._children:
                child.interrupt()
            self._wait_for_ends(time.monotonic() + patience_s)
        # The end of run() kills them.
        for child in self._children:
            self._say(f"{child.run.id} did not stop; killed.")

    def _wait_for_ends(self, deadline: float) -> None:
        """Until all children have ended, the deadline, or another interrupt."""
        while self._children:
            event = self._next(deadline)
            if not isinstance(event, Child):
                return
            self._children.remove(event)

    def _next(self, deadline: float) -> Optional[Union[Child, Interrupt]]:
        """The next event, or None at the deadline."""
        while (left := deadline - time.monotonic()) > 0:
            with suppress(Empty):
                return self._events.get(timeout=min(left, LOOK_EVERY_S))
        return None


def last_line(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 2000))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return message_of(lines[-1]) if lines else ""


def message_of(line: str) -> str:
    """What a line of a log says; it may be JSON (output.log_format)."""
    try:
        fields = json.loads(line)
    except ValueError:
        return line
    return str(fields["message"]) if isinstance(fields, dict) and "message" in fields else line
