"""The studies of several devices in examples/experiments: both files are accepted, and the one for processors runs in small.

    study_test.py BIN_FOLDER FAKE_NVML

Exits with 77 (skipped) where programs or libraries are not there.
"""
import csv
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import support

EXAMPLES = support.HERE.parent.parent / "examples"
NEEDED = ("slackline", "slackline-scheduler", "slackline-ps", "slackline-worker")
PROGRAMS = pathlib.Path()
FAKE_NVML = pathlib.Path()
RUN_S = 540
CELLS = ("plain", "1 worker", "2 workers", "2 workers of one batch")
# Changes that make the study small, and give it fake meters of two GPUs.
SMALL = {r"repeats: 10": "repeats: 2", r"profiled: 3": "profiled: 1", r"cool_down_s: 60": "cool_down_s: 0",
         r"power\.idle_s: 10": "power.idle_s: 1\n  power.gpus: all\n  power.sample_every_ms: 50\n  training.epochs: 3\n"
                               "  power.nvml_library: FAKE_NVML",
         r"plain: plain_loop\.py": "plain: plain_loop.py\npython: PYTHON"}


class Study(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """A copy of the examples in a folder of their own, with pictures in the places that they name."""
        cls.case = support.ExperimentTest()
        cls.case.setUp()
        cls.addClassCleanup(cls.case.doCleanups)
        cls.root = cls.case.root
        for name in ("images/masks.yaml", "experiments/masks-cpu.yaml", "experiments/masks-gpu.yaml", "experiments/plain_loop.py"):
            (cls.root / "examples" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(EXAMPLES / name, cls.root / "examples" / name)
        cls.call([sys.executable, str(EXAMPLES / "images" / "draw_masks.py"), "pictures/masks", "600"])
        cls.call([str(PROGRAMS / "slackline"), "prepare", "pictures/masks", "prepared/masks-small", "--grey", "--size", "49x37", "--split",
                  "train=0.85,validation=0.02,test=0.13", "--seed", "1"])

    @classmethod
    def call(cls, command, code=0):
        done = subprocess.run(command, cwd=cls.root, capture_output=True, text=True, timeout=RUN_S)
        if done.returncode != code:
            raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def experiment(self, file, *options):
        return self.call([sys.executable, str(support.PYTHON / "slackline_experiment"), "--slackline", str(PROGRAMS / "slackline"),
                          file, *options])

    def small(self):
        text = (EXAMPLES / "experiments" / "masks-cpu.yaml").read_text()
        for pattern, replacement in SMALL.items():
            replacement = replacement.replace("FAKE_NVML", str(FAKE_NVML)).replace("PYTHON", sys.executable)
            text, found = re.subn(pattern, lambda _, new=replacement: new, text)
            self.assertEqual(found, 1, pattern)
        (self.root / "examples" / "experiments" / "small.yaml").write_text(text)
        return "examples/experiments/small.yaml"

    def test_both_files_are_accepted(self):
        said = self.experiment("examples/experiments/masks-cpu.yaml", "--dry-run")
        self.assertIn("4 cells x 10 repeats = 40 runs of `plain_loop.py` and `slackline train`", said)
        # This machine need not have its GPUs.
        self.experiment("examples/experiments/masks-gpu.yaml", "--report", "--out", "gpu")
        rows = support.read_csv(self.root / "gpu" / "results.csv")
        self.assertEqual(len({row["devices"] for row in rows}), 6)
        self.assertEqual({row["state"] for row in rows}, {"missing"})

    def test_a_small_study_of_processors(self):
        self.experiment(self.small(), "--out", "out")
        out = self.root / "out"
        rows = support.read_csv(out / "results.csv")
        self.assertEqual([(row["devices"], row["repeat"], row["state"]) for row in rows],
                         [(name, repeat, "done") for name in CELLS for repeat in "12"])
        for row in rows:
            self.assertEqual((row["samples"], row["device_count"]), ("1530", "2" if row["devices"].startswith("2") else "1"), row)
            self.assertAlmostEqual(float(row["efficiency"]), float(row["speed_up"]) / int(row["device_count"]))
            for name in ("train_s", "validation_s", "test_s", "evaluation_ms_per_sample", "test_accuracy"):
                self.assertGreater(float(row[name]), 0, (name, row))
            for name in ("joules", "edp", "joules_above_idle", "idle_watts"):
                self.assertEqual(row[name] == "", row["devices"] == "plain", (name, row))
        plain = [float(row["speed_up"]) for row in rows if row["devices"] == "plain"]
        self.assertAlmostEqual(sum(plain) / 2, 1)
        self.validates_after_each_epoch_and_tests_at_the_end(out / "cells")
        self.traces_the_first_repeat_alone(out / "cells")
        names = {path.stem for path in (out / "plots").glob("*.svg")}
        self.assertLessEqual({"scaling-by-devices", "power", "edp-by-devices", "joules-above-idle-by-devices"}, names)
        devices = support.read_csv(out / "devices.csv")
        self.assertEqual({row["idle_watts"] for row in devices}, {"200", "100"})
        self.assertIn("## Power", (out / "results.md").read_text())

    def validates_after_each_epoch_and_tests_at_the_end(self, cells):
        for cell in cells.iterdir():
            summary = json.loads((cell / "1" / "summary.json").read_text())
            tested = [(one["tested"], one["apart"]) for one in summary["evaluations"]]
            # 2 % and 13 % of 600 pictures.
            self.assertEqual(tested, [(12, False), (12, False), (78, True)], cell)
            self.assertEqual(summary["best_test_accuracy"], max(one["accuracy"] for one in summary["evaluations"] if not one["apart"]))
            with (cell / "1" / "epochs.csv").open(newline="") as file:
                self.assertEqual([float(row["test_s"]) > 0 for row in csv.DictReader(file)], [False, False, True])

    def traces_the_first_repeat_alone(self, cells):
        traced = {str(path.parent.relative_to(cells)) for path in cells.glob("*/*/trace-worker-1.json")}
        self.assertEqual(traced, {"devices-1-worker/1", "devices-2-workers/1", "devices-2-workers-of-one-batch/1"})


if __name__ == "__main__":
    PROGRAMS, FAKE_NVML = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
    missing = [name for name in NEEDED if not (PROGRAMS / name).exists()]
    missing += [name for name in ("torch", "PIL") if importlib.util.find_spec(name) is None]
    if missing or not FAKE_NVML.exists():
        print(f"SKIP: found no {', '.join(missing) or FAKE_NVML}")
        sys.exit(77)
    unittest.main(verbosity=2)
