"""A module that finds objects and their masks, as small as it can be, and pictures for it: for tests.

It has the parts of a Mask R-CNN, and takes and returns what torchvision's does: a backbone, a head that says for each cell of
a grid which class and which box, and a head that draws a mask of what is inside a box. Of PyTorch alone, so that scripting it
needs nothing else.
"""
import json
import random
from typing import Dict, Final, List, Optional, Tuple

import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor, nn

CLASSES = 3  # background, squares, discs


def overlaps(boxes: Tensor, other: Tensor) -> Tensor:
    """Intersection over union, n x m."""
    corner = torch.max(boxes[:, None, :2], other[None, :, :2])
    sides = (torch.min(boxes[:, None, 2:], other[None, :, 2:]) - corner).clamp(min=0)
    both = sides[..., 0] * sides[..., 1]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    others = (other[:, 2] - other[:, 0]) * (other[:, 3] - other[:, 1])
    return both / (area[:, None] + others[None] - both).clamp(min=1e-6)


def best_of(boxes: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
    """Which boxes stay where those of a class that overlap a better one go."""
    order = torch.argsort(scores, descending=True)[:50]
    kept: List[int] = []
    for i in range(order.numel()):
        at = int(order[i])
        good = True
        for j in kept:
            if int(labels[j]) == int(labels[at]) and float(overlaps(boxes[at:at + 1], boxes[j:j + 1])) > 0.4:
                good = False
        if good:
            kept.append(at)
    return torch.tensor(kept[:20], dtype=torch.int64)


class TinyDetector(nn.Module):
    stride: Final[int] = 8
    scale: Final[float] = 16.0
    side: Final[int] = 14
    classes: Final[int] = CLASSES

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.ReLU(),
                                  nn.Conv2d(24, 32, 3, stride=2, padding=1), nn.ReLU(),
                                  nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
        self.cells = nn.Conv2d(32, CLASSES + 4, 1)
        self.mask = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))

    def predict(self, image: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        """Fine features, and for each cell the classes' logits, the box's logarithms, and the centre."""
        fine = self.stem(image[None] - 0.5)
        out = self.cells(self.body(fine))[0]
        y, x = torch.meshgrid(torch.arange(out.size(1)), torch.arange(out.size(2)), indexing="ij")
        centres = torch.stack([x, y], dim=-1).reshape(-1, 2) * float(self.stride) + self.stride / 2
        rows = out.permute(1, 2, 0).reshape(-1, self.classes + 4)
        return fine, rows[:, :self.classes], rows[:, self.classes:], centres

    def grid(self, boxes: Tensor, height: int, width: int) -> Tensor:
        """Where in an image of these sides the points of each box's mask are, as grid_sample has it."""
        steps = (torch.arange(self.side) + 0.5) / self.side
        x = boxes[:, 0, None] + steps * (boxes[:, 2] - boxes[:, 0])[:, None]
        y = boxes[:, 1, None] + steps * (boxes[:, 3] - boxes[:, 1])[:, None]
        x = (x / width * 2 - 1)[:, None, :].expand(-1, self.side, -1)
        y = (y / height * 2 - 1)[:, :, None].expand(-1, -1, self.side)
        return torch.stack([x, y], dim=-1)

    def masks(self, fine: Tensor, boxes: Tensor, image: Tensor) -> Tensor:
        """Logits, one a point of each box's mask."""
        grid = self.grid(boxes, image.size(1), image.size(2))
        return self.mask(F.grid_sample(fine.expand(boxes.size(0), -1, -1, -1), grid, align_corners=False))[:, 0]

    def losses(self, image: Tensor, target: Dict[str, Tensor]) -> Tuple[Tensor, Tensor, Tensor]:
        fine, logits, sides, centres = self.predict(image)
        boxes = target["boxes"]
        wanted = torch.zeros(logits.size(0), dtype=torch.int64)
        box_loss = sides.sum() * 0
        mask_loss = sides.sum() * 0
        if boxes.size(0) > 0:
            middle = (boxes[:, :2] + boxes[:, 2:]) / 2
            reach = ((boxes[:, 2:] - boxes[:, :2]) * 0.25).clamp(min=self.stride / 2)
            near = ((centres[:, None] - middle[None]).abs() <= reach[None]).all(-1)
            owner = near.to(torch.int64).argmax(1)
            inside = near.any(1)
            wanted = torch.where(inside, target["labels"][owner], wanted)
            own = boxes[owner[inside]]
            to_sides = torch.cat([centres[inside] - own[:, :2], own[:, 2:] - centres[inside]], dim=1)
            box_loss = F.smooth_l1_loss(sides[inside], (to_sides.clamp(min=1) / self.scale).log())
            grid = self.grid(boxes, image.size(1), image.size(2))
            truth = F.grid_sample(target["masks"][:, None].float(), grid, mode="nearest", align_corners=False)[:, 0]
            mask_loss = F.binary_cross_entropy_with_logits(self.masks(fine, boxes, image), truth)
        return F.cross_entropy(logits, wanted, weight=torch.tensor([1.0, 4.0, 4.0])), box_loss, mask_loss

    def detect(self, image: Tensor) -> Dict[str, Tensor]:
        fine, logits, sides, centres = self.predict(image)
        scores, labels = logits.softmax(1)[:, 1:].max(1)
        far = sides.exp() * self.scale
        boxes = torch.cat([centres - far[:, :2], centres + far[:, 2:]], dim=1)
        boxes = torch.stack([boxes[:, 0].clamp(0, image.size(2)), boxes[:, 1].clamp(0, image.size(1)),
                             boxes[:, 2].clamp(0, image.size(2)), boxes[:, 3].clamp(0, image.size(1))], dim=1)
        kept = best_of(boxes, scores, labels)
        boxes = boxes[kept]
        shapes = self.masks(fine, boxes, image).sigmoid()
        # What each pixel of the image is in the box's mask; outside of it nothing.
        x = (torch.arange(image.size(2)) + 0.5)[None] - boxes[:, 0, None]
        y = (torch.arange(image.size(1)) + 0.5)[None] - boxes[:, 1, None]
        x = x / (boxes[:, 2] - boxes[:, 0]).clamp(min=1)[:, None] * 2 - 1
        y = y / (boxes[:, 3] - boxes[:, 1]).clamp(min=1)[:, None] * 2 - 1
        grid = torch.stack([x[:, None, :].expand(-1, y.size(1), -1), y[:, :, None].expand(-1, -1, x.size(1))], dim=-1)
        masks = F.grid_sample(shapes[:, None], grid, padding_mode="zeros", align_corners=False)
        return {"boxes": boxes, "labels": labels[kept] + 1, "scores": scores[kept], "masks": masks}

    def forward(self, images: List[Tensor], targets: Optional[List[Dict[str, Tensor]]] = None
                ) -> Tuple[Dict[str, Tensor], List[Dict[str, Tensor]]]:
        losses: Dict[str, Tensor] = {}
        found: List[Dict[str, Tensor]] = []
        if targets is None:
            for image in images:
                found.append(self.detect(image))
        else:
            sums = torch.zeros(3)
            for image, target in zip(images, targets):
                classes, boxes, masks = self.losses(image, target)
                sums = sums + torch.stack([classes, boxes, masks]) / len(images)
            losses = {"classes": sums[0], "boxes": sums[1], "masks": sums[2]}
        return losses, found


def runs_of(mask):
    """A mask, row after row, as runs of zeros and ones down the columns."""
    runs, value = [0], 0
    for pixel in mask.t().reshape(-1).tolist():
        if pixel != value:
            runs.append(0)
            value = pixel
        runs[-1] += 1
    return runs


def draw_shapes(folder, split, count, seed):
    """`count` pictures of several sizes with red squares (polygons) and green discs (runs), and their annotations."""
    draw = random.Random(seed)
    (folder / split).mkdir(parents=True)
    images, annotations = [], []
    for number in range(count):
        width, height = draw.randrange(48, 73), draw.randrange(48, 73)
        picture = Image.effect_noise((width, height), 20).point(lambda value: value // 3).convert("RGB")
        images.append({"id": 7 * number, "file_name": f"{number}.png", "width": width, "height": height})
        placed = []
        for _ in range(draw.randrange(1, 4)):
            side = draw.randrange(16, 25)
            x, y = draw.randrange(width - side), draw.randrange(height - side)
            if any(abs(x - a) < 26 and abs(y - b) < 26 for a, b in placed):
                continue
            placed.append((x, y))
            label = draw.randrange(1, 3)
            pen = ImageDraw.Draw(picture)
            entry = {"id": len(annotations), "image_id": 7 * number, "category_id": label, "iscrowd": 0,
                     "bbox": [x, y, side, side], "area": side * side}
            if label == 1:
                pen.rectangle((x, y, x + side - 1, y + side - 1), fill=(220, draw.randrange(60), 40))
                entry["segmentation"] = [[x, y, x + side, y, x + side, y + side, x, y + side]]
            else:
                mask = Image.new("L", (width, height))
                for surface, ink in ((pen, (40, 220, draw.randrange(60))), (ImageDraw.Draw(mask), 1)):
                    surface.ellipse((x, y, x + side - 1, y + side - 1), fill=ink)
                pixels = torch.frombuffer(bytearray(mask.tobytes()), dtype=torch.uint8).view(height, width)
                entry["segmentation"] = {"size": [height, width], "counts": runs_of(pixels)}
            annotations.append(entry)
        picture.save(folder / split / f"{number}.png")
    categories = [{"id": 1, "name": "square"}, {"id": 2, "name": "disc"}]
    whole = {"info": {"year": 2025}, "licenses": [], "images": images, "annotations": annotations, "categories": categories}
    (folder / f"{split}.json").write_text(json.dumps(whole))
    return whole
