"""Two real trainings of a small network, as a user would start them.

    e2e_test.py BIN_FOLDER

Exits with 77 (skipped) where the programs or the data are not there.
"""
import pathlib
import subprocess
import sys
import unittest

import support

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
NEEDED = ("slackline", "slackline-scheduler", "slackline-ps", "slackline-worker")
PROGRAMS = pathlib.Path()
TRAINING_S = 300

EXPERIMENT = """
run: train
job:
  model: {kind: mlp, hidden: [32]}
  data: {train_images_max: 3000}
  training: {epochs: 3}
  optimizer: {lr: 0.1}
  worker: {threads: 1}
  output: {report_every_ms: 100}
grid:
  consistency.mode: [bsp, ssp]
target_accuracy: 0.6
"""


class RealTraining(support.ExperimentTest):
    def setUp(self):
        super().setUp()
        self.slackline = PROGRAMS / "slackline"

    def test_two_modes(self):
        self.write("", EXPERIMENT)
        done = subprocess.run(self.command(), cwd=self.root, capture_output=True, text=True, timeout=TRAINING_S)
        run = self.out / "cells" / "mode-bsp" / "1"
        if (run / "report.json").exists() and not (run / "summary.json").exists():
            self.skipTest("this slackline writes no summary.json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = self.results()
        self.assertEqual([(row["consistency.mode"], row["state"]) for row in rows], [("bsp", "done"), ("ssp", "done")])
        for row in rows:
            self.assertGreater(float(row["test_accuracy"]), 0.6)
            self.assertEqual((row["workers"], row["samples"]), ("2", "9000"))
            self.assertTrue(row["time_to_target_s"] and row["staleness_mean"]
                            and row["wait_fraction"] and row["f1_macro"])
        text = (self.out / "index.html").read_text()
        self.assertIn("<svg", text)
        self.assertIn("Ankle boot", text)
        self.assertGreater(len(support.read_csv(self.out / "reports.csv")), 2)


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    missing = [name for name in NEEDED if not (PROGRAMS / name).exists()]
    if missing or not DATA.is_dir():
        print(f"SKIP: found no {', '.join(missing) or DATA}")
        sys.exit(77)
    unittest.main(verbosity=2)
