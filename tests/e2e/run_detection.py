"""A module that finds objects: trained on annotations in COCO's format, stopped and gone on with, exported, loaded in PyTorch.

    run_detection.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Needs PyTorch and Pillow. Exits with 77 (skipped) where the programs are not there.
"""
import argparse
import csv
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import torch
from PIL import Image

from run_e2e import NEEDED
from run_torchscript import load_weights
from slackline_run import Programs, TrainRun
from tiny_detector import CLASSES, TinyDetector, draw_shapes

OPTIONS = argparse.Namespace()

JOB = f"""
name: shapes
data:
  format: coco
  path: shapes
  evaluation_split: validation
  augment: {{flip: horizontal}}
  coco:
    train_images: train
    train_annotations: train.json
    validation_images: val
    validation_annotations: val.json
model: {{kind: torchscript, torchscript: module.pt, classes: {CLASSES}}}
training: {{epochs: 12, batch_size: 4, loss: model, evaluate_every_epochs: 4}}
optimizer: {{kind: adam, lr: 0.005}}
consistency: {{mode: bsp}}
checkpoint: {{every_epochs: 1, keep_best: 1}}
cluster: {{servers: 1, workers: 2}}
worker: {{threads: 1}}
"""


class Detection(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-detection-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.shapes = self.root / "shapes"
        self.job = self.root / "job.yaml"
        self.job.write_text(JOB)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)
        torch.manual_seed(3)

    def start(self, *settings):
        run = TrainRun(self.programs, pathlib.Path(tempfile.mkdtemp(dir=self.root)), self.job, settings)
        self.addCleanup(run.close)
        return run

    def slackline(self, *arguments, code=0):
        done = subprocess.run([self.programs.path("slackline"), *map(str, arguments)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60 * OPTIONS.patience)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_a_detector_learns_goes_on_and_comes_back(self):
        draw_shapes(self.shapes, "train", 64, 1)
        draw_shapes(self.shapes, "val", 16, 2)
        torch.jit.script(TinyDetector()).save(self.root / "module.pt")
        # One picture is damaged, and one annotation is of no image.
        (self.shapes / "train" / "5.png").write_text("no picture")
        whole = json.loads((self.shapes / "train.json").read_text())
        whole["annotations"].append({**whole["annotations"][0], "image_id": 123456})
        (self.shapes / "train.json").write_text(json.dumps(whole))

        run = self.start()
        run.wait_for_training(3 * 64)
        said = self.slackline("status", run.folder)
        self.assertNotIn("accuracy", said)
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(), 1, run.diagnosis())
        self.assertLess(json.loads((run.folder / "summary.json").read_text())["samples"], 12 * 64)
        again = TrainRun.resume(self.programs, run)
        self.addCleanup(again.close)
        self.assertEqual(again.wait(), 0, again.diagnosis())

        log = "".join(path.read_text() for path in (again.folder / "logs").glob("worker*"))
        self.assertIn("5.png cannot be read; the next image replaces it", log)
        self.assertIn("there is no image with id 123456", log)
        with (again.folder / "epochs.csv").open() as file:
            self.assertEqual({row["accuracy"] for row in csv.DictReader(file)}, {""})
        losses = [float(row["loss"]) for row in again.rows() if row["loss"]]
        self.assertLess(losses[-1], losses[0] / 2, losses)
        summary = json.loads((again.folder / "summary.json").read_text())
        self.assertEqual(summary["test_metric"], "map")
        self.assertIsNone(summary["test_loss"])
        evaluations = [evaluation["accuracy"] for evaluation in summary["evaluations"]]
        self.assertGreater(evaluations[-1], evaluations[0])
        report = json.loads((again.folder / "report.json").read_text())
        self.assertIsNone(report["loss"])
        self.assertEqual([entry["name"] for entry in report["classes"]], ["square", "disc"])
        self.assertEqual(report["map"], report["accuracy"])
        self.assertEqual(report["map"], summary["test_accuracy"])
        self.assertGreater(report["map_50"], 0.6, report)
        self.assertGreater(report["map"], 0.25, report)
        self.assertGreater(report["mask_map_50"], 0.6, report)
        self.assertEqual(report["mask_map"], summary["test_mask_map"])
        self.assertIn("mAP", again.stdout())
        self.assertFalse((again.folder / "confusion.csv").exists())
        curves = b"".join(path.read_bytes() for path in again.folder.glob("events.out.tfevents.*"))
        self.assertIn(b"test/map", curves)
        self.assertNotIn(b"test/accuracy", curves)

        self.assertIn(f"test mAP {100 * summary['test_accuracy']:.2f} %", self.slackline("status", again.folder))
        self.assertRegex(self.slackline("checkpoints", again.folder), r"best:? test mAP [0-9.]+ % after epoch \d+")
        self.assertNotIn("test accuracy", again.events())

        measured = self.root / "measured"
        shown = self.slackline("evaluate", again.folder, "--split", "train", "--out", measured)
        self.assertIn("at an overlap of 0.5", shown)
        self.assertGreater(json.loads((measured / "report.json").read_text())["map_50"], 0.6)
        exported = self.root / "exported.safetensors"
        self.slackline("export", again.folder, exported)
        module = load_weights(TinyDetector(), exported).eval()
        self.check_figures(module, report)

    def test_it_is_simulated_too(self):
        draw_shapes(self.shapes, "train", 48, 1)
        draw_shapes(self.shapes, "val", 8, 2)
        torch.jit.script(TinyDetector()).save(self.root / "module.pt")
        flags = ("--threads", "2", "--set", "training.epochs=3", "--set", "training.evaluate_every_epochs=3", "--set")
        reports = []
        for name, measured in (("one", "100"), ("two", "100"), ("measured", "0")):
            shown = self.slackline("simulate", self.job, "--run-folder", self.root / name, *flags,
                                   f"simulation.compute_us_per_sample={measured}")
            self.assertRegex(shown, r"test mAP +[0-9.]+ % on 8 images")
            self.assertIn("at an overlap of 0.5", shown)
            reports.append((self.root / name / "report.json").read_text())
        self.assertEqual(reports[0], reports[1])
        summary = json.loads((self.root / "one" / "summary.json").read_text())
        self.assertEqual((summary["state"], summary["test_metric"], summary["samples"]), ("done", "map", 3 * 48))
        self.assertGreater(json.loads(reports[0])["map_50"], 0.02)
        self.slackline("simulate", self.job, "--run-folder", self.root / "no", *flags, "simulation.compute_us_per_sample=100", "--no-gradients")
        summary = json.loads((self.root / "no" / "summary.json").read_text())
        self.assertEqual((summary["state"], summary["samples"]), ("done", 3 * 48))

    def test_its_training_is_planned(self):
        draw_shapes(self.shapes, "train", 48, 1)
        draw_shapes(self.shapes, "val", 8, 2)
        plan = ("plan", self.job, "--here", "--batch", "4", "--nodes", "1,2", "--measure", "4s")
        (self.root / "module.pt").write_text("no module")
        self.assertIn("cannot be read as a module", self.slackline(*plan, code=1))
        torch.jit.script(TinyDetector()).save(self.root / "module.pt")
        cells = json.loads(self.slackline(*plan, "--json"))["plan"]
        self.assertEqual([cell["nodes"] for cell in cells], [1, 2])
        self.assertGreater(cells[1]["samples_per_second"], 1.2 * cells[0]["samples_per_second"])

    def check_figures(self, module, report):
        """PyTorch, with the run's weights, finds what the run has found."""
        whole = json.loads((self.shapes / "val.json").read_text())
        hits = kept = objects = 0
        with torch.no_grad():
            for entry in whole["images"]:
                truth = [one for one in whole["annotations"] if one["image_id"] == entry["id"]]
                objects += len(truth)
                found = module([read_picture(self.shapes / "val" / entry["file_name"])])[1][0]
                sure = found["scores"] >= 0.5
                kept += int(sure.sum())
                for one in truth:
                    x, y, width, height = one["bbox"]
                    same = found["labels"][sure] == one["category_id"]
                    hits += int(any(overlap(box.tolist(), (x, y, x + width, y + height)) >= 0.5
                                    for box in found["boxes"][sure][same]))
        self.assertEqual(sum(entry["samples"] for entry in report["classes"]), objects)
        self.assertAlmostEqual(2 * hits / (kept + objects), report["f1_micro"], places=6)

    def refusal(self, *settings):
        run = self.start("training.epochs=1", *settings)
        self.assertNotEqual(run.wait(), 0)
        return run.diagnosis()

    def test_what_does_not_fit_is_refused(self):
        draw_shapes(self.shapes, "train", 4, 1)
        draw_shapes(self.shapes, "val", 4, 2)
        torch.jit.script(TinyDetector()).save(self.root / "module.pt")
        self.assertIn("found no file", self.refusal("data.coco.validation_annotations=none.json"))
        self.assertIn("category disc has id 2; model.classes is 2", self.refusal("model.classes=2"))
        (self.shapes / "train.json").write_text('{"images": [')
        self.assertIn("train.json: it is no JSON", self.refusal())


def overlap(a, b):
    across = max(0, min(a[2], b[2]) - max(a[0], b[0]))
    down = max(0, min(a[3], b[3]) - max(a[1], b[1]))
    both = across * down
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def read_picture(path):
    with Image.open(path) as picture:
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
        return pixels.view(picture.height, picture.width, 3).permute(2, 0, 1).float() / 255


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--patience", type=float, default=1, help="factor on all waits")
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    missing = [name for name in NEEDED if not (pathlib.Path(OPTIONS.programs) / name).exists()]
    if missing:
        print("skipped: not there:", ", ".join(missing))
        return 77
    unittest.main(argv=[sys.argv[0], "-v", *OPTIONS.tests])


if __name__ == "__main__":
    sys.exit(main())
