"""What the peers' programs have in common."""

import ctypes
import json
import signal
import socket
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """This process is killed when the one that started it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now, for peers that cannot choose one by themselves."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def report(what: str, **values: float) -> None:
    print(json.dumps({"what": what, **values}), flush=True)


def rate(seconds: float, do_round: Callable[[], None], warm: int = 3) -> float:
    """Rounds a second over at least `seconds`."""
    for _ in range(warm):
        do_round()
    rounds, begin = 0, time.perf_counter()
    while True:
        do_round()
        rounds += 1
        elapsed = time.perf_counter() - begin
        if elapsed >= seconds:
            return rounds / elapsed
