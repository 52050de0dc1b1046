"""Copies the test images and the first 10,000 training images of a folder of IDX files: cut_images.py FROM TO"""

import gzip
import pathlib
import shutil
import sys

COUNT = 10_000


def cut(source: pathlib.Path, target: pathlib.Path, header: int, item_bytes: int) -> None:
    with gzip.open(source) as file:
        head, items = file.read(header), file.read(COUNT * item_bytes)
    with gzip.open(target, "wb") as file:
        file.write(head[:4] + COUNT.to_bytes(4, "big") + head[8:] + items)


def main(source: pathlib.Path, target: pathlib.Path) -> None:
    cut(source / "train-images-idx3-ubyte.gz", target / "train-images-idx3-ubyte.gz", 16, 784)
    cut(source / "train-labels-idx1-ubyte.gz", target / "train-labels-idx1-ubyte.gz", 8, 1)
    for name in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        shutil.copy(source / name, target / name)


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
