"""Weights of a file, of which a part is frozen and the rest trained in groups, with averaged weights: from outside.

    run_fine_tuning.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs are not there.
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

from run_e2e import NEEDED
from run_models import SIDE, write_data
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()

HIDDEN = 12
JOB = f"""
name: tuned
data: {{path: data}}
model: {{kind: mlp, hidden: [{HIDDEN}], weights: begin.safetensors}}
training: {{epochs: 2, batch_size: 16, loss: bce}}
optimizer:
  kind: sgd
  lr: 0.1
  momentum: 0.9
  weight_decay: 0.01
  ema: 0.9
  groups:
    - {{match: "fc1.*", frozen: true}}
    - {{match: "*.bias", weight_decay: 0, lr_factor: 5}}
consistency: {{mode: bsp}}
cluster: {{servers: 2, workers: 2}}
worker: {{threads: 1}}
"""
SHAPES = {"fc1.weight": (HIDDEN, SIDE * SIDE), "fc1.bias": (HIDDEN,), "fc2.weight": (10, HIDDEN), "fc2.bias": (10,)}


def write_tensors(path, tensors):
    """A safetensors file of float32."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        bytes_ = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_tensors(path):
    """The bytes of each tensor."""
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8:8 + length])
    header.pop("__metadata__", None)
    return {name: whole[8 + length + tensor["data_offsets"][0]:8 + length + tensor["data_offsets"][1]]
            for name, tensor in header.items()}


class FineTuning(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-fine-tuning-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        write_data(self.root / "data")
        draw = random.Random(2)
        write_tensors(self.root / "begin.safetensors", {
            name: (shape, [draw.uniform(-0.1, 0.1) for _ in range(shape[0] * (shape[1] if len(shape) > 1 else 1))])
            for name, shape in SHAPES.items()})
        self.begin = read_tensors(self.root / "begin.safetensors")
        self.job = self.root / "job.yaml"
        self.job.write_text(JOB)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def place(self):
        """A folder for one more run."""
        return pathlib.Path(tempfile.mkdtemp(dir=self.root))

    def finish(self, run):
        self.addCleanup(run.close)
        self.assertEqual(run.wait(), 0, run.diagnosis())
        return read_tensors(run.folder / "model.safetensors")

    def export(self, run, *arguments):
        file = self.root / "exported.safetensors"
        done = subprocess.run([self.programs.path("slackline"), "export", run.folder, file, *arguments],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return read_tensors(file)

    def check(self, tensors):
        """What is frozen is as it began, and the rest is not."""
        self.assertEqual(set(tensors), set(SHAPES))
        for name in SHAPES:
            self.assertEqual(tensors[name] == self.begin[name], name.startswith("fc1."), name)

    def test_a_head_is_trained_on_what_is_frozen(self):
        run = TrainRun(self.programs, self.place(), self.job)
        left = self.finish(run)
        self.check(left)
        # The run leaves the average; a checkpoint has both.
        self.assertEqual(self.export(run), left)
        self.assertEqual(self.export(run, "--weights", "averaged"), left)
        last = self.export(run, "--weights", "last")
        self.check(last)
        self.assertNotEqual(last["fc2.weight"], left["fc2.weight"])
        # It goes on, on other servers, without the file.
        (self.root / "begin.safetensors").unlink()
        again = TrainRun.resume(self.programs, run, ("--set", "training.epochs=3", "--set", "cluster.servers=1"))
        after = self.finish(again)
        self.check(after)
        self.assertNotEqual(after["fc2.weight"], left["fc2.weight"])

    def test_backups_have_all_of_it(self):
        self.check(self.finish(TrainRun(self.programs, self.place(), self.job, ("durability.mode=replicated",))))

    def refusal(self, *settings):
        run = TrainRun(self.programs, self.place(), self.job, settings)
        self.addCleanup(run.close)
        self.assertNotEqual(run.wait(), 0)
        return run.diagnosis()

    def test_what_makes_no_sense_is_refused(self):
        self.assertIn('optimizer.groups[1].match: found "conv*", which matches none of the parameters',
                      self.refusal("optimizer.groups=[{match: fc1.*, lr_factor: 2}, {match: conv*, lr_factor: 2}]"))
        self.assertIn("all parameters are frozen", self.refusal("optimizer.groups=[{match: '*', frozen: true}]"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", required=True)
    parser.add_argument("--patience", type=float, default=1.0)
    OPTIONS, rest = parser.parse_known_args()
    if not all((pathlib.Path(OPTIONS.programs) / name).exists() for name in NEEDED):
        print("SKIP: the programs are not there")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
