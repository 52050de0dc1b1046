"""`slackline evaluate`: weights measured without servers are as good as the run said.

    run_evaluate.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs are not there.
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from run_e2e import NEEDED
from run_models import write_data
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()

JOB = """
name: evaluate
data: {path: data}
model: {kind: mlp, hidden: [16]}
training: {epochs: 2, batch_size: 16}
optimizer: {kind: adam, lr: 0.01}
consistency: {mode: bsp}
cluster: {servers: 1, workers: 1}
worker: {threads: 1}
"""


class Evaluate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        root = tempfile.TemporaryDirectory(prefix="slackline-evaluate-")
        cls.addClassCleanup(root.cleanup)
        cls.root = pathlib.Path(root.name)
        write_data(cls.root / "data")
        cls.job = cls.root / "job.yaml"
        cls.job.write_text(JOB)
        cls.programs = Programs(OPTIONS.programs, OPTIONS.patience)
        cls.run_of = TrainRun(cls.programs, cls.root, cls.job)
        cls.addClassCleanup(cls.run_of.close)
        if cls.run_of.wait() != 0:
            raise AssertionError(cls.run_of.diagnosis())
        cls.report = json.loads((cls.run_of.folder / "report.json").read_text())

    def evaluate(self, *arguments, code=0):
        done = subprocess.run([OPTIONS.programs / "slackline", "evaluate", *arguments], cwd=self.root,
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_a_run_is_as_good_as_it_said(self):
        said = self.evaluate(self.run_of.folder, "--out", "report")
        again = json.loads((self.root / "report" / "report.json").read_text())
        for name in ("samples", "loss", "accuracy", "f1_macro", "classes"):
            self.assertEqual(again[name], self.report[name], name)
        self.assertEqual((self.root / "report" / "confusion.csv").read_text(),
                         (self.run_of.folder / "confusion.csv").read_text())
        self.assertFalse((self.root / "report" / "model.safetensors").exists())
        self.assertIn(f"Accuracy {100 * self.report['accuracy']:.2f} %", said)
        # Of a checkpoint, too; at the end it has the same weights.
        self.assertIn(f"Accuracy {100 * self.report['accuracy']:.2f} %",
                      self.evaluate(self.run_of.folder, "--checkpoint", "newest"))

    def test_training_images_are_another_split(self):
        self.assertRegex(self.evaluate(self.run_of.folder, "--split", "train"), r"64 images of train")
        self.assertIn("--split: found validation; allowed are train and test",
                      self.evaluate(self.run_of.folder, "--split", "validation", code=2))

    def test_weights_of_a_job_that_never_ran(self):
        weights = self.run_of.folder / "model.safetensors"
        self.assertIn("40 images", self.evaluate(self.job, "--weights", weights))
        self.assertIn("allowed are 7, as model.classes says",
                      self.evaluate(self.job, "--weights", weights, "--set", "model.classes=7", "--set",
                                    "data.path=" + str(self.seven_classes()), code=2))
        self.assertIn("fc1.weight", self.evaluate(self.job, "--weights", weights, "--set", "model.hidden=[9]", code=2))

    def test_balanced_weights_do_not_ask_for_images_of_every_class(self):
        weights = self.run_of.folder / "model.safetensors"
        plain, balanced = (self.evaluate(self.job, "--weights", weights, "--set", f"data.path={self.seven_classes()}", *settings)
                           for settings in ((), ("--set", "training.class_weights=balanced")))
        self.assertIn("40 images", plain)
        self.assertEqual(balanced, plain, "evaluations measure without weights")

    def seven_classes(self):
        folder = self.root / "seven"
        if not folder.exists():
            write_data(folder)
            for name in ("train", "t10k"):
                labels = folder / f"{name}-labels-idx1-ubyte"
                raw = labels.read_bytes()
                labels.write_bytes(raw[:8] + bytes(label % 7 for label in raw[8:]))
        return folder

    def test_stopped_it_leaves_nothing_behind(self):
        temporary = self.root / "temporary"
        temporary.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(60)
            # It takes the question for images, and never answers.
            images = f"data={{format: prepared, path: 'http://127.0.0.1:{server.getsockname()[1]}', cache: {{folder: copies}}}}"
            evaluation = subprocess.Popen(
                [OPTIONS.programs / "slackline", "evaluate", self.job, "--weights", self.run_of.folder / "model.safetensors",
                 "--set", images], cwd=self.root, env={**os.environ, "TMPDIR": str(temporary)}, stdin=subprocess.DEVNULL)
            self.addCleanup(evaluation.kill)
            connection, _ = server.accept()
            with connection:
                self.assertEqual(len(list(temporary.iterdir())), 1)
                evaluation.send_signal(signal.SIGINT)
                self.assertEqual(evaluation.wait(30), 1)
        self.assertEqual(list(temporary.iterdir()), [])

    def test_what_is_not_there_is_named(self):
        self.assertIn("allowed is the folder of a run, or a job file with --weights", self.evaluate(self.job, code=2))
        self.assertIn("found no file gone.safetensors", self.evaluate(self.job, "--weights", "gone.safetensors", code=2))
        (self.root / "empty").mkdir(exist_ok=True)
        self.assertIn("allowed is a run that is done, or --checkpoint newest", self.evaluate("empty", code=2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--patience", type=float, default=1.0)
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    OPTIONS.programs = OPTIONS.programs.resolve()
    if missing := [name for name in NEEDED if not (OPTIONS.programs / name).exists()]:
        print(f"SKIP: no {', '.join(missing)} in {OPTIONS.programs}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], "-v", *OPTIONS.tests])


if __name__ == "__main__":
    main()
