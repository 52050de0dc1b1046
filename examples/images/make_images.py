#!/usr/bin/env python3
"""Real photographs from two Python packages, as folders that `slackline prepare` reads (docs/images.md).

    pip install --no-deps scikit-image elpv-dataset      # their files are all that is needed; and Pillow
    make_images.py textures OUT     patches of 64 x 64 pixels of scikit-image's brick, grass and gravel:
                                    OUT/fold-N/{train,test}/TEXTURE/*.png, N from 1 to 5
    make_images.py cells OUT        the solar cells of ELPV (Buerhop-Lux et al. 2018): OUT/cells.csv beside the 2,624 images
"""

import argparse
import csv
import importlib.util
import pathlib
import sys

from PIL import Image

TEXTURES = ("brick", "grass", "gravel")
SIDE = 64
STEP = 12
FOLDS = 5
# A cell counts as defective from this probability on, as experts gave it: 0, 1/3, 2/3 or 1.
DEFECTIVE = 0.5


def package_folder(name: str, to_install: str) -> pathlib.Path:
    """Where a package's files lie; it is not imported, so that what it needs need not be there."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        sys.exit(f"found no Python package {name}: pip install --no-deps {to_install}")
    return pathlib.Path(spec.origin).parent


def make_textures(out: pathlib.Path) -> int:
    """Each fold's test patches come from a vertical strip of each photograph from which no training patch has a pixel.

    Patches of one strip overlap (every 12 pixels in both directions): they are alike, but never on both sides.
    """
    images = 0
    for texture in TEXTURES:
        with Image.open(package_folder("skimage", "scikit-image") / "data" / f"{texture}.png") as photograph:
            grey = photograph.convert("L")
        width = grey.width // FOLDS
        for strip in range(FOLDS):
            places = [(x, y) for x in range(strip * width, (strip + 1) * width - SIDE + 1, STEP)
                      for y in range(0, grey.height - SIDE + 1, STEP)]
            for x, y in places:
                patch = grey.crop((x, y, x + SIDE, y + SIDE))
                for fold in range(FOLDS):
                    split = "test" if fold == strip else "train"
                    folder = out / f"fold-{fold + 1}" / split / texture
                    folder.mkdir(parents=True, exist_ok=True)
                    patch.save(folder / f"{x:03}-{y:03}.png")
            images += len(places)
    return images


def make_cells(out: pathlib.Path) -> int:
    data = package_folder("elpv_dataset", "elpv-dataset") / "data"
    out.mkdir(parents=True, exist_ok=True)
    rows = [line.split() for line in (data / "labels.csv").read_text().splitlines()]
    (out / "images").mkdir(exist_ok=True)
    with (out / "cells.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("path", "label"))
        for path, probability, _ in rows:
            (out / path).write_bytes((data / path).read_bytes())
            table.writerow((path, "defective" if float(probability) >= DEFECTIVE else "functional"))
    return len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("textures", "cells"))
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    if options.out.exists() and any(options.out.iterdir()):
        sys.exit(f"{options.out} is not empty; name another folder")
    images = (make_textures if options.what == "textures" else make_cells)(options.out)
    print(f"{options.out}: {images} images")


if __name__ == "__main__":
    main()
