"""Each family of models trained from outside for two steps on small images, evaluated, exported, and gone on with.

    run_models.py --programs BIN_FOLDER [--twin TWIN.PY --python PYTHON_WITH_TORCH] [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs are not there.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

from run_e2e import NEEDED
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()

SIDE = 16
JOB = """
name: models
data: {path: data}
training: {epochs: 1, batch_size: 16, label_smoothing: 0.1, class_weights: balanced}
optimizer: {kind: adamw, lr: 0.0005, weight_decay: 0.01}
consistency: {mode: bsp}
cluster: {servers: 2, workers: 2}
worker: {threads: 1}
"""


def write_idx(path, shape, values):
    header = bytes([0, 0, 8, len(shape)]) + b"".join(side.to_bytes(4, "big") for side in shape)
    path.write_bytes(header + bytes(values))


def write_data(folder):
    """Images whose label shows: one row of them is bright."""
    draw = random.Random(1)
    folder.mkdir()
    for stem, count in (("train", 64), ("t10k", 40)):
        labels = [i % 10 for i in range(count)]
        pixels = [draw.randrange(60) + (180 if row == label else 0)
                  for label in labels for row in range(SIDE) for _ in range(SIDE)]
        write_idx(folder / f"{stem}-images-idx3-ubyte", (count, SIDE, SIDE), pixels)
        write_idx(folder / f"{stem}-labels-idx1-ubyte", (count,), labels)


class Models(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-models-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        write_data(self.root / "data")
        self.job = self.root / "job.yaml"
        self.job.write_text(JOB)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def check(self, kind, *settings):
        """Trains, compares what was exported with PyTorch's, and trains one more epoch from the checkpoint."""
        run = TrainRun(self.programs, self.root, self.job, (f"model.kind={kind}", *settings))
        self.addCleanup(run.close)
        self.assertEqual(run.wait(), 0, run.diagnosis())
        report = json.loads((run.folder / "report.json").read_text())
        self.assertEqual(report["samples"], 40)
        if OPTIONS.twin:
            twin = subprocess.run([OPTIONS.python, OPTIONS.twin, "evaluate", run.folder / "model.safetensors", "--kind",
                                   kind, "--data", self.root / "data", "--expect-accuracy", str(report["accuracy"])],
                                  capture_output=True, text=True, timeout=300)
            self.assertEqual(twin.returncode, 0, twin.stdout + twin.stderr)
        again = TrainRun.resume(self.programs, run, ("--set", "training.epochs=2"))
        self.addCleanup(again.close)
        self.assertEqual(again.wait(), 0, again.diagnosis())
        self.assertEqual(int(again.rows()[-1]["samples"]), 2 * 64, again.diagnosis())

    def test_resnet34(self):
        self.check("resnet34", "model.init=kaiming_uniform")

    def test_resnet50(self):
        self.check("resnet50", "worker.devices=[cpu, cpu]")

    def test_efficientnet_b0(self):
        self.check("efficientnet_b0", "wire.encoding=bf16", "wire.same_host=unix")

    def test_vit_tiny(self):
        self.check("vit_tiny", "model.patch_size=8", "model.dropout=0.1", "model.stochastic_depth=0.1")

    def test_vit_small(self):
        self.check("vit_small", "cluster.workers=1")

    def test_texture_cnn_2(self):
        self.check("texture_cnn_2", "model.hidden=[32]", "consistency.mode=ssp")

    def test_begins_with_given_weights(self):
        small = ("model={kind: cnn, filters: [4, 8], batch_norm: true, hidden: [32]}",)
        first = TrainRun(self.programs, self.root, self.job, (*small, "training.epochs=20", "optimizer.lr=0.005"))
        self.addCleanup(first.close)
        self.assertEqual(first.wait(), 0, first.diagnosis())
        trained = self.root / "trained.safetensors"
        (first.folder / "model.safetensors").rename(trained)
        accuracy = json.loads((first.folder / "report.json").read_text())["accuracy"]
        self.assertGreater(accuracy, 0.5)

        def start(name, *settings):
            root = self.root / name
            root.mkdir()
            run = TrainRun(self.programs, root, self.job, (*small, f"model.weights={trained}", *settings))
            self.addCleanup(run.close)
            return run

        again = start("again", "optimizer.lr=1e-9")
        self.assertEqual(again.wait(), 0, again.diagnosis())
        self.assertAlmostEqual(json.loads((again.folder / "report.json").read_text())["accuracy"], accuracy, delta=0.11)
        self.assertRegex(again.diagnosis(), r"begins with the weights of \S+/trained\.safetensors")
        # Not needed any more, once there is a checkpoint.
        trained.rename(self.root / "elsewhere")
        further = TrainRun.resume(self.programs, again, ("--set", "training.epochs=2"))
        self.addCleanup(further.close)
        self.assertEqual(further.wait(), 0, further.diagnosis())

        missing = start("missing")
        self.assertEqual(missing.wait(), 2)
        self.assertRegex(missing.stderr(), r"model\.weights: found no file \S+/trained\.safetensors; allowed is a safetensors file")
        (self.root / "elsewhere").rename(trained)
        other = start("other", "model.hidden=[31]")
        self.assertEqual(other.wait(), 1)
        self.assertRegex(other.diagnosis(), r"model\.weights: \S+: fc1\.weight: found shape \[32, \d+\]; the model has \[31, \d+\]")

    def test_simulation_gives_the_same_bytes_again_with_dropout(self):
        weights = []
        for name, threads in (("one", 1), ("two", 2)):
            folder = self.root / name
            subprocess.run([self.programs.path("slackline"), "simulate", self.job, "--run-folder", folder, "--threads",
                            str(threads), "--set", "model={kind: texture_cnn_2, hidden: [16]}"],
                           check=True, capture_output=True, timeout=300)
            weights.append((folder / "model.safetensors").read_bytes())
        self.assertEqual(weights[0], weights[1])

    def test_images_that_do_not_fit_are_refused(self):
        run = TrainRun(self.programs, self.root, self.job, ("model.kind=vit_tiny", "model.patch_size=3"))
        self.addCleanup(run.close)
        self.assertNotEqual(run.wait(), 0)
        self.assertRegex(run.diagnosis(), re.escape("model.patch_size is 3, images are 16x16; allowed is what divides "
                                                    "both: 1, 2, 4, 8, 16"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--twin", default="", help="script that evaluates a run folder with PyTorch")
    parser.add_argument("--python", default="python3", help="has PyTorch, for --twin")
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
