"""Twenty real photographs with masks, in COCO's format: crops of seven photographs that scikit-image's wheel brings.

    photographs.py FOLDER

Writes FOLDER/images and FOLDER/annotations.json. The outlines below were drawn by hand on the photographs, and are exact to some pixels.
Needs pycocotools, Pillow and NumPy, and the files of scikit-image, which is not imported.
"""

import importlib.util
import json
import pathlib
import sys

import numpy
from PIL import Image, ImageDraw
from pycocotools import mask

SIDE = 128
# An object of which a crop shows less is not annotated.
SHARE_MIN = 0.4
CATEGORIES = ("person", "cat", "cup", "coin", "rocket", "motorcycle")

# Outlines in pixels of the photograph: x, y, x, y, ...
ASTRONAUT = (190, 20, 230, 15, 270, 25, 295, 60, 302, 90, 290, 125, 270, 140, 258, 170, 262, 185, 290, 200, 304, 240, 335, 250, 350, 290,
             363, 345, 335, 355, 310, 380, 290, 420, 275, 480, 280, 512, 45, 512, 25, 430, 40, 330, 50, 270, 75, 245, 115, 215, 118, 180,
             140, 155, 185, 150, 178, 130, 160, 115, 155, 80, 165, 50)  # fmt: skip
CAMERAMAN = (165, 105, 175, 85, 200, 65, 225, 67, 255, 92, 270, 118, 262, 135, 252, 140, 255, 172, 243, 195, 240, 205, 262, 230, 290, 200,
             295, 180, 322, 168, 330, 190, 312, 225, 285, 242, 300, 260, 300, 275, 250, 312, 205, 295, 160, 350, 143, 385, 150, 440,
             150, 512, 0, 512, 0, 250, 30, 215, 50, 170, 90, 130, 130, 120, 150, 107)  # fmt: skip
CAT = (35, 0, 395, 0, 370, 45, 352, 80, 362, 120, 352, 155, 335, 190, 318, 230, 290, 275, 250, 282, 215, 280, 200, 300, 0, 300, 0, 170,
       20, 160, 35, 110, 42, 60)  # fmt: skip
CUP = (175, 95, 185, 65, 210, 38, 245, 22, 285, 18, 330, 22, 370, 42, 398, 70, 408, 105, 400, 140, 385, 185, 375, 215, 350, 240, 340, 258,
       315, 280, 270, 285, 255, 275, 235, 305, 200, 305, 198, 285, 215, 240, 190, 200, 178, 150)  # fmt: skip
ROCKET = (321, 127, 330, 140, 333, 178, 336, 230, 335, 405, 309, 405, 309, 230, 308, 178, 312, 140)
MOTORCYCLE = (85, 205, 130, 195, 145, 150, 170, 160, 210, 165, 250, 175, 300, 195, 350, 190, 400, 165, 440, 155, 470, 150, 480, 110, 495,
              80, 520, 75, 560, 110, 580, 130, 565, 180, 560, 210, 575, 260, 620, 275, 645, 310, 670, 340, 685, 380, 675, 430, 655, 450,
              620, 440, 570, 400, 530, 350, 505, 330, 510, 300, 490, 300, 470, 330, 440, 370, 390, 380, 345, 370, 345, 400, 350, 430, 330,
              435, 325, 370, 280, 350, 270, 370, 240, 395, 200, 398, 150, 375, 120, 310, 135, 270, 160, 250, 115, 245, 90, 225)  # fmt: skip
# Centres and radii: x, y, r.
COINS = ((335, 44, 29), (155, 51, 23), (215, 51, 23), (276, 52, 20), (44, 54, 21), (100, 56, 19), (271, 119, 25), (45, 124, 21),
         (205, 124, 20), (336, 125, 20), (102, 126, 19), (154, 127, 19), (347, 187, 32), (212, 193, 24), (274, 194, 22), (102, 196, 22),
         (44, 197, 19), (154, 198, 19), (46, 260, 28), (172, 261, 28), (301, 263, 25), (244, 263, 24), (114, 266, 21), (358, 268, 22))  # fmt: skip

# Each photograph with its objects, and its crops: left, top and side.
PHOTOGRAPHS = (
    ("astronaut.png", [("person", ASTRONAUT)], [(0, 0, 512), (60, 0, 340)]),
    ("camera.png", [("person", CAMERAMAN)], [(0, 0, 512), (20, 40, 340)]),
    ("chelsea.png", [("cat", CAT)], [(0, 0, 300), (100, 0, 300), (151, 0, 300)]),
    ("coffee.png", [("cup", CUP)], [(0, 0, 400), (100, 0, 400), (140, 0, 320)]),
    ("rocket.jpg", [("rocket", ROCKET)], [(180, 80, 340), (230, 100, 240)]),
    ("motorcycle_left.png", [("motorcycle", MOTORCYCLE)], [(70, 0, 500), (241, 0, 500)]),
    ("coins.png", [("coin", coin) for coin in COINS], [(x, y, 150) for y in (10, 153) for x in (0, 117, 234)]),
)


def painted(size, outline):
    """True inside of an outline, or of a circle."""
    canvas = Image.new("1", size)
    if len(outline) == 3:
        x, y, radius = outline
        ImageDraw.Draw(canvas).ellipse((x - radius, y - radius, x + radius, y + radius), fill=1)
    else:
        ImageDraw.Draw(canvas).polygon(outline, fill=1)
    return canvas


def write(folder):
    """Returns the number of pictures and of objects."""
    files = pathlib.Path(importlib.util.find_spec("skimage").submodule_search_locations[0]) / "data"
    images, annotations = [], []
    (folder / "images").mkdir(parents=True)
    for name, objects, crops in PHOTOGRAPHS:
        photograph = Image.open(files / name).convert("RGB")
        for left, top, side in crops:
            box = (left, top, left + side, top + side)
            number = len(images) + 1
            file_name = f"{number:02d}-{name.split('.')[0]}.png"
            photograph.crop(box).resize((SIDE, SIDE), Image.Resampling.LANCZOS).save(folder / "images" / file_name)
            images.append({"id": number, "file_name": file_name, "width": SIDE, "height": SIDE})
            for category, outline in objects:
                whole = painted(photograph.size, outline)
                part = whole.crop(box)
                if numpy.asarray(part).sum() < SHARE_MIN * numpy.asarray(whole).sum():
                    continue
                small = numpy.asarray(part.resize((SIDE, SIDE), Image.Resampling.NEAREST))
                runs = mask.encode(numpy.asfortranarray(small, dtype=numpy.uint8))
                annotations.append({"id": len(annotations) + 1, "image_id": number, "iscrowd": 0, "area": float(mask.area(runs)),
                                    "category_id": CATEGORIES.index(category) + 1, "bbox": mask.toBbox(runs).tolist(),
                                    "segmentation": {"size": runs["size"], "counts": runs["counts"].decode()}})
    categories = [{"id": number, "name": name} for number, name in enumerate(CATEGORIES, start=1)]
    (folder / "annotations.json").write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return len(images), len(annotations)


if __name__ == "__main__":
    print("{} photographs with {} objects".format(*write(pathlib.Path(sys.argv[1]))))
