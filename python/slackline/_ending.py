"""What ends a script: the interpreter, an exception, SIGTERM. Its workers leave."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from ._worker import Worker

# Longest first line of an exception in a reason, in characters.
_REASON_MAX = 500


def describe(kind: type[BaseException], error: Optional[BaseException]) -> str:
    """The first line, cut to what fits into a log and a message."""
    try:
        text = str(error) if error is not None else ""
    except Exception as problem:  # pylint: disable=broad-except
        text = f"its text cannot be had: {type(problem).__name__}"
    line = text.splitlines()[0] if text else ""
    if len(line) > _REASON_MAX:
        line = line[:_REASON_MAX] + "..."
    return f"{kind.__name__}: {line}" if line else kind.__name__


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


def leave_at_exit(worker: Worker) -> None:
    if not _workers:
        atexit.register(_leave_all)
    _workers.add(worker)


def _leave_all() -> None:
    # The exception that has ended the script, if any.
    error: Any = getattr(sys, "last_value", None)
    for worker in list(_workers):
        # The interpreter goes, whatever the servers say.
        worker._leave_quietly("the script is done" if error is None else f"failed: {describe(type(error), error)}")


def heed_sigterm(supervised: bool) -> None:
    """SIGTERM ends a script as SystemExit does, so that it leaves; unless the script has a handler of its own. A supervised
    script that is in its job ignores it, and is told by the scheduler."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    pid = os.getpid()

    def handle(number: int, frame: object) -> None:
        del frame
        # Processes that were forked from it, such as DataLoader's, are ended by it with this signal.
        has_left = len(_workers) > 0 and all(worker._left for worker in _workers)
        if not supervised or os.getpid() != pid or has_left:
            sys.exit(128 + number)

    signal.signal(signal.SIGTERM, handle)
