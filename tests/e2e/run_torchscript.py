"""Modules of the user's own, saved by torch.jit.script: trained, gone on with, exported, and loaded again in PyTorch.

    run_torchscript.py --programs BIN_FOLDER [--library TEST_OPERATORS.SO] [--patience FACTOR] [TEST...]

Needs PyTorch. Exits with 77 (skipped) where the programs are not there.
"""
import argparse
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile
from typing import Dict, Optional

import torch

from run_e2e import NEEDED
from run_models import SIDE, write_data
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()

JOB = """
name: scripted
data: {path: data}
model: {kind: torchscript, torchscript: module.pt}
training: {epochs: 2, batch_size: 16}
optimizer: {kind: sgd, lr: 0.05, momentum: 0.9}
consistency: {mode: bsp}
cluster: {servers: 2, workers: 2}
worker: {threads: 1}
"""


class Classifier(torch.nn.Module):
    """With statistics, a counter, and something that is left out at random."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
        self.dropout = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(4 * SIDE * SIDE // 4, 10)

    def forward(self, images):
        x = torch.nn.functional.max_pool2d(self.stem(images), 2)
        return self.head(self.dropout(x.flatten(1)))


class OwnLosses(torch.nn.Module):
    """Returns a dictionary: of its losses where it has labels."""

    def __init__(self):
        super().__init__()
        self.body = Classifier()

    def forward(self, images, labels: Optional[torch.Tensor] = None) -> Dict[str, torch.Tensor]:
        outputs = self.body(images)
        if labels is None:
            return {"outputs": outputs}
        return {"classes": torch.nn.functional.cross_entropy(outputs, labels), "size": 0.001 * outputs.square().mean()}


class OwnLoss(torch.nn.Module):
    """The same as one number; without labels its outputs."""

    def __init__(self):
        super().__init__()
        self.losses = OwnLosses()

    def forward(self, images, labels: Optional[torch.Tensor] = None) -> torch.Tensor:
        made = self.losses(images, labels)
        return made["outputs"] if labels is None else made["classes"] + made["size"]


def read_idx(path, offset):
    return torch.frombuffer(bytearray(path.read_bytes()[offset:]), dtype=torch.uint8)


def load_weights(module, path):
    """What was exported, into a module."""
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, tensor in header.items():
        begin, end = (8 + length + offset for offset in tensor["data_offsets"])
        kind = {"F32": torch.float32, "I64": torch.int64}[tensor["dtype"]]
        tensors[name] = torch.frombuffer(bytearray(whole[begin:end]), dtype=kind).view(tensor["shape"])
    module.load_state_dict(tensors, strict=True)
    return module


class WithOperator(torch.nn.Module):
    """Of an operator that the tests' library has."""

    def __init__(self):
        super().__init__()
        self.body = Classifier()

    def forward(self, images):
        return torch.ops.slackline_test.scaled(self.body(images), 2.0)


class TorchScript(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-torchscript-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        write_data(self.root / "data")
        self.job = self.root / "job.yaml"
        self.job.write_text(JOB)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)
        torch.manual_seed(3)

    def place(self):
        """A folder for one more run."""
        return pathlib.Path(tempfile.mkdtemp(dir=self.root))

    def train(self, *settings):
        run = TrainRun(self.programs, self.place(), self.job, settings)
        self.addCleanup(run.close)
        self.assertEqual(run.wait(), 0, run.diagnosis())
        return run

    def refusal(self, *settings):
        run = TrainRun(self.programs, self.place(), self.job, settings)
        self.addCleanup(run.close)
        self.assertNotEqual(run.wait(), 0)
        return run.diagnosis()

    def check(self, module, run):
        """PyTorch, with what the run has left, sees what the run has seen."""
        folder = self.root / "data"
        images = read_idx(folder / "t10k-images-idx3-ubyte", 16).view(-1, 1, SIDE, SIDE)
        labels = read_idx(folder / "t10k-labels-idx1-ubyte", 8).long()
        settings = {}
        for line in (run.folder / "job.yaml").read_text().splitlines():
            key, _, value = line.strip().partition(": ")
            settings.setdefault(key, value)
        images = (images.float() / 255 - float(settings["mean"])) / float(settings["deviation"])
        load_weights(module, run.folder / "model.safetensors").eval()
        with torch.no_grad():
            outputs = module(images)
        outputs = outputs["outputs"] if isinstance(outputs, dict) else outputs
        report = json.loads((run.folder / "report.json").read_text())
        self.assertAlmostEqual(report["accuracy"], (outputs.argmax(1) == labels).double().mean().item(), places=6)
        self.assertAlmostEqual(report["loss"], torch.nn.functional.cross_entropy(outputs, labels).item(), places=4)
        return report

    def test_a_classifier_trains_and_goes_on_and_comes_back(self):
        module = Classifier()
        torch.jit.script(module).save(self.root / "module.pt")
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        run = self.train("optimizer.groups=[{match: stem.0.bias, frozen: true}]")
        first = self.check(Classifier(), run)
        trained = load_weights(Classifier(), run.folder / "model.safetensors").state_dict()
        self.assertTrue(torch.equal(trained["stem.0.bias"], before["stem.0.bias"]))
        for name in ("stem.0.weight", "head.weight", "stem.1.running_mean"):
            self.assertFalse(torch.equal(trained[name], before[name]), name)
        again = TrainRun.resume(self.programs, run, ("--set", "training.epochs=6"))
        self.addCleanup(again.close)
        self.assertEqual(again.wait(), 0, again.diagnosis())
        self.assertLess(self.check(Classifier(), again)["loss"], first["loss"])
        exported = self.root / "exported.safetensors"
        done = subprocess.run([self.programs.path("slackline"), "export", again.folder, exported], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        last = load_weights(Classifier(), again.folder / "model.safetensors").state_dict()
        for name, tensor in load_weights(Classifier(), exported).state_dict().items():
            self.assertTrue(torch.equal(tensor, last[name]), name)

    def test_a_module_may_have_been_saved_on_a_gpu(self):
        torch.jit.script(Classifier()).save(self.root / "plain.pt")
        # What its file says then of each tensor.
        on_cpu, on_gpu = b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0"
        with zipfile.ZipFile(self.root / "plain.pt") as plain, zipfile.ZipFile(self.root / "module.pt", "w") as module:
            for name in plain.namelist():
                content = plain.read(name)
                self.assertEqual(on_cpu in content, name.endswith("/data.pkl"))
                module.writestr(name, content.replace(on_cpu, on_gpu))
        self.check(Classifier(), self.train("training.epochs=1"))

    def test_a_module_brings_its_own_losses(self):
        for kind in (OwnLosses, OwnLoss):
            with self.subTest(kind.__name__):
                torch.jit.script(kind()).save(self.root / "module.pt")
                run = self.train("training.loss=model", "training.epochs=4")
                self.assertLess(self.check(kind(), run)["loss"], 2.2)

    def test_what_does_not_fit_is_refused(self):
        self.assertIn("model.torchscript: found no file", self.refusal())
        (self.root / "module.pt").write_text("no module")
        self.assertIn("cannot be read as a module", self.refusal())
        torch.jit.script(Classifier()).save(self.root / "module.pt")
        self.assertIn("training.loss: model needs", self.refusal("training.loss=model"))
        self.assertIn("expected is a tensor of [16, 12]", self.refusal("model.classes=12"))
        library = self.root / "library.so"
        library.write_text("no library")
        self.assertIn("library.so does not load", self.refusal(f"model.libraries={library}"))

    def test_operators_of_a_library_are_trained_through(self):
        if not OPTIONS.library or not pathlib.Path(OPTIONS.library).exists():
            self.skipTest("the library of operators was not built")
        library = pathlib.Path(OPTIONS.library).resolve()
        torch.ops.load_library(str(library))
        torch.jit.script(WithOperator()).save(self.root / "module.pt")
        self.assertIn("scaled", self.refusal())
        self.assertIn("model.libraries: found no file", self.refusal("model.libraries=[missing.so]"))
        run = self.train(f"model.libraries=[{library}]", "training.epochs=4")
        self.assertLess(self.check(WithOperator(), run)["loss"], 2.2)

    @unittest.skipUnless(shutil.which("cc"), "no compiler")
    def test_libraries_are_loaded_first(self):
        torch.jit.script(Classifier()).save(self.root / "module.pt")
        mark = self.root / "loaded"
        (self.root / "library.c").write_text(
            '#include <stdio.h>\n__attribute__((constructor)) static void load(void) {\n'
            f'  FILE* file = fopen("{mark}", "w");\n  if (file) fclose(file);\n}}\n')
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.root / "library.so", self.root / "library.c"], check=True)
        self.train(f"model.libraries=[{self.root / 'library.so'}]", "training.epochs=1")
        self.assertTrue(mark.exists())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--library", help="the tests' library of operators")
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
