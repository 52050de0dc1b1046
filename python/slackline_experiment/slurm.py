"""`--slurm`: each run is a SLURM job. Runs without result and job are submitted; those whose job is in the queue are left alone.
"""

import argparse
import re
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Callable, Iterable, Sequence

from slackline_experiment import run_folder
from slackline_experiment.document import Wrong
from slackline_experiment.resolve import ResolvedCell, of_repeat
from slackline_experiment.runner import Interrupt, Plan, interrupts_on, last_line
from slackline_experiment.store import Run, Store
from slackline_options import CommandParser

ANSWER_MAX_S = 60.0
# `slackline slurm submit` gives sbatch 60 s.
SUBMIT_MAX_S = 120.0
# While it waits for jobs: the first look at the queue, the longest pause between two, and how long squeue may fail.
LOOK_FIRST_S, LOOK_MAX_S, SILENCE_MAX_S = 0.5, 15.0, 300.0
# Options of `slackline slurm submit` that are passed on as they are.
PASSED_ON = ("interface", "stop_before")


class NoAnswer(Exception):
    """A program of SLURM failed: its words."""


@dataclass
class Outcome:
    submitted: int = 0
    # Runs that ended without a result. A call that does not wait has submitted them again.
    failed: list[Run] = field(default_factory=list)
    interrupted: bool = False
    # In the queue, at the last look.
    left: list[Run] = field(default_factory=list)


def add_options(parser: CommandParser) -> None:
    group = parser.add_argument_group("SLURM")
    group.add_argument("--slurm", action="store_true", help="Submit each run as a SLURM job, with the options for sbatch that follow "
                       "--. Collect runs that have ended, and do not wait.")
    group.add_argument("--wait", action="store_true", help="Wait until all jobs have ended.")
    group.add_argument("--interface", metavar="NAME|NETWORK", help="As for slackline slurm submit.")
    group.add_argument("--stop-before", metavar="SECONDS", help="As for slackline slurm submit.")
    group.add_argument("--no-requeue", action="store_true", help="As for slackline slurm submit.")
    group.add_argument("--srun-option", action="append", default=[], metavar="OPTION", help="As for slackline slurm submit.")


def check_options(options: argparse.Namespace, cells: Sequence[Any]) -> None:
    """`cells` are the experiment's. Raises Wrong for what does not go together."""
    if not options.slurm:
        given = [name for name in ("wait", "interface", "stop_before", "no_requeue", "srun_option") if getattr(options, name)]
        if given or options.sbatch:
            what = f"--{given[0].replace('_', '-')}" if given else f"-- {options.sbatch[0]}"
            raise Wrong(f"found {what} without --slurm; allowed is both or neither")
        return
    if options.report:
        raise Wrong("found --slurm with --report; allowed is one of them: --report asks no SLURM")
    if options.jobs != 1:
        raise Wrong(f"found --jobs {options.jobs} with --slurm; allowed is 1: SLURM decides how many jobs run at a time")
    for word in options.sbatch:
        if re.match(r"--array\b|-a", word):
            raise Wrong(f"found {word}; allowed are other options of sbatch: each run is a job of its own")
        if re.match(r"--clusters?\b|-M", word):
            raise Wrong(f"found {word}; allowed are other options of sbatch: results are collected from this cluster's queue")
    for cell in cells:
        if cell.run != "train":
            raise Wrong(f"cell {cell.id}: found run: {cell.run} with --slurm; allowed is train. Simulated runs need one process: "
                        "start the experiment without --slurm in an allocation of your own")
        if "cluster.workers" in cell.sets:
            raise Wrong(f"cell {cell.id}: found cluster.workers set with --slurm; allowed is to leave it out: under SLURM it is the "
                        "number of nodes that compute")
    for program in () if options.dry_run else ("sbatch", "squeue"):
        if shutil.which(program) is None:
            raise Wrong(f"found no program {program} in PATH; --slurm needs it: start the command where jobs are submitted, or leave "
                        "--slurm out to run everything here")


def counted(runs: int) -> str:
    return "1 run was" if runs == 1 else f"{runs} runs were"


def ask_queue(users: Iterable[int]) -> dict[str, str]:
    """State of each job of these users in the queue, by job number. Raises NoAnswer."""
    said = _call(["squeue", "--noheader", f"--user={','.join(map(str, users))}", "--format=%A|%T|%r"], ANSWER_MAX_S)
    queue = {}
    for line in said.splitlines():
        number, _, rest = line.strip().partition("|")
        state, _, reason = rest.partition("|")
        if number.isdigit():
            queue[number] = f"{state} ({reason})" if state == "PENDING" and reason not in ("", "None") else state
    return queue


def _call(command: Sequence[str], longest_s: float) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=longest_s, errors="replace")
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"{command[0]} did not answer in {longest_s:.0f} s") from error
    except OSError as error:
        raise NoAnswer(f"cannot start {command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise NoAnswer((done.stderr.strip() or done.stdout.strip() or f"{command[0]}: exit code {done.returncode}"))
    return done.stdout


def check_idle(cells: Sequence[ResolvedCell], store: Store, submits: bool) -> None:
    """Raises Wrong if a run that would be removed may still be written to by its SLURM job: of all cells if runs are to run here,
    and else of cells that have changed."""
    at_stake = [cell for cell in cells if not submits or store.has_changed(cell)]
    jobs = {f"{cell.cell.id}/{repeat}": job for cell in at_stake for repeat, job in store.slurm_jobs(cell.cell.id).items()}
    if not jobs:
        return
    try:
        queue = ask_queue(store.submitters())
    except NoAnswer as error:
        name, job = next(iter(jobs.items()))
        raise Wrong(f"{name} was submitted as SLURM job {job}, and SLURM does not say whether that has ended ({error}); start the "
                    "command where squeue works") from error
    for name, job in jobs.items():
        if job in queue:
            why = "its job file has changed, and" if submits else "found a run in SLURM's queue:"
            raise Wrong(f"{name}: {why} SLURM job {job} is {queue[job]}; allowed is "
                        + ("to wait for its end" if submits else "--slurm") + f", or scancel {job} first")


class Submitter:
    """Thread-safety: none; lives in the main thread, which takes the signals."""

    def __init__(self, name: str, plan: Plan, options: argparse.Namespace, store: Store, say: Callable[[str], None]):
        self._name = name
        self._plan = plan
        self._options = options
        self._store = store
        self._say = say
        self._events: "SimpleQueue[Any]" = SimpleQueue()
        self._outcome = Outcome()

    def batch_script(self, run: Run) -> str:
        """That of a run, which is not submitted. Raises Wrong for options that `slackline slurm submit` refuses."""
        try:
            return _call(self._command(run, ["--dry-run"]), SUBMIT_MAX_S)
        except NoAnswer as error:
            raise Wrong(str(error)) from error

    def run(self, runs: Sequence[Run]) -> Outcome:
        """Raises OSError if SLURM does not answer, or refuses a job."""
        with interrupts_on(self._events):
            try:
                self._submit_all(runs)
                if self._options.wait:
                    # The jobs that were submitted again decide.
                    self._outcome.failed.clear()
                    self._wait()
            except NoAnswer as error:
                raise OSError(f"{error}\n{counted(self._outcome.submitted)} submitted. Call the command again to go on.") from error
        return self._outcome

    def _submit_all(self, runs: Sequence[Run]) -> None:
        for run in runs:
            # Files of a node may be seen here only after its job has left the queue.
            if self._store.slurm_job(run) and run_folder.read_state(self._store.run_folder(run)) == "done":
                self._store.forget_failure(run)
        open_runs = [run for run in runs if not self._store.is_complete(run)]
        self._say(f"{len(runs) - len(open_runs)} of {len(runs)} runs are complete.")
        queue = ask_queue(self._store.submitters()) if open_runs else {}
        to_submit = []
        for run in open_runs:
            job = self._store.slurm_job(run)
            if job is not None and job in queue:
                self._outcome.left.append(run)
                self._say(f"    {run.id}: SLURM job {job} is {queue[job]}")
                continue
            # The job may have ended since the first look.
            if job is not None and not self._store.is_complete(run) and self._store.failure(run) is None:
                self._note_failure(run, job)
            to_submit.append(run)
        for run in to_submit:
            if self._store.is_complete(run):
                continue
            if self._interrupted(0):
                return
            self._submit(run)
            self._outcome.left.append(run)

    def _submit(self, run: Run) -> None:
        resumed = self._goes_on(run)
        if resumed:
            self._store.forget_failure(run)
        else:
            self._store.make_room(run)
        try:
            _call(self._command(run, ["--resume"] if resumed else []), SUBMIT_MAX_S)
        except NoAnswer as error:
            raise NoAnswer(f"{run.id} was not submitted: {error}") from error
        job = self._store.slurm_job(run)
        if job is None:
            raise NoAnswer(f"{run.id} was submitted, but its number is not in {self._store.run_folder(run)}/submit/job-id")
        self._outcome.submitted += 1
        self._say(f"    {run.id}: submitted as SLURM job {job}{', from its newest checkpoint' if resumed else ''}")

    def _goes_on(self, run: Run) -> bool:
        """True if a new job is to continue from a checkpoint. A run that failed by itself would fail there again."""
        folder = self._store.run_folder(run)
        whole = [path for path in folder.glob("checkpoints/checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
        return bool(whole) and run_folder.read_state(folder) != "failed"

    def _command(self, run: Run, more: Sequence[str]) -> list[str]:
        folder, plan, options = self._store.run_folder(run), self._plan, self._options
        command = [str(plan.slackline), "slurm", "submit"]
        if "--resume" not in more:
            command += [str(plan.job), *of_repeat(run.cell.overrides, run.cell.folds, run.repeat), "--set", f"seed={run.seed}"]
            if plan.script is not None:
                command += ["--script", str(plan.script.path), "--python", plan.script.python,
                            *(f"--script-argument={argument}" for argument in plan.script.arguments)]
        command += ["--run-folder", str(folder), *more]
        for name in PASSED_ON:
            if getattr(options, name) is not None:
                command += [f"--{name.replace('_', '-')}", getattr(options, name)]
        command += ["--no-requeue"] if options.no_requeue else []
        command += [f"--srun-option={option}" for option in options.srun_option]
        # A name of the user's follows, and counts.
        return [*command, "--", f"--job-name={self._name}-{run.id.replace('/', '-')}", *options.sbatch]

    def _note_failure(self, run: Run, job: str) -> None:
        folder = self._store.run_folder(run)
        log = self._store.last_log(run)
        try:
            data = run_folder.read(folder)
            reason = data.reason or (f"its summary.json says '{data.state}'" if data.state else last_line(log))
        except run_folder.BadRunFolder as error:
            reason = str(error)
        failure = f"SLURM job {job} ended without a result" + (f": {reason}" if reason else "")
        self._store.record_failure(run, failure)
        self._outcome.failed.append(run)
        self._say(f"    {run.id}: FAILED ({failure}); its log: {log}")

    def _wait(self) -> None:
        pause, heard = LOOK_FIRST_S, time.monotonic()
        while self._outcome.left and not self._interrupted(pause):
            try:
                queue = ask_queue(self._store.submitters())
                heard = time.monotonic()
            except NoAnswer:
                if time.monotonic() - heard > SILENCE_MAX_S:
                    raise
                continue
            ended = [run for run in self._outcome.left if self._store.slurm_job(run) not in queue]
            self._outcome.left = [run for run in self._outcome.left if run not in ended]
            for run in ended:
                if self._store.is_complete(run):
                    self._say(f"    {run.id}: done")
                else:
                    self._note_failure(run, self._store.slurm_job(run) or "")
            pause = LOOK_FIRST_S if ended else min(LOOK_MAX_S, 1.5 * pause)

    def _interrupted(self, seconds: float) -> bool:
        """Waits for so long, unless there is an interrupt."""
        deadline = time.monotonic() + seconds
        while not self._outcome.interrupted:
            # Python runs the handler of a signal that comes just before a wait only after that wait: so none is long.
            left = min(1.0, deadline - time.monotonic())
            with suppress(Empty):
                self._outcome.interrupted = isinstance(self._events.get(timeout=max(0.0, left)) if left > 0
                                                       else self._events.get_nowait(), Interrupt)
            if left <= 0:
                break
        return self._outcome.interrupted
