"""Makes PNG pictures of 224 x 224 in 16 classes: FOLDER/CLASS/NUMBER.png. Each class has a colour."""

import argparse
import multiprocessing
import pathlib
import random
import struct
import zlib

CLASSES = 16
SIDE, BLOCK = 224, 16


def part_of(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(rows: bytes) -> bytes:
    """`rows` of RGB pixels, each after the byte of its filter."""
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    data = zlib.compress(rows, 1)
    return b"\x89PNG\r\n\x1a\n" + part_of(b"IHDR", head) + part_of(b"IDAT", data) + part_of(b"IEND", b"")


def draw(task: "tuple[pathlib.Path, int]") -> None:
    path, number = task
    own = random.Random(number)
    colour = [int(own.random() * 96 * (number % CLASSES) / CLASSES) for _ in range(3)]
    rows = b""
    for _ in range(SIDE // BLOCK):
        pixels = [bytes(own.randrange(160) + part for part in colour) * BLOCK for _ in range(SIDE // BLOCK)]
        rows += (b"\0" + b"".join(pixels)) * BLOCK
    path.write_bytes(png(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=8192)
    options = parser.parse_args()
    tasks = []
    for number in range(options.count):
        folder = options.folder / f"class-{number % CLASSES:02}"
        folder.mkdir(parents=True, exist_ok=True)
        tasks.append((folder / f"{number:06}.png", number))
    with multiprocessing.Pool() as pool:
        pool.map(draw, tasks, chunksize=64)


if __name__ == "__main__":
    main()
