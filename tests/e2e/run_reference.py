"""The client in plain Python, examples/python/, beside a worker of the run.

    run_reference.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs, the data, or the modules that the client wants are not there.
"""
import argparse
import importlib.util
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from run_e2e import DATA, NEEDED, SMALL
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()
WORKER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python" / "reference_worker.py"
MODULES = ("grpc", "google.protobuf", "numpy", "safetensors", "yaml")
SETTINGS = ("cluster.workers=1", "cluster.servers=2", "durability.snapshot_every_s=0.5", "training.evaluate_every_epochs=10", "training.epochs=15")


class Reference(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-reference-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def train(self, *settings):
        job = self.root / "job.yaml"
        job.write_text(SMALL)
        run = TrainRun(self.programs, self.root, job, (*SETTINGS, *settings))
        self.addCleanup(run.close)
        run.wait_for_training()
        return run

    def start_reference(self, run, fingerprint=None):
        if fingerprint is None:
            check = [self.programs.path("slackline"), "check", "--fingerprint", run.folder / "job.yaml"]
            fingerprint = subprocess.run(check, capture_output=True, text=True, check=True).stdout.strip()
        self.said = self.root / "reference"
        with open(self.said, "wb") as said:
            process = subprocess.Popen([sys.executable, "-B", WORKER, run.folder, "--fingerprint", fingerprint],
                                       stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def diagnosis(self, run):
        return f"--- reference\n{self.said.read_text()}\n{run.diagnosis()}"

    def wait_for(self, what, condition, run):
        return self.programs.wait_for(lambda: f"{what}\n{self.diagnosis(run)}", condition, 120, run.process)

    def finish(self, run, reference):
        self.assertEqual(run.wait(), 0, self.diagnosis(run))
        self.assertEqual(reference.wait(60), 0, self.diagnosis(run))
        accuracy = float(re.findall(r"test accuracy (\d+\.\d+) %", run.events())[-1])
        self.assertGreater(accuracy, 75, run.stdout())
        steps = int(re.search(r"leaves after (\d+) steps: ", self.said.read_text()).group(1))
        self.assertGreater(steps, 20)

    def train_together(self, mode):
        run = self.train(f"consistency.mode={mode}")
        reference = self.start_reference(run)
        self.wait_for("the other worker", lambda: "reference trains as worker" in self.said.read_text(), run)
        run.wait_for_snapshots()
        run.kill("ps-1")
        self.finish(run, reference)
        if mode == "ssp":
            # By what answers say, though clocks in heartbeats are old by the time they are compared.
            self.assertLessEqual(max(int(row["slack"]) for row in run.rows()), 4 + 1)

    def test_over_the_death_of_a_server_in_async(self):
        self.train_together("async")

    def test_over_the_death_of_a_server_in_ssp(self):
        self.train_together("ssp")

    def test_over_the_death_of_a_server_in_bsp(self):
        self.train_together("bsp")

    def test_over_the_death_of_the_scheduler_which_comes_back_elsewhere(self):
        run = self.train("consistency.mode=async")
        reference = self.start_reference(run)
        self.wait_for("the other worker", lambda: "reference trains as worker" in self.said.read_text(), run)
        run.kill("scheduler")
        self.finish(run, reference)
        self.assertEqual(self.said.read_text().count("reference trains as worker"), 1, self.diagnosis(run))

    def test_its_death_is_that_of_a_worker(self):
        run = self.train("consistency.mode=ssp")
        reference = self.start_reference(run)
        self.wait_for("the other worker", lambda: "reference trains as worker" in self.said.read_text(), run)
        reference.send_signal(signal.SIGKILL)
        self.assertEqual(run.wait(), 0, self.diagnosis(run))
        self.assertRegex(run.events(), "worker.*reference.*silent|reference.*expelled|reference.*dead")

    def test_another_job_is_refused_with_the_numbers_of_both(self):
        run = self.train()
        reference = self.start_reference(run, "1234")
        self.assertEqual(reference.wait(60), 1)
        self.assertRegex(self.said.read_text(), r"INVALID_ARGUMENT: .*fingerprint 0000000000001234, the scheduler's is \w{16}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True, type=pathlib.Path)
    parser.add_argument("--patience", type=float, default=1.0)
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    absent = [name for name in NEEDED if not (OPTIONS.programs / name).exists()]
    absent += [] if shutil.which("protoc") else ["protoc"]
    absent += [name for name in MODULES if importlib.util.find_spec(name.split(".")[0]) is None]
    if absent or not DATA.exists():
        print("SKIP: found no", ", ".join(absent) or DATA)
        return 77
    result = unittest.main(argv=[sys.argv[0], *OPTIONS.tests], exit=False).result
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
