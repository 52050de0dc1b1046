"""Makes JPEG pictures of 224 x 224 in 16 classes: FOLDER/CLASS/NUMBER.jpg. Each class has a colour."""

import argparse
import multiprocessing
import pathlib

import numpy as np
from PIL import Image

CLASSES = 16


def draw(task: "tuple[pathlib.Path, int]") -> None:
    path, number = task
    random = np.random.default_rng(number)
    coarse = random.integers(0, 160, (14, 14, 3)) + random.integers(0, 96, 3) * (number % CLASSES) / CLASSES
    Image.fromarray(np.kron(coarse.astype(np.uint8), np.ones((16, 16, 1), np.uint8))).save(path, quality=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=8192)
    options = parser.parse_args()
    tasks = []
    for number in range(options.count):
        folder = options.folder / f"class-{number % CLASSES:02}"
        folder.mkdir(parents=True, exist_ok=True)
        tasks.append((folder / f"{number:06}.jpg", number))
    with multiprocessing.Pool() as pool:
        pool.map(draw, tasks, chunksize=64)


if __name__ == "__main__":
    main()
