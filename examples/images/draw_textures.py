#!/usr/bin/env python3
"""usage: draw_textures.py OUT [COUNT]

Draws three textures under noise, COUNT (200) pictures of 40 x 40 pixels each: OUT/{checks,rows,stripes}/*.png. Needs numpy and Pillow, no
download. The tutorial docs/start/your-images.md trains on them.
"""

import pathlib
import sys

import numpy
from PIL import Image

SIDE = 40
# Waves down and across the picture, in radians for each pixel.
TEXTURES = {"stripes": (0, 0.8), "rows": (0.8, 0), "checks": (0.6, 0.6)}


def draw(random, down, across):
    y, x = numpy.mgrid[0:SIDE, 0:SIDE]
    wave = 60 * numpy.sin(down * y + random.uniform(0, 6)) + 60 * numpy.sin(across * x + random.uniform(0, 6))
    return (128 + wave + random.normal(0, 10, (SIDE, SIDE))).clip(0, 255).astype(numpy.uint8)


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    count = int(sys.argv[2]) if len(sys.argv) == 3 else 200
    random = numpy.random.default_rng(1)
    for name, (down, across) in TEXTURES.items():
        folder = pathlib.Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            Image.fromarray(draw(random, down, across)).save(folder / f"{number:03}.png")
    print(f"{len(TEXTURES) * count} pictures in {sys.argv[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
