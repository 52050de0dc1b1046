"""A run as a child process, in a group of its own: Ctrl-C on the terminal reaches us only, and we end it in good order.
"""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Sequence

from slackline_experiment.store import Run


class Child:
    """When it ends, it puts itself on `events`, from a thread that does nothing else."""

    def __init__(self, run: Run, command: Sequence[str], log: Path, guard: int, events: "SimpleQueue[Any]"):
        self.run = run
        self.code = 0
        self.wall_s = 0.0
        self._begin = time.monotonic()
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                             start_new_session=True, pass_fds=(guard,))
        threading.Thread(target=self._wait, args=(events,), daemon=True).start()

    def _wait(self, events: "SimpleQueue[Any]") -> None:
        self.code = self._process.wait()
        self.wall_s = time.monotonic() - self._begin
        events.put(self)

    def interrupt(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """It and all of its group."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def describe_end(self) -> str:
        return f"killed by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
