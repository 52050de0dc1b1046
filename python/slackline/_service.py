"""The queue of jobs of `slackline service`, from Python: the same commands, by their JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Optional, Sequence

from ._cluster import PathLike, find_program
from ._errors import AbortedError, DeadlineExceededError, InvalidArgumentError

_ENDED = ("done", "failed", "stopped", "cancelled")
_WRONG_USE = 2
_POLL_S = 0.3
# Ended jobs in a list, as many as a service gives.
_ENDED_MAX = 10_000


class ServiceJob:
    """A job of a service, made by Service.submit() and Service.job().

    Attributes:
        id (int): Number of the job.
    """

    def __init__(self, service: Service, number: int) -> None:
        self._service = service
        self.id = number

    def status(self) -> dict[str, Any]:
        """Returns what `slackline jobs --json` shows of the job: state, reason, epochs_done, best, folder and others.

        Raises:
            InvalidArgumentError: The service has no such job.
        """
        (status,) = json.loads(self._service._run("jobs", self._name(), "--json"))
        return dict(status)

    def wait(self, timeout: Optional[float] = None) -> str:
        """Waits for the end of the job. Returns its state: done, failed, stopped or cancelled.

        Args:
            timeout: Longest wait in seconds. None: without limit.

        Raises:
            DeadlineExceededError: The job has not ended by then.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.status())["state"] not in _ENDED:
            if deadline is not None and time.monotonic() > deadline:
                raise DeadlineExceededError(f"job {self.id} is {status['state']} after {timeout} s")
            threading.Event().wait(_POLL_S)
        return str(status["state"])

    def stop(self) -> None:
        """Saves the job, ends it, and waits for that."""
        self._service._run("stop", self._name())

    def cancel(self) -> None:
        """Ends the job at once, and waits for that."""
        self._service._run("cancel", self._name())

    def resume(self, overrides: Sequence[str] = ()) -> None:
        """Puts the ended job into the queue again.

        Args:
            overrides: Settings that change from there on, each "KEY=VALUE".
        """
        self._service._run("resume", self._name(), *_settings(overrides))

    def remove(self) -> None:
        """Deletes the ended job with its results."""
        self._service._run("rm", self._name())

    def log(self, process: Optional[str] = None) -> str:
        """Returns the output of the job, or of one of its processes, such as "worker-1"."""
        return self._service._run("logs", self._name(), "--all", *(("--process", process) if process else ()))

    def _name(self) -> str:
        folder = self._service._folder
        return str(self.id) if folder is None else str(folder / str(self.id))


class Service:
    """The queue of jobs of `slackline service` on this machine (docs/service.md).

    Errors of all calls: InvalidArgumentError if the command refuses what it was given, AbortedError if it fails, for example
    because no service answers. The messages are those of the commands.
    """

    def __init__(self, folder: Optional[PathLike] = None, *, programs: Optional[PathLike] = None) -> None:
        """Names a service; nothing is called yet.

        Args:
            folder: Folder of the service. Default: the one that this user started last.
            programs: Folder of the program slackline. Default: this package's own, which a wheel has, or that on PATH.

        Raises:
            NotFoundError: There is no program.
        """
        self._folder = None if folder is None else Path(folder).absolute()
        self._program = find_program("slackline", programs)

    def submit(
        self,
        job: PathLike,
        *,
        script: Optional[PathLike] = None,
        arguments: Sequence[str] = (),
        overrides: Sequence[str] = (),
        name: Optional[str] = None,
        owner: Optional[str] = None,
        priority: int = 0,
        memory: int = 0,
        gpus: int = 0,
        on: str = "local",
        sbatch: Sequence[str] = (),
    ) -> ServiceJob:
        """Puts a job into the queue. It runs in the present folder, and scripts with this interpreter.

        Args:
            job: Path of the job file.
            script: Path of the workers' script. Default: the workers' program.
            arguments: Arguments of the script.
            overrides: Settings that override the job file, each "KEY=VALUE".
            name: Name in the list of jobs. Default: that of the job file.
            owner: Who submits, for limits of owners. Default: the name of this user.
            priority: Jobs of a higher priority begin first; -1000 to 1000.
            memory: Bytes that all processes of the job need. The job waits until the service has so much.
            gpus: Number of GPUs that the job gets for itself.
            on: Where the job runs: "local", the machine of the service, or "slurm", an allocation.
            sbatch: Options for sbatch, as "--nodes=4".
        """
        command = ["submit", os.fspath(job), f"--priority={priority}", f"--gpus={gpus}", f"--on={on}", *_settings(overrides)]
        command += [f"--sbatch={option}" for option in sbatch]
        if owner is not None:
            command.append(f"--owner={owner}")
        if memory:
            command.append(f"--memory={memory}")
        if name is not None:
            command.append(f"--name={name}")
        if self._folder is not None:
            command += ["--service", str(self._folder)]
        if script is None and arguments:
            raise InvalidArgumentError("found arguments of a script, and no script; allowed are arguments with a script")
        if script is not None:
            command += ["--script", os.fspath(script), "--python", sys.executable, "--", *arguments]
        return ServiceJob(self, int(self._run(*command, here=True)))

    def job(self, number: int) -> ServiceJob:
        """Returns the job of this number; its calls fail if there is none."""
        return ServiceJob(self, number)

    def jobs(self) -> list[dict[str, Any]]:
        """Returns the status of all jobs, newest first (ServiceJob.status()); of ended jobs the newest 10,000."""
        where = () if self._folder is None else ("--service", str(self._folder))
        return [dict(job) for job in json.loads(self._run("jobs", "--json", "--ended", str(_ENDED_MAX), *where))]

    def _run(self, *arguments: str, here: bool = False) -> str:
        """Runs a command and returns its output. `here`: in the present folder; elsewhere no file hides a number."""
        done = subprocess.run(
            [self._program, *arguments],
            cwd=None if here else os.sep,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout
        message = done.stderr.strip().removeprefix("slackline: ") or f"exit code {done.returncode}"
        raise InvalidArgumentError(message) if done.returncode == _WRONG_USE else AbortedError(message)


def _settings(overrides: Sequence[str]) -> list[str]:
    return [word for setting in overrides for word in ("--set", setting)]
