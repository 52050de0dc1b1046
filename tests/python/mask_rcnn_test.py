"""examples/python/mask_rcnn.py on real photographs with masks (photographs.py): trained, stopped, resumed, begun from its own weights.

    mask_rcnn_test.py --programs BIN_FOLDER --package FOLDER --examples FOLDER [TEST...]

Skipped (77) where there is no torchvision for it.
"""

import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
from unittest import mock

import launch_test
import torchvision_kit  # of tests/e2e, which launch_test has put on the path
from slackline_run import TrainRun

PHOTOGRAPHS = 20
EPOCHS = 6

TO_PYTORCH = """
import sys, torch
from safetensors.torch import load_file
torch.save(load_file(sys.argv[1]), sys.argv[2])
"""


# Detectors that find all objects of a picture, or none.
MEASURED = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from mask_rcnn import Scenes, measure

test = Scenes(*sys.argv[2:])
number = iter(range(len(test)))

def all_of_them(images):
    target = test[next(number)][1]
    return [{"boxes": target["boxes"], "labels": target["labels"], "scores": torch.ones(len(target["labels"])),
             "masks": target["masks"].unsqueeze(1).float()}]

found = measure(all_of_them, test, "cpu")
assert set(found) == {"map", "map_50", "mask_map", "mask_map_50"} and all(abs(value - 1) < 1e-6 for value in found.values()), found
nothing = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64), "scores": torch.zeros(0), "masks": torch.zeros(0, 1, 128, 128)}
assert set(measure(lambda images: [nothing], test, "cpu").values()) == {0.0}
"""


class MaskRcnn(launch_test.Launched):
    def setUp(self):
        super().setUp()
        (self.folder / "kit").mkdir()
        changed = mock.patch.dict(os.environ, {**torchvision_kit.environment(self.folder / "kit"), "OMP_NUM_THREADS": "1"})
        changed.start()
        self.addCleanup(changed.stop)
        photographs = pathlib.Path(__file__).with_name("photographs.py")
        subprocess.run([sys.executable, "-B", photographs, self.folder], check=True, timeout=60, capture_output=True)
        self.scenes = [str(self.folder / "images"), str(self.folder / "annotations.json")]

    def begin(self, *arguments, flags=()):
        """Small pictures, and an optimizer with which so few steps learn something."""
        settings = (f"training.epochs={EPOCHS}", f"training.evaluate_every_epochs={EPOCHS}", "optimizer.kind=adamw", "optimizer.momentum=0",
                    "optimizer.lr=0.0005", *flags)  # fmt: skip
        return self.launch(launch_test.OPTIONS.examples / "mask_rcnn.py", *(word for one in settings for word in ("--set", one)),
                           job=launch_test.OPTIONS.examples / "mask-rcnn.yaml",
                           arguments=["--side", "96", "--train", *self.scenes, "--test", *self.scenes, *arguments])  # fmt: skip

    def test_it_learns_is_stopped_and_resumed_and_its_weights_are_a_beginning(self):
        run = self.begin("--model", "small", "--flip", flags=["output.report_every_ms=200"])
        run.wait_for_training(PHOTOGRAPHS)
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(120), 1, run.diagnosis())
        self.assertLess(json.loads((run.folder / "summary.json").read_text())["samples"], EPOCHS * PHOTOGRAPHS)
        again = TrainRun.resume(run.programs, run)
        self.addCleanup(self.end, again)
        self.assertEqual(again.wait(300), 0, again.diagnosis())
        with (again.folder / "metrics.csv").open() as file:
            losses = [float(row["loss"]) for row in csv.DictReader(file) if row["loss"]]
        self.assertLess(losses[-1], 0.8 * losses[0], losses)
        summary = json.loads((again.folder / "summary.json").read_text())
        self.assertEqual((summary["state"], summary["metric"]["name"]), ("done", "mask_map"))
        self.assertEqual(sorted(summary["evaluations"][-1]["values"]), ["map", "map_50", "mask_map", "mask_map_50"])

        weights = self.folder / "weights.pt"
        subprocess.run([sys.executable, "-c", TO_PYTORCH, again.folder / "model.safetensors", weights], check=True, timeout=60)
        again.folder.rename(self.folder / "first")
        more = self.begin("--model", "small", "--precision", "bf16", "--weights", str(weights), flags=["training.epochs=1", "training.evaluate_every_epochs=1"])
        self.assertEqual(more.wait(300), 0, more.diagnosis())
        self.assertRegex(self.log(more, "worker-1"), r"weights.pt: took (\d+) of \1 tensors")
        with (more.folder / "metrics.csv").open() as file:
            begins = next(float(row["loss"]) for row in csv.DictReader(file) if row["loss"])
        self.assertLess(begins, 0.8 * losses[0])

    def test_mean_average_precision_is_that_of_coco(self):
        subprocess.run([sys.executable, "-B", "-c", MEASURED, launch_test.OPTIONS.examples, *self.scenes], check=True, timeout=120)

    def test_the_network_of_torchvision_trains_too(self):
        annotations = json.loads((self.folder / "annotations.json").read_text())
        annotations["images"] = annotations["images"][:4]
        annotations["annotations"] = [one for one in annotations["annotations"] if one["image_id"] <= 4]
        (self.folder / "annotations.json").write_text(json.dumps(annotations))
        run = self.begin(flags=["training.epochs=2", "training.evaluate_every_epochs=2", "training.batch_size=1", "optimizer.lr=0.0001"])
        self.assertEqual(run.wait(400), 0, run.diagnosis())
        for name in ("worker-1", "worker-2"):
            self.assertIn("steps: training is complete", self.log(run, name), run.diagnosis())
        self.assertTrue((run.folder / "model.safetensors").exists(), run.diagnosis())


if __name__ == "__main__":
    if reason := torchvision_kit.missing():
        print("SKIP:", reason)
        sys.exit(77)
    launch_test.main()
