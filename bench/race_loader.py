#!/usr/bin/env python3
"""Races the worker's loader with PyTorch's DataLoader on the same images, augmented alike: padding of 4, crop, flip.

PyTorch runs with --workers processes in two forms: `files` decodes the pictures with Pillow, as an image folder is
usually read; `memory` reads the prepared arrays through numpy's memory map, one image at a time. All run in turns, in
this one call; a round's ratio is the loader's samples/s over PyTorch's, and the medians count.

  .cache/venv/bin/python bench/race_loader.py --build build/release --rounds 3

Exit codes: 0 faster than both (--minimum), 1 not, 2 something is missing.
"""

import argparse
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import numpy
    import torch
    from PIL import Image
except ImportError as missing:
    print(f"needs numpy, Pillow and torch: {missing}", file=sys.stderr)
    sys.exit(2)

PADDING = 4


def make_pictures(folder, count, side):
    """Waves of three colours with some noise, as JPEG."""
    draw = numpy.random.default_rng(1)
    y, x = numpy.mgrid[0:side, 0:side]
    for i in range(count):
        path = folder / f"class-{i % 10}" / f"{i:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        waves = [127 + 80 * numpy.sin(x / draw.uniform(2, 9) + y / draw.uniform(2, 9)) for _ in range(3)]
        pixels = numpy.stack(waves, -1) + draw.normal(0, 12, (side, side, 3))
        Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(path, quality=90)


def augment(image):
    """Of a tensor channels x height x width, as torchvision's RandomCrop(padding) and RandomHorizontalFlip do it."""
    height, width = image.shape[1:]
    padded = torch.nn.functional.pad(image, (PADDING,) * 4)
    top, left = random.randint(0, 2 * PADDING), random.randint(0, 2 * PADDING)
    image = padded[:, top:top + height, left:left + width]
    return image.flip(2) if random.random() < 0.5 else image


class Normalised(torch.utils.data.Dataset):
    def __init__(self, mean, deviation):
        self.mean, self.deviation = (torch.tensor(values).view(-1, 1, 1) for values in (mean, deviation))

    def finish(self, pixels, label):
        return (augment(torch.from_numpy(pixels)).float().div_(255) - self.mean) / self.deviation, label


class Files(Normalised):
    def __init__(self, folder, size, mean, deviation):
        super().__init__(mean, deviation)
        self.paths, self.size = sorted(folder.glob("*/*.jpg")), size

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with Image.open(self.paths[i]) as image:
            pixels = numpy.asarray(image.convert("RGB").resize((self.size, self.size), Image.BILINEAR))
        return self.finish(numpy.ascontiguousarray(pixels.transpose(2, 0, 1)), int(self.paths[i].parent.name[-1]))


class Memory(Normalised):
    def __init__(self, folder, mean, deviation):
        super().__init__(mean, deviation)
        self.images = [numpy.load(path, mmap_mode="r") for path in sorted(folder.glob("train-*.images.npy"))]
        self.labels = numpy.concatenate([numpy.load(path) for path in sorted(folder.glob("train-*.labels.npy"))])
        self.rows = len(self.images[0])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.finish(numpy.array(self.images[i // self.rows][i % self.rows]), int(self.labels[i]))


def rate_of_torch(data, options):
    """Samples/s over whole epochs after the first batch: its processes are then there."""
    loader = torch.utils.data.DataLoader(data, batch_size=options.batch, shuffle=True, num_workers=options.workers,
                                         persistent_workers=True, prefetch_factor=4)
    samples, begin, end = 0, None, None
    while end is None or end - begin < options.seconds:
        for images, _ in loader:
            end = time.monotonic()
            if begin is None:
                begin = end
            else:
                samples += len(images)
            if end - begin >= options.seconds:
                break
    return samples / (end - begin)


def rate_of_slackline(prepared, options):
    output = subprocess.run([f"{options.build}/bin/loader_bench", str(prepared), "--batch", str(options.batch),
                             "--seconds", str(options.seconds), "--flip", "--crop-padding", str(PADDING)], check=True,
                            capture_output=True, text=True, timeout=600).stdout
    return float(re.search(r"samples_per_second=(\d+)", output).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--side", type=int, default=96, help="of the pictures")
    parser.add_argument("--size", type=int, default=64, help="of what is trained on")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2, help="processes of PyTorch")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minimum", type=float, default=1)
    options = parser.parse_args()
    if not pathlib.Path(options.build, "bin/loader_bench").exists():
        print(f"no {options.build}/bin/loader_bench: build the target loader_bench", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="slackline-loader-") as root:
        pictures, prepared = pathlib.Path(root, "pictures"), pathlib.Path(root, "prepared")
        make_pictures(pictures, options.images, options.side)
        begin = time.monotonic()
        subprocess.run([f"{options.build}/bin/slackline", "prepare", str(pictures), str(prepared), "--split", "train=1",
                        "--size", str(options.size), "--jobs", str(options.workers)], check=True, timeout=600)
        print(f"prepare: {options.images / (time.monotonic() - begin):.0f} images/s, once")
        mean, deviation = [0.5] * 3, [0.25] * 3
        opponents = {"files": Files(pictures, options.size, mean, deviation),
                     "memory": Memory(prepared, mean, deviation)}
        ratios = {name: [] for name in opponents}
        for number in range(options.rounds):
            ours = rate_of_slackline(prepared, options)
            line = f"round {number + 1}: slackline {ours:.0f}/s"
            for name, data in opponents.items():
                theirs = rate_of_torch(data, options)
                ratios[name].append(ours / theirs)
                line += f", torch {name} {theirs:.0f}/s"
            print(line, flush=True)
    medians = {name: statistics.median(values) for name, values in ratios.items()}
    print("samples/s over PyTorch's: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in medians.items()))
    return 0 if min(medians.values()) >= options.minimum else 1


if __name__ == "__main__":
    sys.exit(main())
