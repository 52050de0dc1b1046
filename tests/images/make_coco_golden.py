"""Writes coco_golden.json: what pycocotools makes of masks and of things that were found.

    make_coco_golden.py          needs pycocotools; last run with 2.0.11
"""
import contextlib
import io
import json
import pathlib

import numpy
from pycocotools import mask as masks
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

SIDE = 40
DRAW = numpy.random.default_rng(5)


def a_mask():
    height, width = (int(side) for side in DRAW.integers(5, 24, 2))
    # Some of it lies outside.
    polygon = [round(float(value), 2) for point in range(int(DRAW.integers(3, 8)))
               for value in (DRAW.uniform(-2, width + 2), DRAW.uniform(-2, height + 2))]
    run = masks.frPyObjects([polygon], height, width)[0]
    pixels = masks.decode(run)
    return {"height": height, "width": width, "polygon": polygon, "text": run["counts"].decode(),
            "pixels": "".join(str(pixel) for pixel in pixels.reshape(-1))}


def a_box():
    left, top = DRAW.integers(0, SIDE - 8, 2)
    width, height = DRAW.integers(4, SIDE - max(left, top), 2)
    return [int(left), int(top), int(width), int(height)]


def near(box):
    return [int(max(value + DRAW.integers(-2, 3), 1 if i > 1 else 0)) for i, value in enumerate(box)]


def found_things():
    truth, found = [], []
    for image in range(12):
        for _ in range(int(DRAW.integers(0, 7))):
            box, label, crowd = a_box(), int(DRAW.integers(1, 4)), int(DRAW.random() < 0.15)
            truth.append({"image_id": image, "category_id": label, "bbox": box, "iscrowd": crowd, "area": box[2] * box[3],
                          "id": len(truth) + 1})
            for _ in range(int(DRAW.integers(0, 4))):
                found.append({"image_id": image, "category_id": label if DRAW.random() < 0.9 else int(DRAW.integers(1, 4)),
                              "bbox": near(box), "score": round(float(DRAW.random()), 2)})
        for _ in range(int(DRAW.integers(0, 3))):
            found.append({"image_id": image, "category_id": int(DRAW.integers(1, 4)), "bbox": a_box(),
                          "score": round(float(DRAW.random()), 2)})
    coco = COCO()
    coco.dataset = {"images": [{"id": i, "width": SIDE, "height": SIDE} for i in range(12)], "annotations": truth,
                    "categories": [{"id": i, "name": str(i)} for i in range(1, 4)]}
    coco.createIndex()
    evaluation = COCOeval(coco, coco.loadRes([dict(one) for one in found]), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    # Overlaps, recalls, classes, sizes, most of an image.
    precision = evaluation.eval["precision"][:, :, :, 0, -1]
    return {"truth": truth, "found": found, "map": evaluation.stats[0], "map_50": evaluation.stats[1],
            "ap": [float(precision[:, :, i].mean()) for i in range(3)]}


def main():
    with contextlib.redirect_stdout(io.StringIO()):
        golden = {"masks": [a_mask() for _ in range(24)], "evaluation": found_things()}
    lines = ",\n".join(json.dumps(one) for one in golden["masks"])
    evaluation = golden["evaluation"]
    whole = "{\"masks\": [\n" + lines + "],\n\"evaluation\": {\n" + ",\n".join(
        f"\"{key}\": " + ("[\n" + ",\n".join(json.dumps(one) for one in value) + "]" if isinstance(value, list)
                          else json.dumps(value)) for key, value in evaluation.items()) + "}}\n"
    (pathlib.Path(__file__).parent / "coco_golden.json").write_text(whole)


if __name__ == "__main__":
    main()
