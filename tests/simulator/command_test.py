"""`slackline simulate` from outside, with LibTorch and real images.

    command_test.py SLACKLINE
"""
import csv
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

SLACKLINE = ""
IMAGES = pathlib.Path("/usr/share/datasets/fashion-mnist")
SKIPPED = 77

JOB = f"""
name: toy
data: {{path: {IMAGES}, train_images_max: 6400}}
training: {{epochs: 2, batch_size: 64}}
optimizer: {{lr: 0.1}}
consistency: {{mode: async}}
cluster: {{workers: 4}}
simulation: {{jitter: 0.3, classes: [{{slowdown: 4}}]}}
"""


class Simulate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.job = self.root / "job.yaml"
        self.job.write_text(JOB)

    def run_it(self, *arguments, folder="run"):
        return subprocess.run([SLACKLINE, "simulate", str(self.job), "--run-folder", str(self.root / folder),
                               *arguments], capture_output=True, text=True, timeout=120)

    def files(self, folder):
        return {str(path.relative_to(self.root / folder)): path.read_bytes()
                for path in sorted((self.root / folder).rglob("*")) if path.is_file()}

    def test_equal_jobs_leave_equal_bytes_whatever_the_threads(self):
        for folder, threads in (("one", "1"), ("two", "2")):
            result = self.run_it("--threads", threads, folder=folder)
            self.assertEqual(result.returncode, 0, result.stderr)
        one, two = self.files("one"), self.files("two")
        self.assertLessEqual({"job.yaml", "metrics.csv", "events.log", "report.json", "summary.json", "model.safetensors"}, one.keys())
        for name in one:
            self.assertEqual(one[name], two.get(name), f"{name} differs")
        self.assertEqual(one.keys(), two.keys())

    def test_local_rounds_are_equal_whatever_the_threads(self):
        for folder, threads in (("one", "1"), ("two", "2")):
            result = self.run_it("--threads", threads, "--set", "local={steps: 5, optimizer: adam, lr: 0.001}",
                                 "--set", "optimizer.lr=0.5", folder=folder)
            self.assertEqual(result.returncode, 0, result.stderr)
        one, two = self.files("one"), self.files("two")
        self.assertEqual(one["model.safetensors"], two["model.safetensors"])
        self.assertEqual(one["metrics.csv"], two["metrics.csv"])
        self.assertGreater(json.loads(one["report.json"])["accuracy"], 0.7)

    def test_it_learns_and_its_time_is_virtual(self):
        result = self.run_it()
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = list(csv.DictReader((self.root / "run" / "metrics.csv").read_text().splitlines()))
        report = json.loads((self.root / "run" / "report.json").read_text())
        self.assertGreater(report["accuracy"], 0.6)
        self.assertAlmostEqual(float(rows[-1]["test_accuracy"]), report["accuracy"], places=4)
        self.assertEqual(int(rows[-1]["samples"]), 12800)
        # Three workers of 10,000 images a second and one of 2,500 need 0.4 s; two evaluations of 10,000 images 0.33 s
        # each, and ranges have their ends.
        self.assertLess(0.4, float(rows[-1]["time_s"]))
        self.assertLess(float(rows[-1]["time_s"]), 3)
        epochs = list(csv.DictReader((self.root / "run" / "epochs.csv").read_text().splitlines()))
        self.assertEqual([row["epoch"] for row in epochs], ["1", "2"])
        self.assertEqual([row["joules"] for row in epochs], ["", ""])
        for number, row in enumerate(epochs, 1):
            # Two batches of each worker are told late.
            self.assertIn(int(row["samples"]), range(6400 * number, 6400 * number + 8 * 64 + 1), "an epoch ends by count")
        # 10,000 images at a third of 100 us, or by the slow worker; nobody meters virtual machines.
        self.assertIn(epochs[-1]["test_s"], ("0.333", "1.333"))
        self.assertAlmostEqual(float(epochs[-1]["test_accuracy"]), report["accuracy"], places=4)

    def test_observations_stand_at_their_virtual_time(self):
        result = self.run_it("--set", "training.evaluate_every_epochs=0", "--set", "simulation.evaluate_every_s=0.1")
        self.assertEqual(result.returncode, 0, result.stderr)
        summary = json.loads((self.root / "run" / "summary.json").read_text())
        *observed, final = summary["evaluations"]
        self.assertGreaterEqual(len(observed), 3)
        # There are weights once the workers have had a heartbeat.
        for number, one in enumerate(observed, round(10 * observed[0]["time_s"])):
            self.assertAlmostEqual(one["time_s"], 0.1 * number)
        self.assertGreater(observed[-1]["accuracy"], observed[0]["accuracy"])
        self.assertEqual((final["samples_applied"], summary["epoch_samples"]), (12800, 6400))

    def test_protocol_alone_reads_no_accuracy_out_of_nothing(self):
        result = self.run_it("--no-gradients", "--set", "cluster.workers=50")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("accuracy", result.stdout + result.stderr)
        summary = json.loads((self.root / "run" / "summary.json").read_text())
        self.assertEqual((summary["state"], summary["test_accuracy"], summary["evaluations"]), ("done", None, []))
        self.assertNotIn("model.safetensors", self.files("run"))

    def test_a_signal_stops_it_in_good_order(self):
        command = [SLACKLINE, "simulate", str(self.job), "--run-folder", str(self.root / "run"), "--no-gradients",
                   "--set", "training.epochs=1000000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            self.addCleanup(process.kill)
            # It plays.
            while "training begins" not in process.stderr.readline():
                self.assertIsNone(process.poll())
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        summary = json.loads((self.root / "run" / "summary.json").read_text())
        self.assertEqual((summary["state"], summary["reason"]), ("stopped", "stopped by a signal"))

    def test_measured_compute_time_is_written_down(self):
        result = self.run_it("--set", "simulation.compute_us_per_sample=0", "--set", "training.epochs=1")
        self.assertEqual(result.returncode, 0, result.stderr)
        line = next(line for line in (self.root / "run" / "job.yaml").read_text().splitlines()
                    if "compute_us_per_sample" in line)
        self.assertGreater(float(line.split(":")[1]), 0)

    def test_mistakes_are_wrong_use_and_leave_nothing(self):
        for arguments, message in ((["--set", "wire.encoding=int8"], "wire.encoding: found int8; a simulation allows fp32, or any with --no-gradients"),
                                   (["--set", "simulation.jitter=9"], "allowed is a number from 0 to 5"),
                                   (["--set", "simulation.classes=[{workers: 5}]"], "found 5 workers"),
                                   (["--threads", "0"], "threads"),
                                   (["--set", "simulation.compute_us_per_sample=0", "--no-gradients"],
                                    "nothing is computed")):
            with self.subTest(arguments):
                result = self.run_it(*arguments)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(message, result.stderr)
                self.assertFalse((self.root / "run").exists())


if __name__ == "__main__":
    SLACKLINE = sys.argv.pop(1)
    if not IMAGES.is_dir():
        print(f"skipped: there is no {IMAGES}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
