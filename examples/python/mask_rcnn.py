"""Trains torchvision's Mask R-CNN on pictures with masks, in COCO's format.

pip install torchvision pycocotools
slackline launch examples/python/mask_rcnn.py --workers 2 examples/python/mask-rcnn.yaml -- \
    --train /data/coco/train2017 /data/coco/annotations/instances_train2017.json \
    --test /data/coco/val2017 /data/coco/annotations/instances_val2017.json
"""

import argparse
import contextlib
import io

import numpy
import torch
from pycocotools import mask
from pycocotools.cocoeval import COCOeval
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import CocoDetection
from torchvision.models import resnet18
from torchvision.models.detection import MaskRCNN, maskrcnn_resnet50_fpn
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.ops import FrozenBatchNorm2d
from torchvision.transforms.v2.functional import pil_to_tensor, to_dtype

import slackline

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Scenes(CocoDetection):
    """Sample i is a picture, 3 x height x width of 0 to 1, and its objects as torchvision's detectors take them.

    Crowds are left out, and so are boxes without width or height, with which these detectors fail.
    """

    def __init__(self, images, annotations):
        with contextlib.redirect_stdout(io.StringIO()):
            super().__init__(images, annotations)

    @property
    def classes(self):
        """Number of labels: those of the file's categories, and 0 for the background."""
        return max(self.coco.getCatIds()) + 1

    def __getitem__(self, index):
        number = self.ids[index]
        picture = to_dtype(pil_to_tensor(self._load_image(number)), torch.float32, scale=True)
        objects = [one for one in self._load_target(number) if not one["iscrowd"] and min(one["bbox"][2:]) > 0]
        boxes = torch.tensor([one["bbox"] for one in objects], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        masks = [torch.from_numpy(self.coco.annToMask(one)) for one in objects]
        return picture, {
            "image_id": number,
            "boxes": boxes,
            "labels": torch.tensor([one["category_id"] for one in objects], dtype=torch.int64),
            "masks": torch.stack(masks) if masks else torch.zeros(0, *picture.shape[1:], dtype=torch.uint8),
        }


class Flipped(torch.utils.data.Dataset):
    """The same scenes, half of them mirrored."""

    def __init__(self, scenes):
        self.scenes = scenes

    def __len__(self):
        return len(self.scenes)

    def __getitem__(self, index):
        picture, target = self.scenes[index]
        if torch.rand(()) < 0.5:
            return picture, target
        boxes = target["boxes"].clone()
        boxes[:, [0, 2]] = picture.shape[2] - target["boxes"][:, [2, 0]]
        return picture.flip(2), {**target, "boxes": boxes, "masks": target["masks"].flip(2)}


def small(classes, side):
    """Mask R-CNN with ResNet-18, narrow heads and group normalization: for small pictures, small batches and CPUs."""
    body = resnet18(weights=None, norm_layer=lambda width: nn.GroupNorm(16, width))
    backbone = BackboneWithFPN(body, {f"layer{i}": str(i - 1) for i in range(1, 5)}, [64, 128, 256, 512], out_channels=64)
    return MaskRCNN(
        backbone, min_size=side, max_size=2 * side,
        # Sides of the anchors: four levels of the pyramid, and the level above them.
        rpn_anchor_generator=AnchorGenerator(tuple((side * part,) for part in (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)), ((0.5, 1.0, 2.0),) * 5),
        rpn_pre_nms_top_n_train=500, rpn_post_nms_top_n_train=200, rpn_pre_nms_top_n_test=200, rpn_post_nms_top_n_test=100,
        box_head=TwoMLPHead(64 * 7 * 7, 256), box_predictor=FastRCNNPredictor(256, classes), box_batch_size_per_image=64,
        mask_head=MaskRCNNHeads(64, (64, 64), 1), mask_predictor=MaskRCNNPredictor(64, 64, classes),
    )  # fmt: skip


def network(options, classes):
    if options.model == "small":
        model = small(classes, options.side)
    else:
        model = maskrcnn_resnet50_fpn(
            weights=None, weights_backbone="DEFAULT" if options.pretrained else None, num_classes=classes,
            min_size=options.side, max_size=2 * options.side,
        )  # fmt: skip
    if options.weights:
        freeze_statistics(model)
        load(model, options.weights)
    return model


def freeze_statistics(module):
    """Batches of few pictures have poor statistics: those that come with the weights stay, as in torchvision's trained detectors."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, FrozenBatchNorm2d(child.num_features))
        freeze_statistics(child)


def load(model, file):
    """Takes all tensors of the file whose names and shapes are the model's: heads for other classes stay as they are."""
    found, own = torch.load(file, weights_only=True), model.state_dict()
    fitting = {name: tensor for name, tensor in found.items() if name in own and own[name].shape == tensor.shape}
    if not fitting:
        raise SystemExit(f"{file}: none of its {len(found)} tensors has the name and shape of one of the model's")
    model.load_state_dict(fitting, strict=False)
    print(f"{file}: took {len(fitting)} of {len(found)} tensors", flush=True)


def batched(samples):
    return tuple(zip(*samples))


def moved(images, targets, device):
    return [image.to(device) for image in images], [
        {name: value.to(device) for name, value in target.items() if name != "image_id"} for target in targets
    ]


def findings(number, found):
    """What was found on a picture, in COCO's format of results."""
    found = {name: tensor.cpu() for name, tensor in found.items()}
    boxes = torch.cat([found["boxes"][:, :2], found["boxes"][:, 2:] - found["boxes"][:, :2]], dim=1)
    for box, label, score, shape in zip(boxes, found["labels"], found["scores"], found["masks"]):
        runs = mask.encode(numpy.asfortranarray(shape[0] > 0.5, dtype=numpy.uint8))
        yield {"image_id": number, "category_id": label.item(), "bbox": box.tolist(), "score": score.item(), "segmentation": runs}


def measure(model, test, device):
    """Mean average precision as COCO measures it: of masks ("mask_map"), of boxes ("map"), and both at an overlap of 0.5."""
    results = []
    for images, targets in DataLoader(test, collate_fn=batched):
        for target, found in zip(targets, model(moved(images, [], device)[0])):
            results += findings(target["image_id"], found)
    figures = {}
    for kind, name in (("segm", "mask_map"), ("bbox", "map")):
        figures[name] = figures[f"{name}_50"] = 0.0
        if not results:
            continue
        with contextlib.redirect_stdout(io.StringIO()):  # a table of twelve figures
            evaluation = COCOeval(test.coco, test.coco.loadRes(results), kind)
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        # -1 stands for test data without an object.
        figures[name], figures[f"{name}_50"] = (max(0.0, float(value)) for value in evaluation.stats[:2])
    print("test: " + ", ".join(f"{name} {value:.3f}" for name, value in figures.items()), flush=True)
    return figures


def options_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("train", "test"):
        parser.add_argument(f"--{name}", nargs=2, metavar=("IMAGES", "ANNOTATIONS"), required=True,
                            help="folder of pictures, and COCO's JSON file of their objects")  # fmt: skip
    parser.add_argument("--model", choices=("resnet50", "small"), default="resnet50",
                        help="maskrcnn_resnet50_fpn, or one with ResNet-18 and narrow heads")  # fmt: skip
    parser.add_argument("--pretrained", action="store_true", help="begin with torchvision's ResNet-50 for ImageNet, which it downloads")
    parser.add_argument("--weights", help="begin with the tensors of this file (a state_dict) that fit")
    parser.add_argument("--side", type=int, default=800, help="pixels of the shorter side, to which pictures are scaled")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="of forward and backward; the weights stay fp32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--loaders", type=int, default=0, help="processes that make batches")
    parser.add_argument("--flip", action="store_true", help="mirror half of the training pictures")
    options = parser.parse_args()
    if options.pretrained and options.model != "resnet50":
        parser.error(f"--pretrained goes with --model resnet50; found {options.model}")
    return options


def main():
    options = options_of()
    train, test = Scenes(*options.train), Scenes(*options.test)
    device = torch.device(options.device)
    with slackline.connect() as worker:
        torch.manual_seed(worker.seed)  # all workers begin alike
        model = network(options, train.classes).to(device)
        # A scaler changes gradients, so none may leave before it.
        optimizer = slackline.Optimizer(model, worker, overlap=options.precision != "fp16")
        scaler = torch.amp.GradScaler(device.type, enabled=options.precision == "fp16")
        worker.evaluation(lambda: measure(model, test, device), samples=len(test))
        loader = DataLoader(Flipped(train) if options.flip else train, batch_size=worker.batch_size, sampler=worker.sampler(len(train)),
                            collate_fn=batched, num_workers=options.loaders)  # fmt: skip
        for images, targets in worker.batches(loader):
            optimizer.zero_grad()
            with torch.autocast(device.type, PRECISIONS[options.precision], enabled=options.precision != "fp32"):
                losses = model(*moved(images, targets, device))
            loss = sum(losses.values())
            scaler.scale(loss).backward()
            worker.report(loss=loss.item(), **{name: value.item() for name, value in losses.items()})
            scaler.step(optimizer)
            scaler.update()
        print(f"{worker.name} took {worker.clock} steps: {worker.reason}")


if __name__ == "__main__":
    main()
