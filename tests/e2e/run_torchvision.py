"""torchvision's operators and detectors in the C++ worker, with nothing compiled by the user: gradients, refusals, Mask R-CNN.

    run_torchvision.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Needs PyTorch, Pillow and torchvision. Exits with 77 (skipped) where they or the programs are not there.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import unittest
from unittest import mock

import torch

import torchvision_kit
from run_e2e import NEEDED
from run_torchscript import load_weights
from slackline_run import Programs, TrainRun
from tiny_detector import draw_shapes

OPTIONS = argparse.Namespace()

JOB = """
name: pooled
data:
  format: coco
  path: shapes
  evaluation_split: validation
  coco: {train_images: train, train_annotations: train.json, validation_images: val, validation_annotations: val.json}
model: {kind: torchscript, torchscript: module.pt, classes: 3, libraries: [LIBRARIES]}
training: {epochs: 1, batch_size: 1, loss: model, evaluate_every_epochs: 0}
optimizer: {kind: sgd, lr: 0.5}
consistency: {mode: bsp}
cluster: {servers: 1, workers: 1}
worker: {threads: 1}
"""

# Takes a step in PyTorch, with the gradient that torchvision has in Python, and saves the module as it was before. POOL stands for
# roi_align, or for an operator without a gradient in C++.
POOLED = """
import sys
from typing import Dict, List, Optional, Tuple
import torch
import torchvision
from torch import Tensor
sys.path.insert(0, sys.argv[1])
from run_detection import read_picture

class Pooled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, images: List[Tensor], targets: Optional[List[Dict[str, Tensor]]] = None) -> Tuple[Dict[str, Tensor], List[Dict[str, Tensor]]]:
        losses: Dict[str, Tensor] = {}
        found: List[Dict[str, Tensor]] = []
        for image in images:
            boxes = torch.tensor([[0.0, 3.0, 4.0, 30.0, 28.0], [0.0, 10.0, 8.0, 40.0, 44.0]])
            pooled = POOL(self.convolution(image[None]))
            losses["all"] = pooled.square().mean()
            found.append({"boxes": torch.zeros([0, 4]), "labels": torch.zeros([0], dtype=torch.int64), "scores": torch.zeros([0])})
        return losses, found

torch.manual_seed(5)
module = Pooled()
torch.jit.script(module).save(sys.argv[2])
if len(sys.argv) > 3:
    module([read_picture(sys.argv[3])])[0]["all"].backward()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter -= 0.5 * parameter.grad
    torch.save(module.state_dict(), sys.argv[4])
"""
ROI_ALIGN = "torch.ops.torchvision.roi_align({}, boxes, 0.5, 3, 4, 2, True)"
ROI_POOL = "torch.ops.torchvision.roi_pool({}, boxes, 0.5, 3, 4)[0]"

DETECTOR = """
import sys
import torch
from torchvision.models.detection import maskrcnn_resnet50_fpn

torch.manual_seed(5)
module = maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=3, min_size=64, max_size=128, box_batch_size_per_image=32,
                               rpn_pre_nms_top_n_train=200, rpn_post_nms_top_n_train=64, rpn_pre_nms_top_n_test=200,
                               rpn_post_nms_top_n_test=32)
torch.jit.script(module).save(sys.argv[1])
"""


class Torchvision(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-torchvision-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        (self.root / "kit").mkdir()
        changed = mock.patch.dict(os.environ, torchvision_kit.environment(self.root / "kit"))
        changed.start()
        self.addCleanup(changed.stop)
        python = pathlib.Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")
        self.job = self.root / "job.yaml"
        self.job.write_text(JOB.replace("LIBRARIES", f"{python}, {torchvision_kit.operators()}"))
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def python(self, script, *arguments):
        # torch.jit.script reads the source of a class from its file.
        path = self.root / "script.py"
        path.write_text(script)
        subprocess.run([sys.executable, "-B", path, *map(str, arguments)], check=True, timeout=240 * OPTIONS.patience)

    def train(self, *settings):
        run = TrainRun(self.programs, tempfile.mkdtemp(dir=self.root), self.job, settings)
        self.addCleanup(run.close)
        return run

    def test_roi_align_has_the_gradient_of_python_and_roi_pool_is_refused(self):
        draw_shapes(self.root / "shapes", "train", 1, 1)
        draw_shapes(self.root / "shapes", "val", 1, 2)
        here = pathlib.Path(__file__).parent
        expected = self.root / "expected"
        self.python(POOLED.replace("POOL(self.convolution(image[None]))", ROI_ALIGN.format("self.convolution(image[None])")),
                    here, self.root / "module.pt", self.root / "shapes/train/0.png", expected)
        run = self.train()
        self.assertEqual(run.wait(), 0, run.diagnosis())
        found = load_weights(torch.nn.ModuleDict({"convolution": torch.nn.Conv2d(3, 4, 3)}), run.folder / "model.safetensors")
        for name, tensor in torch.load(expected, weights_only=True).items():
            torch.testing.assert_close(found.state_dict()[name], tensor, rtol=0, atol=1e-6)
        self.python(POOLED.replace("POOL(self.convolution(image[None]))", ROI_POOL.format("self.convolution(image[None])")),
                    here, self.root / "module.pt")
        run = self.train()
        self.assertNotEqual(run.wait(), 0, run.diagnosis())
        self.assertIn("the operator torchvision::roi_pool has no gradient", run.diagnosis())

    def test_mask_rcnn_trains(self):
        draw_shapes(self.root / "shapes", "train", 8, 1)
        draw_shapes(self.root / "shapes", "val", 2, 2)
        self.python(DETECTOR, self.root / "module.pt")
        run = self.train("training.epochs=4", "training.batch_size=2", "cluster.workers=2", "optimizer.lr=0.002", "optimizer.momentum=0.9",
                         "optimizer.clip_norm=5")
        self.assertEqual(run.wait(), 0, run.diagnosis())
        losses = [float(row["loss"]) for row in run.rows() if row["loss"]]
        # A step has two pictures, so its loss says little.
        self.assertLess(statistics.median(losses[len(losses) // 2 :]), 0.9 * losses[0], losses)
        report = json.loads((run.folder / "report.json").read_text())
        self.assertIn("mask_map", report)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--patience", type=float, default=1, help="factor on all waits")
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    missing = [name for name in NEEDED if not (pathlib.Path(OPTIONS.programs) / name).exists()]
    reason = f"not there: {', '.join(missing)}" if missing else torchvision_kit.missing()
    if reason:
        print("SKIP:", reason)
        return 77
    unittest.main(argv=[sys.argv[0], "-v", *OPTIONS.tests])


if __name__ == "__main__":
    sys.exit(main())
