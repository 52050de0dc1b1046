"""Training without labels, from outside: features that tell stripes by their direction, whatever their phase.

    run_self_supervised.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs are not there.
"""
import argparse
import csv
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

from run_e2e import NEEDED
from run_fine_tuning import read_tensors
from run_models import write_idx
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()

SIDE, CLASSES = 16, 4
# Few labels vote, so that features must be alike within a class.
JOB = f"""
name: label-free
data: {{path: data, mean: 0.43, deviation: 0.2, augment: {{crop_padding: 3}}}}
model: {{kind: cnn, filters: [8, 16], hidden: [32], classes: {CLASSES}}}
training:
  epochs: 8
  batch_size: 32
  self_supervised:
    method: contrastive
    temperature: 0.2
    projection: [64, 32]
    neighbours: {{count: 10, train_images_max: 40}}
optimizer: {{kind: adam, lr: 0.002}}
consistency: {{mode: bsp}}
cluster: {{servers: 2, workers: 2}}
worker: {{threads: 1}}
"""
PROBE = f"""
name: probe
data: {{path: data, mean: 0.43, deviation: 0.2, train_images_max: 80}}
model: {{kind: cnn, filters: [8, 16], hidden: [32], classes: {CLASSES}, weights: label-free.safetensors}}
training: {{epochs: 20, batch_size: 16}}
optimizer: {{kind: adam, lr: 0.02, groups: [{{match: "fc2.*"}}, {{match: "*", frozen: true}}]}}
consistency: {{mode: bsp}}
cluster: {{servers: 1, workers: 1}}
worker: {{threads: 1}}
"""
DISTILLATION = ("training.self_supervised.method=self_distillation", "training.self_supervised.temperature=0.1",
                "training.self_supervised.teacher_momentum=0.9", "training.epochs=16", "optimizer.ema=0.9")


def write_stripes(folder):
    """Stripes in one of four directions: their phase and contrast are nobody's, and there is noise."""
    draw = random.Random(1)
    folder.mkdir()
    for stem, count in (("train", 320), ("t10k", 200)):
        pixels = []
        for i in range(count):
            angle, phase, contrast = math.pi * (i % CLASSES) / CLASSES, draw.uniform(0, 2 * math.pi), draw.uniform(40, 80)
            across, down = 1.3 * math.cos(angle), 1.3 * math.sin(angle)
            for y in range(SIDE):
                for x in range(SIDE):
                    value = 110 + contrast * math.sin(down * y + across * x + phase) + draw.randrange(-60, 60)
                    pixels.append(min(255, max(0, int(value))))
        write_idx(folder / f"{stem}-images-idx3-ubyte", (count, SIDE, SIDE), pixels)
        write_idx(folder / f"{stem}-labels-idx1-ubyte", (count,), [i % CLASSES for i in range(count)])


class SelfSupervised(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-self-supervised-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        write_stripes(self.root / "data")
        self.job = self.root / "job.yaml"
        self.job.write_text(JOB)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def train(self, job, *settings):
        return self.finished(TrainRun(self.programs, tempfile.mkdtemp(dir=self.root), job, settings))

    def finished(self, run):
        self.addCleanup(run.close)
        self.assertEqual(run.wait(), 0, run.diagnosis())
        return run

    def accuracy(self, run):
        report = json.loads((run.folder / "report.json").read_text())
        self.assertEqual(report["samples"], 200)
        return report["accuracy"]

    def slackline(self, *arguments, code=0):
        done = subprocess.run([self.programs.path("slackline"), *arguments], cwd=self.root, capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_contrastive_features_tell_classes_apart_and_a_probe_reads_them(self):
        before = self.accuracy(self.train(self.job, "training.epochs=1", "optimizer.lr=1e-9"))
        run = self.train(self.job)
        after = self.accuracy(run)
        self.assertLess(before, 0.75)
        self.assertGreater(after, max(0.88, before + 0.15))
        with (run.folder / "epochs.csv").open() as file:
            self.assertEqual({row["accuracy"] for row in csv.DictReader(file)}, {""})
        self.assertIn(f"Accuracy {100 * after:.2f} %", self.slackline("evaluate", run.folder))
        self.assertIn("allowed are test and validation", self.slackline("evaluate", run.folder, "--split", "train", code=2))

        # The classifier of another job is drawn, and the rest is what was learned, frozen.
        exported = self.root / "label-free.safetensors"
        self.slackline("export", run.folder, exported)
        learned = read_tensors(exported)
        self.assertIn("projection.0.weight", learned)
        (self.root / "probe.yaml").write_text(PROBE)
        probe = self.train(self.root / "probe.yaml")
        self.assertGreater(self.accuracy(probe), 0.88)
        self.assertIn("but for fc2.weight and fc2.bias", (probe.folder / "logs" / "worker-1.log").read_text())
        left = read_tensors(probe.folder / "model.safetensors")
        self.assertEqual(set(left), {f"{layer}.{part}" for layer in ("conv1", "conv2", "fc1", "fc2")
                                     for part in ("weight", "bias")})
        for name, values in left.items():
            if not name.startswith("fc2."):
                self.assertEqual(values, learned[name], name)

    def test_self_distillation_learns_and_goes_on_after_a_resume(self):
        run = self.train(self.job, *DISTILLATION, "consistency.mode=ssp")
        first = self.accuracy(run)
        self.assertGreater(first, 0.6)
        self.assertIn("prediction.3.bias", read_tensors(run.folder / "model.safetensors"))
        again = self.finished(TrainRun.resume(self.programs, run, ("--set", "training.epochs=20",
                                                                   "--set", "cluster.workers=1")))
        self.assertEqual(int(again.rows()[-1]["samples"]), 20 * 320)
        self.assertGreater(self.accuracy(again), 0.6, f"before the resume {first}")

    def test_local_rounds_learn_with_and_without_a_teacher(self):
        local = ("local.steps=5", "local.optimizer=adam", "local.lr=0.002", "optimizer.kind=sgd", "optimizer.lr=1")
        self.assertGreater(self.accuracy(self.train(self.job, *local)), 0.85)
        distillation = tuple(one for one in DISTILLATION if not one.startswith("optimizer.ema"))
        self.assertGreater(self.accuracy(self.train(self.job, *local, *distillation)), 0.6)

    def test_several_devices_and_steps_in_flight_learn(self):
        run = self.train(self.job, "worker.devices=[cpu, cpu]", "wire.window=2")
        self.assertGreater(self.accuracy(run), 0.85)

    def test_a_simulation_learns_what_a_run_learns(self):
        self.slackline("simulate", self.job, "--run-folder", self.root / "simulated")
        report = json.loads((self.root / "simulated/report.json").read_text())
        self.assertGreater(report["accuracy"], 0.85)
        with (self.root / "simulated/epochs.csv").open() as file:
            self.assertEqual({row["accuracy"] for row in csv.DictReader(file)}, {""})
        said = self.slackline("simulate", self.job, "--set", DISTILLATION[0], "--set", DISTILLATION[1], code=2)
        self.assertIn("training.self_supervised.method: found self_distillation; a simulation allows none and contrastive", said)
        self.slackline("simulate", self.job, "--no-gradients", "--set", DISTILLATION[0], "--set", DISTILLATION[1])

    def test_what_does_not_go_together_is_refused(self):
        said = self.slackline("check", self.job, "--set", "worker.stages=2", "--set", "worker.devices=[cpu, cpu]", code=2)
        self.assertIn("training.self_supervised.method: found contrastive with worker.stages: 2", said)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", required=True)
    parser.add_argument("--patience", type=float, default=1.0)
    OPTIONS, rest = parser.parse_known_args()
    if not all((pathlib.Path(OPTIONS.programs) / name).exists() for name in NEEDED):
        print("SKIP: the programs are not there")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
