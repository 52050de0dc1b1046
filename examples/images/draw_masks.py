#!/usr/bin/env python3
"""usage: draw_masks.py OUT [COUNT]

Draws COUNT (9000) white masks of fish on black, grey pictures of 197 x 148 pixels in five classes: OUT/CLASS/*.png. Needs numpy and Pillow, no
download. They stand in for a data set that is not public (docs/how-to/like-cantabria.md): an accuracy on them says nothing about real fish.
"""

import pathlib
import sys

import numpy
from PIL import Image, ImageDraw

WIDTH, HEIGHT = 197, 148
# Length and height of the body, length and height of the tail, and height of the back fin, as shares of the picture's width.
SPECIES = {"bream": (0.50, 0.27, 0.14, 0.24, 0.05), "hake": (0.66, 0.13, 0.10, 0.13, 0.03), "mackerel": (0.60, 0.15, 0.13, 0.20, 0.02),
           "sole": (0.56, 0.25, 0.07, 0.12, 0.00), "wrasse": (0.50, 0.20, 0.10, 0.16, 0.07)}
# Fish of one class differ by this share of each length.
SPREAD = 0.10


def draw(random, lengths):
    """One fish, turned a little, with a ragged outline."""
    body, height, tail, tail_height, fin = WIDTH * numpy.array(lengths) * random.normal(1, SPREAD, 5)
    angles = numpy.linspace(0, 2 * numpy.pi, 60, endpoint=False)
    outline = numpy.stack([body / 2 * numpy.cos(angles), height / 2 * numpy.sin(angles)], axis=1)
    outline += random.normal(0, 0.8, outline.shape)
    parts = [outline, numpy.array([(-0.45 * body, 0), (-body / 2 - tail, -tail_height / 2), (-body / 2 - tail, tail_height / 2)]),
             numpy.array([(-0.2 * body, -0.4 * height), (0.2 * body, -0.4 * height), (-0.05 * body, -height / 2 - fin)])]
    turn = random.normal(0, 0.2)
    rotation = numpy.array([[numpy.cos(turn), numpy.sin(turn)], [-numpy.sin(turn), numpy.cos(turn)]])
    middle = numpy.array([WIDTH / 2, HEIGHT / 2]) + random.normal(0, 4, 2)
    mirror = numpy.array([random.choice([-1, 1]), 1])
    picture = Image.new("L", (WIDTH, HEIGHT))
    for part in parts:
        ImageDraw.Draw(picture).polygon([tuple(point) for point in part * mirror @ rotation + middle], fill=255)
    return picture


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    count = int(sys.argv[2]) if len(sys.argv) == 3 else 9000
    random = numpy.random.default_rng(1)
    names = list(SPECIES)
    for name in names:
        (pathlib.Path(sys.argv[1]) / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        name = names[number % len(names)]
        draw(random, SPECIES[name]).save(pathlib.Path(sys.argv[1]) / name / f"{number:05}.png")
    print(f"{count} pictures in {sys.argv[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
