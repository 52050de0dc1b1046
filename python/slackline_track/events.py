"""Reads the scalars of TensorBoard's event files, as a run appends to them.

    file   := record*
    record := length (8 bytes) crc (4) event (length) crc (4)      all little-endian; the checksums are not checked
    event  := protobuf: 1 wall_time (double), 2 step (int64), 5 summary; summary: 1 value*; value: 1 tag, 2 simple_value (float)
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Mapping, Optional, Union

# A longer record is no record: confusion matrices as images have less.
RECORD_BYTES_MAX = 1 << 26
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class EventError(Exception):
    """Names the file and what is wrong with it."""


@dataclass(frozen=True)
class Point:
    """The scalars of one report."""

    # Seconds since 1970; virtual in a simulation.
    wall_time: float
    # Pushes of all workers.
    step: int
    # Values by tag, for example train/loss.
    scalars: Mapping[str, float]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, Union[int, bytes]]]:
    """Number and value of each field; fixed ones as bytes. Raises ValueError and IndexError on damage."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == VARINT:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        if kind == BYTES:
            length, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"field of kind {kind}")
        if at + length > len(data):
            raise ValueError("field behind the end")
        yield key >> 3, data[at:at + length]
        at += length


def _scalars(summary: bytes) -> dict[str, float]:
    found = {}
    for number, value in _fields(summary):
        if number != 1 or not isinstance(value, bytes):
            continue
        parts = dict(_fields(value))
        tag, simple = parts.get(1), parts.get(2)
        if isinstance(tag, bytes) and isinstance(simple, bytes) and len(simple) == 4:
            found[tag.decode()] = float(struct.unpack("<f", simple)[0])
    return found


def _point(event: bytes) -> Point:
    parts = dict(_fields(event))
    time, step, summary = parts.get(1), parts.get(2, 0), parts.get(5, b"")
    if not (isinstance(time, bytes) and isinstance(step, int) and isinstance(summary, bytes)):
        raise ValueError("a field of another type")
    return Point(struct.unpack("<d", time)[0], step, _scalars(summary))


class EventReader:
    """Reads what the event files of a folder have got since the last call. A resumed run begins another file.

    Thread-safety: none.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        # Bytes that were read, by file.
        self._read: dict[Path, int] = {}

    def began_s(self) -> Optional[int]:
        """Seconds since 1970 in the name of the first file; None without one."""
        names = [path.name.split(".")[3] for path in self._folder.glob("events.out.tfevents.*")]
        return min((int(name) for name in names if name.isdecimal()), default=None)

    def read(self) -> list[Point]:
        """The new points. A file that begins at an earlier step takes the run back to it: the later points before are left out.

        Raises EventError for a damaged file, and OSError.
        """
        points: list[Point] = []
        for path in sorted(self._folder.glob("events.out.tfevents.*")):
            is_new = path not in self._read
            found = [point for point in self._new_points(path) if point.scalars]
            if found and is_new:
                points = [point for point in points if point.step < found[0].step]
            points += found
        return points

    def _new_points(self, path: Path) -> Iterator[Point]:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            data = file.read()
        at = 0
        # A record that is not whole yet is for the next call.
        while at + 12 <= len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            if length > RECORD_BYTES_MAX:
                raise EventError(f"{path}: found a record of {length} bytes; allowed are {RECORD_BYTES_MAX}: the file is damaged")
            if at + 16 + length > len(data):
                break
            try:
                yield _point(data[at + 12:at + 12 + length])
            except (ValueError, IndexError, struct.error) as error:
                raise EventError(f"{path}: found a record that is no event ({error}): the file is damaged") from error
            at += 16 + length
        self._read[path] = self._read.get(path, 0) + at
