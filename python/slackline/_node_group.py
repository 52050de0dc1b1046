"""The processes of a node group: how they meet, how they add up tensors, and how they learn that one of them has ended.

Process 0 leads. It talks with each other process over a socket in a folder that only they know. Tensors go by
torch.distributed: NCCL between GPUs, Gloo between CPUs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time
import weakref
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Iterable, Iterator, NoReturn, Optional, Sequence, Union

import torch
import torch.distributed as dist

from ._errors import AbortedError, DeadlineExceededError, Error, InvalidArgumentError, from_status

Message = dict[str, Any]
# Its constructors, which torch's stubs leave out.
_made: Any = dist

# Longest wait for the slowest process, in seconds: at the start, and before each step.
MEETING_S = 600.0
# Longest wait for the leader, in seconds. Its exchange has deadlines of its own, and its evaluations may take any time.
LEADER_S = 86400.0
# Longest search for the process that has ended, in seconds, after an exchange of tensors has failed.
_CULPRIT_S = 5.0
_POLL_S = 0.02
# Longest path of a socket on Linux, less what it is called before it listens.
_ADDRESS_MAX = 100
# Reasons to leave that begin so are errors.
_FAILED = "failed: "


class Left(Exception):
    """A process has left in good order, and with it the node."""


class _Peer:
    """Another process: its socket, and its end."""

    def __init__(self, rank: int, connection: Connection, pid: int) -> None:
        self.name = f"process {rank} of the node (pid {pid})"
        self.connection = connection
        self._watch: Optional[int] = None
        # Children that it has forked may keep its end of the socket open. Containers may hide it.
        with contextlib.suppress(OSError, AttributeError):
            self._watch = os.pidfd_open(pid)

    def waits(self) -> list[Union[Connection, int]]:
        return [self.connection] if self._watch is None else [self.connection, self._watch]

    def close(self) -> None:
        self.connection.close()
        if self._watch is not None:
            os.close(self._watch)
            self._watch = None


class NodeGroup:
    """The processes of a node that are one worker, as one of them sees them.

    One thread uses it; leave() may also come from a signal handler. An error in one process ends the group for all: each
    further call raises it.

    Args:
        folder: Private folder of the group, which all processes see.
        rank: Number of this process, from 0. Process 0 leads.
        size: Number of processes.
        devices: Group of the same processes, for tensors on GPUs. Default: one is made, with NCCL.

    Raises:
        DeadlineExceededError: Some processes, which the message names, did not come in time.
    """

    def __init__(self, folder: Path, rank: int, size: int, devices: Optional[dist.ProcessGroup] = None) -> None:
        self.rank = rank
        self.size = size
        self._pid = os.getpid()
        self._closed: Optional[Exception] = None
        address = str(folder / "leader")
        if len(os.fsencode(address)) > _ADDRESS_MAX:
            raise InvalidArgumentError(
                f"the node group's folder: found {folder}; allowed are {_ADDRESS_MAX} bytes, with a file's name: set TMPDIR"
            )
        self._peers = self._welcome(address) if rank == 0 else {0: self._call(address)}
        self._store = _made.FileStore(str(folder / "store"), size)
        self._host: Any = _gloo(_made.PrefixStore("gloo", self._store), rank, size)
        self._devices: Any = devices

    @classmethod
    def of(cls, devices: dist.ProcessGroup) -> NodeGroup:
        """From a group that the script has made."""
        rank, size = dist.get_rank(devices), dist.get_world_size(devices)
        folder: list[Optional[str]] = [tempfile.mkdtemp(prefix="slackline-node-") if rank == 0 else None]
        dist.broadcast_object_list(folder, src=dist.get_global_rank(devices, 0), group=devices)
        assert folder[0] is not None
        group = cls(Path(folder[0]), rank, size, devices)
        if rank == 0:
            weakref.finalize(group, shutil.rmtree, folder[0], ignore_errors=True)
        return group

    # --- meeting ---

    def gather(self) -> list[Message]:
        """The leader hears from all others. Returns their messages in the order of their numbers."""
        heard: dict[int, Message] = {}
        deadline = time.monotonic() + MEETING_S
        while len(heard) < len(self._peers):
            missing = [rank for rank in self._peers if rank not in heard]
            for rank in self._ready(missing, deadline) or self._miss(missing):
                heard[rank] = self._receive(rank)
        return [heard[rank] for rank in sorted(heard)]

    def tell(self, messages: Sequence[Message]) -> None:
        """The leader answers each of the others, or one of the others the leader."""
        self._check()
        for peer, message in zip(self._peers.values(), messages):
            self._send(peer, message)

    def tell_all(self, message: Message) -> None:
        self.tell([message] * len(self._peers))

    def hear(self, wait_s: float) -> Message:
        """What the leader says next."""
        if not self._ready([0], time.monotonic() + wait_s):
            self._miss([0])
        return self._receive(0)

    def fail(self, text: str, code: str = AbortedError.code) -> Error:
        """Ends the group for all. Returns the error, to be raised."""
        error = from_status(code, text)
        self._close(error, {"error": text, "code": code} if self.rank == 0 else {"left": _FAILED + text})
        return error

    def leave(self, reason: str) -> None:
        """Ends the group for all, with an error if `reason` is one. A second call changes nothing."""
        if os.getpid() != self._pid:
            return  # a fork's copy
        if self.rank != 0:
            self._close(Left(reason), {"left": reason})
            return
        said = self._describe_end(f"process 0 of the node (pid {self._pid})", reason)
        self._close(Left(reason), {"error": said, "code": AbortedError.code} if _is_error(reason) else {"end": said})

    # --- tensors ---

    def add_up(self, tensor: torch.Tensor) -> None:
        """Adds all processes' tensors, in place in the leader. What the others' then hold is of no use."""
        self._exchange(tensor, "reduce")

    def spread(self, tensor: torch.Tensor) -> None:
        """Copies the leader's tensor to all processes, in place."""
        self._exchange(tensor, "broadcast")

    def _exchange(self, tensor: torch.Tensor, how: str) -> None:
        self._check()
        group = self._host if tensor.device.type == "cpu" else self._of_devices()
        try:
            getattr(group, how)(tensor, 0).wait()
        except RuntimeError as problem:
            raise self._explain(problem) from None

    def _of_devices(self) -> Any:
        if self._devices is None:
            store = _made.PrefixStore("nccl", self._store)
            self._devices = _made.ProcessGroupNCCL(store, self.rank, self.size, timedelta(seconds=MEETING_S))
        return self._devices

    def _explain(self, problem: RuntimeError) -> Exception:
        """Who has ended, so that tensors could not be exchanged. Others may have gone on, and say so."""
        deadline = time.monotonic() + _CULPRIT_S
        try:
            while ready := self._ready(list(self._peers), deadline):
                for rank in ready:
                    self._receive(rank)
        except (Left, Error) as known:
            return known
        line = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        return self.fail(f"the processes of the node could not exchange tensors: {line}")

    # --- within ---

    def _welcome(self, address: str) -> dict[int, _Peer]:
        """The leader waits for all others."""
        peers: dict[int, _Peer] = {}
        deadline = time.monotonic() + MEETING_S
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(address + ".new")
            listener.listen(self.size)
            os.rename(address + ".new", address)
            while len(peers) < self.size - 1:
                listener.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    connection = Connection(listener.accept()[0].detach())
                except socket.timeout:
                    missing = [rank for rank in range(1, self.size) if rank not in peers]
                    raise _late(f"{_processes(missing)} of the node", "call slackline.connect()") from None
                try:
                    connection.send_bytes(json.dumps({"pid": self._pid}).encode())
                    if not connection.poll(max(0.01, deadline - time.monotonic())):
                        raise _late("a process of the node", "say its number")
                    hello = json.loads(connection.recv_bytes())
                except (EOFError, OSError):
                    raise AbortedError("a process of the node died before it had said its number") from None
                peers[hello["rank"]] = _Peer(hello["rank"], connection, hello["pid"])
        return dict(sorted(peers.items()))

    def _call(self, address: str) -> _Peer:
        """The others wait for the leader."""
        deadline = time.monotonic() + MEETING_S
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            while one.connect_ex(address) != 0:
                if time.monotonic() > deadline:
                    raise _late("process 0 of the node", "call slackline.connect()")
                threading.Event().wait(_POLL_S)
            connection = Connection(one.detach())
        try:
            connection.send_bytes(json.dumps({"rank": self.rank, "pid": self._pid}).encode())
            return _Peer(0, connection, json.loads(connection.recv_bytes())["pid"])
        except (EOFError, OSError):
            raise AbortedError("process 0 of the node died") from None

    def _check(self) -> None:
        if self._closed is not None:
            raise self._closed

    def _ready(self, ranks: Sequence[int], deadline: float) -> list[int]:
        """Those of `ranks` that have said something, or have ended. Waits for one; none at the deadline."""
        self._check()
        peers = [self._peers[rank] for rank in ranks]
        left_s = max(0.0, deadline - time.monotonic())
        # A signal handler may leave meanwhile.
        with contextlib.suppress(OSError):
            ready = wait([one for peer in peers for one in peer.waits()], left_s)
            self._check()
            if ready:
                return [rank for rank, peer in zip(ranks, peers) if any(one in ready for one in peer.waits())]
        self._check()
        return []

    def _miss(self, ranks: Sequence[int]) -> NoReturn:
        late = _late(f"{_processes(ranks)} of the node", "come to the next step")
        raise self.fail(str(late), late.code)

    def _receive(self, rank: int) -> Message:
        peer = self._peers[rank]
        try:
            if not peer.connection.poll():
                raise EOFError
            message: Message = json.loads(peer.connection.recv_bytes())
        except (EOFError, OSError):
            self._check()
            raise self.fail(f"{peer.name} died") from None
        if "error" in message:
            error = from_status(message["code"], message["error"])
            self._close(error)
            raise error
        if "end" in message:
            raise self._close(Left(message["end"]))
        if "left" in message:
            reason = message["left"]
            said = self._describe_end(peer.name, reason)
            if _is_error(reason):
                raise self.fail(said)
            raise self._close(Left(said), {"end": said})
        return message

    @staticmethod
    def _describe_end(name: str, reason: str) -> str:
        return f"{name} {reason}" if _is_error(reason) else f"{name} left: {reason}"

    def _send(self, peer: _Peer, message: Message) -> None:
        try:
            peer.connection.send_bytes(json.dumps(message).encode())
        except OSError:
            pass  # whoever hears from it next knows why

    def _close(self, why: Exception, last: Optional[Message] = None) -> Exception:
        if self._closed is None:
            self._closed = why
            for peer in self._peers.values():
                if last is not None:
                    self._send(peer, last)
                peer.close()
            # Its sockets close with it, and end waits of the others.
            self._host = self._devices = None
        return self._closed


def pieces(tensors: Sequence[torch.Tensor], elements: int = 8 << 20) -> Iterator[list[int]]:
    """Numbers of tensors, in their order, that are exchanged together: of one type, and of so many elements if there are several."""
    piece: list[int] = []
    count = 0
    for i, one in enumerate(tensors):
        if piece and (one.dtype != tensors[piece[0]].dtype or count + one.numel() > elements):
            yield piece
            piece, count = [], 0
        piece.append(i)
        count += one.numel()
    if piece:
        yield piece


def check_shares(job_batch: int, window: int, size: int) -> None:
    """Whether a node of so many processes can train the job.

    Raises:
        InvalidArgumentError: It cannot.
    """
    if window > 1:
        raise InvalidArgumentError(f"wire.window: found {window} with a node group; allowed is 1")
    if job_batch % size != 0:
        raise InvalidArgumentError(
            f"training.batch_size: found {job_batch}; allowed is a multiple of {size}, the processes of the node group"
        )


def _is_error(reason: str) -> bool:
    return reason.startswith(_FAILED)


def _processes(ranks: Iterable[int]) -> str:
    names = [str(rank) for rank in ranks]
    return f"process {names[0]}" if len(names) == 1 else f"processes {', '.join(names)}"


def _late(who: str, what: str) -> DeadlineExceededError:
    return DeadlineExceededError(f"waited {MEETING_S:g} s for {who} to {what}")


def _gloo(store: Any, rank: int, size: int) -> Any:
    """A group for tensors of the host, which listens where only this machine can call."""
    options = _made.ProcessGroupGloo._Options()
    options._devices = [_made.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = timedelta(seconds=MEETING_S)
    return _made.ProcessGroupGloo(store, rank, size, options)
