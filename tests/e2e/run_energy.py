"""Energy from outside, with meters that are none: a tree like /sys, and a library like NVML of two GPUs of 200 W and 100 W.

    run_energy.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import csv
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

from run_e2e import DATA, NEEDED
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()
JOB = """
name: energy
data: {train_images_max: 4000}
training: {epochs: 3, batch_size: 50, evaluate_every_epochs: 1}
cluster: {servers: 1, workers: 2}
durability: {mode: none}
worker: {threads: 1}
"""
GPU, OTHER_GPU = "gpu-0000:65:00.0", "gpu-0000:b3:00.0"
WATTS = {GPU: 200, OTHER_GPU: 100}


def make_sysfs(root):
    """A package whose counter stands still. Returns the root."""
    zone = root / "class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    for name, value in (("name", "package-0"), ("energy_uj", "5000000"), ("max_energy_range_uj", "262143328850")):
        (zone / name).write_text(f"{value}\n")
    return root


class Energy(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-energy-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)
        self.fake_nvml = self.programs.folder.parent / "tests/libfake_nvml.so"

    def train(self, *settings):
        job = self.root / "job.yaml"
        job.write_text(JOB)
        run = TrainRun(self.programs, self.root, job, settings)
        self.addCleanup(run.close)
        self.assertEqual(run.wait(), 0, run.diagnosis())
        return run, json.loads((run.folder / "summary.json").read_text())

    def metered(self):
        return (f"power.sysfs={make_sysfs(self.root / 'sys')}", f"power.nvml_library={self.fake_nvml}", "power.gpus=all",
                "power.sample_every_ms=100")

    def epochs(self, run):
        with open(run.folder / "epochs.csv", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def status(self, run):
        return subprocess.run([self.programs.path("slackline"), "status", str(run.folder)], capture_output=True, text=True,
                              timeout=60).stdout

    def test_two_workers_count_each_device_once(self):
        begin = time.monotonic()
        run, summary = self.train(*self.metered())
        took = time.monotonic() - begin
        energy = summary["energy"]
        joules = {one["device"]: one["joules"] for one in energy["devices"]}
        self.assertEqual(set(joules), {"package-0", GPU, OTHER_GPU})
        self.assertEqual(joules["package-0"], 0)
        for device, watts in WATTS.items():
            # Twice would be more than the machine was there for.
            self.assertLessEqual(joules[device], watts * took)
            self.assertGreater(joules[device], watts * summary["train_s"] / 2)
        parts = [energy[phase] for phase in ("training", "validation", "test", "other")]
        self.assertAlmostEqual(sum(parts), energy["joules"], places=3)
        self.assertGreater(min(parts[:3]), 0, energy)
        self.assertAlmostEqual(energy["edp"] / energy["joules"], summary["time_s"], places=3)
        self.assertIn("energy ", self.status(run))
        self.assertNotIn("not metered", self.status(run))
        epochs = self.epochs(run)
        self.assertEqual([row["epoch"] for row in epochs], ["1", "2", "3"])
        for row in epochs:
            self.assertGreater(float(row["train_s"]), 0)
            self.assertGreater(float(row["joules"]), 0)
            self.assertGreater(float(row["top5_accuracy"]), float(row["test_accuracy"]))
        self.assertLessEqual(sum(float(row["joules"]) for row in epochs), energy["joules"] * 1.001)
        self.assertGreater(float(epochs[0]["validation_s"]), 0)
        self.assertGreater(float(epochs[-1]["test_s"]), 0)
        self.trace_shows_each_device(run, energy)

    def trace_shows_each_device(self, run, energy):
        with open(run.folder / "power.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual({row["device"] for row in rows}, {"package-0", GPU, OTHER_GPU})
        self.assertEqual({row["node"] for row in rows}, {one["node"] for one in energy["devices"]})
        for one in energy["devices"]:
            watts = WATTS.get(one["device"], 0)
            mine = [row for row in rows if row["device"] == one["device"]]
            times = [float(row["time_s"]) for row in mine]
            # Times are exact to the delay of a message.
            self.assertTrue(all(after > before - 1 for before, after in zip(times, times[1:])), times)
            self.assertEqual({float(row["watts"]) for row in mine}, {watts})
            # A busy machine takes fewer samples than asked for, but more than one a second.
            self.assertGreater(len(mine), (times[-1] - times[0]))
            self.assertEqual((one["min_watts"], one["max_watts"], one["idle_watts"]), (watts, watts, None))
            self.assertAlmostEqual(one["mean_watts"], watts, delta=0.1 * watts)
        self.assertIsNone(energy["above_idle"])

    def test_idle_power_is_measured_before_the_start_and_left_out(self):
        run, summary = self.train(*self.metered(), "power.idle_s=1", "cluster.workers=1", "training.epochs=1")
        energy = summary["energy"]
        idle = {one["device"]: one["idle_watts"] for one in energy["devices"]}
        # The counter of the package stands still: that is 0 W.
        self.assertEqual(idle, {"package-0": 0, **WATTS})
        # These devices always take the same.
        self.assertAlmostEqual(energy["above_idle"], 0, delta=0.1 * energy["joules"])
        with open(run.folder / "power.csv", encoding="utf-8", newline="") as file:
            times = [float(row["time_s"]) for row in csv.DictReader(file)]
        self.assertLess(times[0], -0.9)
        self.assertLess(energy["joules"], sum(WATTS.values()) * (times[-1] - times[0] - 0.5))
        self.assertIn("gpu-0000:65:00.0 idles at 200 W", (run.folder / "logs" / "worker-1.log").read_text())

    def test_where_nothing_is_metered_the_run_says_so_once_and_goes_on(self):
        run, summary = self.train(f"power.sysfs={self.root}", "power.nvml_library=libno-such-thing.so.1")
        self.assertIsNone(summary["energy"])
        self.assertIn("energy: not metered", self.status(run))
        self.assertEqual({row["joules"] for row in self.epochs(run)}, {""})
        self.assertFalse((run.folder / "power.csv").exists())
        log = (run.folder / "logs" / "worker-1.log").read_text()
        self.assertEqual(log.count("energy: not metered"), 1)

    def test_meters_that_may_not_be_read_are_said_with_what_to_do(self):
        sysfs = make_sysfs(self.root / "sys")
        zone = sysfs / "class/powercap/intel-rapl:0"
        # Root could read a file.
        (zone / "energy_uj").unlink()
        (zone / "energy_uj").mkdir()
        run, summary = self.train(f"power.sysfs={sysfs}", "power.gpus=none", "cluster.workers=1", "training.epochs=1")
        self.assertIsNone(summary["energy"])
        log = (run.folder / "logs" / "worker-1.log").read_text()
        self.assertEqual(log.count("chmod a+r"), 1)

    def test_the_confusion_matrix_has_every_test_image(self):
        run, summary = self.train("power.meter=false", "training.epochs=1", "cluster.workers=1")
        with open(run.folder / "confusion.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        self.assertEqual(rows[0][1:], [row[0] for row in rows[1:]])
        counts = [[int(cell) for cell in row[1:]] for row in rows[1:]]
        total = sum(map(sum, counts))
        self.assertEqual(total, 10000)
        right = sum(row[label] for label, row in enumerate(counts))
        self.assertAlmostEqual(right / total, summary["test_accuracy"], places=6)
        self.assertGreater(summary["top5_accuracy"], summary["test_accuracy"])
        self.assertIsNone(summary["energy"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--patience", type=float, default=1, help="factor on all waits")
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    programs = pathlib.Path(OPTIONS.programs)
    missing = [name for name in NEEDED if not (programs / name).exists()]
    if missing or not DATA.is_dir():
        print("skipped: not there:", ", ".join(missing) or DATA)
        return 77
    unittest.main(argv=[sys.argv[0], "-v", *OPTIONS.tests])


if __name__ == "__main__":
    sys.exit(main())
