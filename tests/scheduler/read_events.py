"""Reads what write_events wrote, as TensorBoard does.

By default checks the records and their checksums by the format. With --tensorboard, TensorBoard's own reader must find
the same points; where it is not installed, that is skipped (77).
"""

import argparse
import glob
import struct
import subprocess
import tempfile

EXPECTED = {"train/loss": [(10, 2.25), (20, 1.5)], "test/accuracy": [(10, 0.5), (20, 0.75)]}


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data = open(path, "rb").read()
    at = 0
    while at < len(data):
        header = data[at:at + 8]
        (length,) = struct.unpack("<Q", header)
        event = data[at + 12:at + 12 + length]
        assert struct.unpack_from("<I", data, at + 8) == (masked(header),), "checksum of a length"
        assert struct.unpack_from("<I", data, at + 12 + length) == (masked(event),), "checksum of an event"
        yield event
        at += length + 16


def fields(message):
    """Yields (field number, value) of a serialised protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            length = {1: 8, 5: 4}.get(kind) or varint()
            value = message[at:at + length]
            at += length
        yield key >> 3, value


def check_format(path):
    events = [list(fields(event)) for event in records(path)]
    assert (3, b"brain.Event:2") in events[0], events[0]
    found = {}
    for event in events[1:]:
        by_number = dict(event)
        for _, value in fields(by_number[5]):
            point = dict(fields(value))
            (number,) = struct.unpack("<f", point[2])
            found.setdefault(point[1].decode(), []).append((by_number[2], number))
    assert found == EXPECTED, found


def check_tensorboard(path):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        print(f"SKIP: TensorBoard's reader is not installed ({error}); ./test --all installs it")
        raise SystemExit(77)
    accumulator = EventAccumulator(path)
    accumulator.Reload()
    found = {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}
    assert found == EXPECTED, found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("writer", help="the program write_events")
    parser.add_argument("--tensorboard", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([arguments.writer, folder], check=True)
        (path,) = glob.glob(folder + "/events.out.tfevents.*")
        (check_tensorboard if arguments.tensorboard else check_format)(path)


if __name__ == "__main__":
    main()
