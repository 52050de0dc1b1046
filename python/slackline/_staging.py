"""Copies between a model's tensors, where they are not in the host's memory, and the flat vectors that are exchanged.

A device has a lane. That of CUDA copies gradients on a stream of its own, beside backward, and weights on the one that
the script computes on, so that the next forward comes after them; memory is pinned. All others copy while they are waited
for, which is right anywhere, and overlaps with nothing.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from typing import Any, Callable, Iterable, Sequence

import torch

# Of a copy: where to, and from where.
Pair = tuple[torch.Tensor, torch.Tensor]


def is_staged(tensor: torch.Tensor) -> bool:
    """Whether it is exchanged by a copy, in float32 and on the host; else it, or its gradient, is a view of what is exchanged."""
    return tensor.device.type != "cpu" or tensor.dtype != torch.float32


class Lane:
    """Copies of one device, which are over when the calls return."""

    def out(self, pairs: Sequence[Pair]) -> Callable[[bool], bool]:
        """To the host. What it returns says whether they are over; given True, it waits until they are."""
        for target, source in pairs:
            target.copy_(source)
        return lambda wait: True

    def back(self, pairs: Sequence[Pair]) -> Callable[[bool], bool]:
        """From the host, before whatever the device is told next."""
        for target, source in pairs:
            target.copy_(source)
        return lambda wait: True

    def empty(self, elements: int) -> torch.Tensor:
        """Memory of the host that it copies from well."""
        return torch.empty(elements, dtype=torch.float32)

    def pin(self, memory: torch.Tensor) -> bool:
        """Makes memory of the host one that it copies to well, until unpin(); False where there is nothing to undo."""
        return False

    def unpin(self, memory: torch.Tensor) -> None:
        """Before the memory goes."""


class CudaLane(Lane):
    """`cuda` is torch.cuda, or what a test has in its place."""

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._cuda = cuda
        self._side = cuda.Stream(device=device)

    def out(self, pairs: Sequence[Pair]) -> Callable[[bool], bool]:
        # Not before what makes them: backward runs on the stream that is current now.
        self._side.wait_stream(self._cuda.current_stream(self._device))
        with self._cuda.stream(self._side):
            for target, source in pairs:
                self._copy(target, source)
        return self._mark(self._side)

    def back(self, pairs: Sequence[Pair]) -> Callable[[bool], bool]:
        stream = self._cuda.current_stream(self._device)
        with self._cuda.stream(stream):
            for target, source in pairs:
                self._copy(target, source)
        return self._mark(stream)

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def _mark(self, stream: Any) -> Callable[[bool], bool]:
        event = self._cuda.Event()
        event.record(stream)

        def over(wait: bool) -> bool:
            if wait:
                event.synchronize()
            return wait or bool(event.query())

        return over

    def empty(self, elements: int) -> torch.Tensor:
        return torch.empty(elements, dtype=torch.float32, pin_memory=True)

    def pin(self, memory: torch.Tensor) -> bool:
        # 1: portable, for all devices. It lies in shared memory, which no allocator of torch's gives.
        said = self._cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.numel() * memory.element_size(), 1)
        if int(said) == 0:
            return True
        # CUDA says it again to whoever asks next, which would be torch, behind some kernel of the script's.
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device=self._device)
        warnings.warn(f"gradients are copied to memory that is not pinned: cudaHostRegister says {said}", stacklevel=2)
        return False

    def unpin(self, memory: torch.Tensor) -> None:
        self._cuda.cudart().cudaHostUnregister(memory.data_ptr())


def make_lane(device: torch.device) -> Lane:
    return CudaLane(device) if device.type == "cuda" else Lane()


class Copies:
    """The copies of all devices of a model. Not for several threads.

    Sources of copies that are under way are kept.
    """

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self._lanes = {device: make_lane(device) for device in devices}
        self._under_way: list[tuple[Callable[[bool], bool], Sequence[Pair]]] = []
        self._pinned: list[tuple[Lane, torch.Tensor]] = []
        # They keep the memory until then.
        weakref.finalize(self, _unpin_all, self._pinned)

    def out(self, pairs: Sequence[Pair]) -> Callable[[bool], bool]:
        """To the host: (target there, source). As Lane.out()."""
        marks = [self._begin(own, lane.out) for lane, own in self._by_lane(pairs, 1)]
        return lambda wait: all([mark(wait) for mark in marks])

    def back(self, pairs: Sequence[Pair]) -> None:
        """From the host: (target, source there)."""
        for lane, own in self._by_lane(pairs, 0):
            self._begin(own, lane.back)

    def settle(self) -> None:
        """Waits for all: what was copied to the host is there, and what was copied from there may be written to."""
        for over, _ in self._under_way:
            over(True)
        self._under_way.clear()

    def empty(self, elements: int) -> torch.Tensor:
        """Memory of the host to copy from."""
        lanes = list(self._lanes.values())
        return lanes[0].empty(elements) if lanes else torch.empty(elements, dtype=torch.float32)

    def pin(self, memory: torch.Tensor) -> None:
        """Memory of the host to copy to; it stays as long as this object."""
        for lane in self._lanes.values():
            if lane.pin(memory):
                self._pinned.append((lane, memory))
                return  # one is enough for all

    def _by_lane(self, pairs: Sequence[Pair], side: int) -> Iterable[tuple[Lane, Sequence[Pair]]]:
        for device, lane in self._lanes.items():
            own = [pair for pair in pairs if pair[side].device == device]
            if own:
                yield lane, own

    def _begin(
        self, pairs: Sequence[Pair], copy: Callable[[Sequence[Pair]], Callable[[bool], bool]]
    ) -> Callable[[bool], bool]:
        over = copy(pairs)
        self._under_way.append((over, pairs))
        return over


def _unpin_all(pinned: list[tuple[Lane, torch.Tensor]]) -> None:
    for lane, memory in pinned:
        lane.unpin(memory)
    pinned.clear()
