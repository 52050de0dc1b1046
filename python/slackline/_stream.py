"""Data of unknown length: parts, such as files, that workers read from beginning to end."""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Generator, Generic, Iterable, Iterator, NamedTuple, Sequence, TypeVar

import torch
import torch.utils.data
from torch.utils.data._utils import worker as loader_process

from ._errors import FailedPreconditionError

if TYPE_CHECKING:
    from ._worker import Worker

Record = TypeVar("Record")

# Most parts that the scheduler takes.
PARTS_MAX = 1_000_000
# Most processes of a DataLoader: each reads a part of its own.
READERS_MAX = 128


class Lease(NamedTuple):
    """A part that this worker reads."""

    number: int
    part: int
    pass_: int
    records: int  # position to read from


class _Read(NamedTuple):
    """A record with its place, on its way through DataLoader."""

    lease: int
    position: int
    value: Any


class _Collated(NamedTuple):
    """A batch with the place of its records, from `position` on."""

    lease: int
    position: int
    records: int
    batch: Any


class _Collate:
    """A loader's collate_fn, which keeps the places of the records."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, read: Any) -> _Collated:
        if isinstance(read, _Read):  # batch_size=None
            return _Collated(read.lease, read.position, 1, self.collate(read.value))
        first = read[0]
        return _Collated(first.lease, first.position, len(read), self.collate([one.value for one in read]))


class Stream(torch.utils.data.IterableDataset[Record], Generic[Record]):
    """Data set of a DataLoader, made by Worker.stream(). Worker.batches() iterates over the loader.

    Each process of the DataLoader reads one part at a time.
    """

    def __init__(
        self, parts: Sequence[Any], read: Callable[..., Iterable[Record]], samples: int, passes: int | None, seeks: bool
    ) -> None:
        super().__init__()
        if not hasattr(parts, "__len__") or not hasattr(parts, "__getitem__"):
            raise TypeError(
                f"found parts of type {type(parts).__name__}; allowed is a list of file names, or another sequence"
            )
        if not 1 <= len(parts) <= PARTS_MAX:
            raise ValueError(f"found a stream of {len(parts)} parts; allowed are 1 to {PARTS_MAX}")
        if samples < 1:
            raise ValueError(f"found {samples} samples in an epoch; allowed is 1 and more: an estimate will do")
        if passes is not None and not 1 <= passes < 2**32:
            raise ValueError(f"found passes={passes}; allowed is 1 and more, or None to read until the epochs are over")
        self._parts = parts
        self._read = read
        self._seeks = seeks
        self.samples = samples
        # Leases of the pass over the loader that begins: one for each of its processes.
        self._leases: Sequence[Lease] | None = None

    def fingerprint(self) -> int:
        """64 bits that are alike for equal lists of parts, in all processes. An object without a text of its own counts alone."""
        digest = hashlib.blake2b(digest_size=8)
        for part in self._parts:
            text = repr(part)
            digest.update((b"?" if " at 0x" in text else text.encode(errors="backslashreplace")) + b"\0")
        return int.from_bytes(digest.digest(), "little")

    def __iter__(self) -> Iterator[Any]:
        if self._leases is None:
            raise FailedPreconditionError(
                "a loader over worker.stream() has no parts to read by itself: loop over worker.batches(loader)"
            )
        process = torch.utils.data.get_worker_info()
        index = 0 if process is None else process.id
        if index < len(self._leases):
            if process is not None:
                # A data set inside, such as one of Hugging Face, would leave most of the part to the other processes.
                loader_process._worker_info = None
            lease = self._leases[index]
            for position, value in enumerate(self._records(lease), lease.records):
                yield _Read(lease.number, position, value)

    def _records(self, lease: Lease) -> Iterable[Record]:
        part = self._parts[lease.part]
        if self._seeks:
            return self._read(part, lease.records)
        return itertools.islice(self._read(part), lease.records, None)


def loop_over(loader: torch.utils.data.DataLoader[Record], worker: Worker, stream: Stream[Any] | None) -> Iterator[Record]:
    """Worker.batches() over a loader whose data have no length."""
    if loader.dataset is not stream or stream is None:
        raise TypeError(
            f"found a loader over a {type(loader.dataset).__name__}, whose records the scheduler cannot share out; allowed is "
            "worker.stream(parts, read, samples=...), where read(part) gives the records of one part, such as a file"
        )
    if loader.num_workers > READERS_MAX:
        raise ValueError(f"found num_workers={loader.num_workers}; allowed for a stream is at most {READERS_MAX}")
    for name, reason in (
        ("drop_last", "the last records of each part would never be trained"),
        ("persistent_workers", "a process that goes on would not learn which part comes next"),
    ):
        if getattr(loader, name):
            raise ValueError(f"found {name}=True; allowed for a stream is False: {reason}")
    if not isinstance(loader.collate_fn, _Collate):
        loader.collate_fn = _Collate(loader.collate_fn)
    return iter(Loop(worker, stream, loader))


class Places:
    """Knows which records the script has, and up to where each part of this worker is trained.

    The positions go with each step to the servers, and so outlive this process.
    """

    def __init__(self) -> None:
        # Batches that were in no step yet: lease, position, number of records.
        self._given: deque[tuple[int, int, int]] = deque()
        self._trained: dict[int, int] = {}  # of the leases that this worker holds
        self._ends: dict[int, int] = {}  # of those that were read to their end

    def give(self, batch: _Collated) -> None:
        self._given.append((batch.lease, batch.position, batch.records))

    def take(self, count: int) -> list[tuple[int, int]]:
        """Counts the next `count` records as trained. Returns leases with their positions."""
        while count > 0 and self._given:
            lease, position, records = self._given.popleft()
            taken = min(count, records)
            count -= taken
            if lease in self._trained:
                self._trained[lease] = position + taken
            if taken < records:
                self._given.appendleft((lease, position + taken, records - taken))
        return list(self._trained.items())

    def end(self, lease: int, records: int) -> None:
        self._ends[lease] = records

    def lease(self, worker: Worker, count: int) -> list[Lease]:
        """Gives back parts whose every record is trained, and leases up to `count` new ones."""
        while True:
            ended = [(lease, end) for lease, end in self._ends.items() if self._trained[lease] == end]
            for lease, _ in ended:
                del self._ends[lease], self._trained[lease]
            held = [Lease(*one) for one in worker._job.lease_parts(count + len(self._trained), ended)]
            new = [one for one in held if one.number not in self._trained]
            self._trained.update((one.number, one.records) for one in new)
            if new or not self._given:
                return new
            if worker._optimizer is not None and worker._optimizer._finish_round():
                continue
            # The last records of all are fewer than a step takes.
            self.take(sum(records for _, _, records in self._given))


class Loop(Generic[Record]):
    """The loop of Worker.batches() over a stream."""

    def __init__(self, worker: Worker, stream: Stream[Any], loader: torch.utils.data.DataLoader[Record]) -> None:
        self._worker = worker
        self._stream = stream
        self._loader = loader
        self._life = 0  # of the worker, of which the leases are

    def __iter__(self) -> Iterator[Record]:
        worker = self._worker
        empty = 0  # parts without a record, since the last record
        while self._has_work():
            leases = worker._places.lease(worker, max(1, self._loader.num_workers))
            if not leases:
                # No part is free. Others may give back theirs.
                self._give_up_range()
                continue
            read = yield from self._pass(leases)
            empty = 0 if read else empty + sum(lease.records == 0 for lease in leases)
            if empty >= len(self._stream._parts):
                raise FailedPreconditionError(f"found {empty} parts of the stream without a record, and none with one")

    def _joined_again(self) -> bool:
        """The worker was expelled and has joined again: its leases went to others."""
        return self._worker._job.view()[1] != self._life

    def _give_up_range(self) -> None:
        """Leaves out the rest of the range: there is no record for it. After joining again, it is not this worker's."""
        worker = self._worker
        if self._joined_again():
            worker._samples, worker._stepped = (), 0
        elif not worker.done and worker._stepped < len(worker._samples):
            worker._job.skip(len(worker._samples) - worker._stepped)
            worker._stepped = len(worker._samples)

    def _has_work(self) -> bool:
        """Has a range, which says how many records are to be trained; False once the job is over."""
        worker = self._worker
        if worker.done:
            return False
        while worker._stepped >= len(worker._samples):
            # The last step may have had more records than were left: they count for the next range.
            over = worker._stepped - len(worker._samples)
            if not worker._next_range():
                return False
            if over > 0 and not self._joined_again():
                worker._job.skip(over)
                worker._stepped = over
        if self._joined_again():
            worker._places = Places()
            self._life = worker._job.view()[1]
        return True

    def _pass(self, leases: Sequence[Lease]) -> Generator[Record, None, int]:
        """Reads these parts to their ends. Returns the number of records."""
        worker, places = self._worker, self._worker._places
        ends = {lease.number: lease.records for lease in leases}
        read = 0
        self._stream._leases = leases
        try:
            iterator = iter(self._loader)
            while (batch := self._next(iterator, skips=read == 0 and any(lease.records for lease in leases))) is not None:
                read += batch.records
                ends[batch.lease] = batch.position + batch.records
                places.give(batch)
                worker._drawn += batch.records
                taken = worker._taken
                yield batch.batch
                if worker.done or self._joined_again():
                    return read
                # No gradient is under way between two steps.
                if worker._taken > taken and worker._stepped >= len(worker._samples) and not self._has_work():
                    return read
                if worker._places is not places:
                    return read
            for lease, end in ends.items():
                places.end(lease, end)
            return read
        finally:
            self._stream._leases = None

    def _next(self, iterator: Iterator[Any], skips: bool) -> _Collated | None:
        """Returns the next batch; None at the end. To skip the records before a position may take long, and is no stall."""
        busy = skips and not self._stream._seeks
        if busy:
            self._worker._job.set_busy_elsewhere(True)
        try:
            batch = next(iterator, None)
        finally:
            if busy:
                self._worker._job.set_busy_elsewhere(False)
        if batch is None or isinstance(batch, _Collated):
            return batch
        raise TypeError(f"found a batch of type {type(batch).__name__}; a loader over worker.stream() must be a plain DataLoader")
