"""A scheduler and servers on this machine, for notebooks and tests; the workers are the caller's."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Sequence, Union

from ._connect import connect
from ._ending import describe
from ._errors import AbortedError, DeadlineExceededError, InvalidArgumentError, NotFoundError
from ._worker import Worker

PathLike = Union[str, "os.PathLike[str]"]

_PROGRAMS = ("slackline-scheduler", "slackline-ps")
# A wheel has the programs here.
_OWN_PROGRAMS = Path(__file__).parent / "programs" / "bin"
_POLL_S = 0.02
# How long the scheduler may take to end: with nothing to keep, and with a last checkpoint, of a large model on a slow disk.
_END_S = 20
_SAVE_S = 600
# And all, of whom nobody wants anything any more.
_HURRY_S = 2


def _end_with_us() -> list[str]:
    """What goes before a command so that the system ends it where this process dies without a word: of util-linux. The signal comes
    when the thread dies that has started it: _Starter."""
    command = ["setpriv", "--pdeathsig", "TERM", "--"]
    if shutil.which(command[0]) is None:
        return []
    known = subprocess.run([*command, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return command if known.returncode == 0 else []


class _Starter:
    """A thread that starts processes, and stays until stop(), whatever becomes of the threads that ask it to: a process that is
    to end with the thread that has started it ends with this one, or with all of us. No wait at the end of the interpreter: a daemon.
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[Optional[tuple[Callable[[], Any], Future[Any]]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="slackline-cluster", daemon=True)
        self._thread.start()

    def call(self, start: Callable[[], Any]) -> Any:
        """start() on the thread; returns or raises what it does."""
        done: Future[Any] = Future()
        self._orders.put((start, done))
        return done.result()

    def stop(self) -> None:
        self._orders.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            start, done = order
            try:
                done.set_result(start())
            except BaseException as error:  # pylint: disable=broad-except
                done.set_exception(error)


class LocalCluster:
    """A scheduler and servers on this machine, made by local_cluster().

    Attributes:
        job (str): Path of the job file.
        overrides (list[str]): Settings of the job file, as KEY=VALUE.
        run_folder (str): Folder with results and logs.
        address (str): File to which the scheduler writes its HOST:PORT.
    """

    def __init__(self, job: Path, overrides: Sequence[str], run_folder: Path, programs: dict[str, Path]) -> None:
        self.job = str(job)
        self.overrides = list(overrides)
        self.run_folder = str(run_folder)
        self.address = str(run_folder / "scheduler.address")
        self._programs = programs
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._starter = _Starter()
        self._before = _end_with_us()
        # With the threads that they are of.
        self._workers: list[tuple[int, weakref.ref[Worker]]] = []

    def connect(self, **options: Any) -> Worker:
        """Makes a worker of this job. The end of the cluster lets the worker leave first, if both are of one thread.

        Args:
            **options: Further arguments of slackline.connect(), for example `name`.

        Returns:
            The worker.
        """
        worker = connect(self.address, self.job, overrides=self.overrides, **options)
        self._workers.append((threading.get_ident(), weakref.ref(worker)))
        return worker

    def _start(self, name: str, program: str, *arguments: str) -> None:
        overrides = [word for one in self.overrides for word in ("--set", one)]

        def start() -> None:
            with open(Path(self.run_folder) / f"{name}.log", "ab") as log:
                process = subprocess.Popen(
                    [*self._before, str(self._programs[program]), self.job, *arguments, *overrides],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is the caller's, who then ends them
                )
            self._processes.append((name, process))

        self._starter.call(start)

    def _await_address(self, startup_s: float) -> None:
        deadline = time.monotonic() + startup_s
        while not os.path.exists(self.address):
            for name, process in self._processes:
                if process.poll() is not None:
                    log = (Path(self.run_folder) / f"{name}.log").read_text(errors="replace").strip()
                    raise AbortedError(f"{name} ended with code {process.returncode}: {log[-2000:]}")
            if time.monotonic() > deadline:
                raise DeadlineExceededError(f"waited {startup_s:g} s for the scheduler to write {self.address}")
            threading.Event().wait(_POLL_S)

    def _leave(self, reason: str) -> None:
        """Workers say goodbye, whose silence would be waited for."""
        for thread, reference in self._workers:
            worker = reference()
            if worker is None or thread != threading.get_ident():
                continue
            # The cluster ends, whatever becomes of them.
            with contextlib.suppress(Exception):
                worker.leave(reason)

    def _stop(self, reason: str, most_s: float) -> None:
        # A start that Ctrl-C has cut short has made a process, or none.
        self._starter.call(lambda: None)
        try:
            self._leave(reason)
            # The scheduler ends the job, has the last checkpoint made, and tells the servers.
            self._end(self._processes[:1], most_s)
            # Who has not heard of the end would wait for the scheduler's word; the second signal tells it not to.
            self._end(self._processes[1:], most_s, signal.SIGTERM, signal.SIGINT)
        finally:
            # After Ctrl-C in here, too, which means: now. The scheduler makes no checkpoint then.
            self._end(self._processes, _HURRY_S, signal.SIGTERM, signal.SIGINT)
            self._starter.stop()

    @staticmethod
    def _end(
        processes: Sequence[tuple[str, subprocess.Popen[bytes]]], most_s: float, *signals: signal.Signals
    ) -> None:
        deadline = time.monotonic() + most_s
        for _, process in processes:
            for one in signals or (signal.SIGTERM,):
                process.send_signal(one)
        for _, process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                # Ctrl-C in Popen.wait() may leave its lock taken: no wait for that process ends any more.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_HURRY_S)


def find_program(name: str, folder: Optional[PathLike]) -> Path:
    """The program's path in `folder`. Default: in this package, where a wheel has it, or in one of the folders of $PATH."""
    program = shutil.which(name, path=os.fspath(_OWN_PROGRAMS if folder is None else folder))
    if program is None and folder is None:
        program = shutil.which(name)
    if program is None:
        where = "$PATH, and this package has none" if folder is None else os.fspath(folder)
        raise NotFoundError(f"found no program {name} in {where}")
    return Path(program).absolute()


def _check_run_folder(folder: Path) -> None:
    """The job's processes tell one another where it is, in messages that hold UTF-8 only."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(
            f"run_folder: found {str(folder)!r}; allowed is a path in UTF-8: give another run_folder"
        ) from None


@contextlib.contextmanager
def local_cluster(
    job: Optional[PathLike] = None,
    *,
    servers: int = 1,
    workers: int = 1,
    overrides: Sequence[str] = (),
    run_folder: Optional[PathLike] = None,
    programs: Optional[PathLike] = None,
    startup_s: float = 60,
) -> Iterator[LocalCluster]:
    """Starts a scheduler and servers on this machine, and ends them at the end of the `with`.

    The end waits for a last checkpoint. Ctrl-C in that wait skips the checkpoint.

    Args:
        job: Path of the job file, which names a model.kind. Default: a job of defaults with model.kind: external.
        servers: Number of servers.
        workers: Number of workers with which training begins.
        overrides: Settings of the job file, as KEY=VALUE.
        run_folder: New or empty folder for results and logs. Default: a temporary one, removed at the end.
        programs: Folder of slackline-scheduler and slackline-ps. Default: this package's own, which a wheel has, or those
            of $PATH.
        startup_s: Longest wait for the scheduler's address, in seconds.

    Yields:
        The cluster, whose connect() makes workers.

    Raises:
        FileNotFoundError: A program does not exist.
        ValueError: The run folder's path is not UTF-8.
        TimeoutError: The scheduler wrote no address within `startup_s`.
        AbortedError: A program ended at its start. The message has the end of its log.
    """
    found = {name: find_program(name, programs) for name in _PROGRAMS}
    with contextlib.ExitStack() as stack:
        if run_folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slackline-")))
        else:
            folder = Path(run_folder)
        folder = folder.absolute()
        _check_run_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if job is None:
            path = folder / "job.yaml"
            path.write_text("model: {kind: external}\n")
        else:
            path = Path(job).absolute()
        sizes = [f"cluster.servers={servers}", f"cluster.workers={workers}"]
        cluster = LocalCluster(path, [*overrides, *sizes], folder, found)
        reason = "the cluster ends"
        try:
            cluster._start("scheduler", "slackline-scheduler", "--run-folder", cluster.run_folder, "--unwatched")
            cluster._await_address(startup_s)
            for number in range(1, servers + 1):
                name = f"ps-{number}"
                cluster._start(name, "slackline-ps", "--scheduler", cluster.address, "--name", name)
            yield cluster
        except BaseException as error:
            reason = f"failed: {describe(type(error), error)}"
            raise
        finally:
            cluster._stop(reason, _END_S if run_folder is None else _SAVE_S)
