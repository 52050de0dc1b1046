"""`slackline plan` with the real programs: a small job is planned, and then trained, and both take about as long.

    plan_e2e.py BIN_FOLDER

Exits with 77 (skipped) where the programs or the data are not there.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
NEEDED = ("slackline", "slackline-scheduler", "slackline-ps", "slackline-worker", "slackline-simulator")
BATCHES = (32, 256)
JOB = """
name: planned
optimizer: {lr: 0.1}
worker: {threads: 1}
data: {train_images_max: 20000}
training: {epochs: 8, evaluate_every_epochs: 0}
cluster: {servers: 1, workers: 1}
checkpoint: {at_end: false}
wire: {same_host: tcp}
"""
# What else runs on this machine meanwhile comes and goes.
FACTOR = 2.0

PROGRAMS = pathlib.Path()


class PlanAndRun(unittest.TestCase):
    def test_the_run_takes_about_as_long_as_was_planned(self):
        with tempfile.TemporaryDirectory(prefix="slackline-plan-e2e-") as root:
            job = pathlib.Path(root) / "job.yaml"
            job.write_text(JOB)
            planned = subprocess.run([PROGRAMS / "slackline", "plan", job, "--batch", ",".join(map(str, BATCHES)), "--nodes",
                                      "1,2", "--measure", "12s", "--json"], capture_output=True, text=True, check=False,
                                     stdin=subprocess.DEVNULL)
            self.assertEqual(planned.returncode, 0, planned.stderr)
            cells = {(cell["batch"], cell["nodes"]): cell for cell in json.loads(planned.stdout)["plan"]}
            self.assertEqual(set(cells), {(batch, nodes) for batch in BATCHES for nodes in (1, 2)})
            for batch in BATCHES:
                self.assertGreater(cells[batch, 2]["samples_per_second"], 1.2 * cells[batch, 1]["samples_per_second"])
                run = pathlib.Path(root) / f"run-{batch}"
                trained = subprocess.run([PROGRAMS / "slackline", "train", job, "--quiet", "--run-folder", run, "--set",
                                          f"training.batch_size={batch}"], capture_output=True, text=True, check=False,
                                         stdin=subprocess.DEVNULL)
                self.assertEqual(trained.returncode, 0, trained.stderr)
                took = json.loads((run / "summary.json").read_text())["time_s"]
                promised = cells[batch, 1]["hours"] * 3600
                print(f"batch {batch}: planned {promised:.2f} s, took {took:.2f} s")
                self.assertLess(max(took / promised, promised / took), FACTOR)


def main():
    global PROGRAMS
    PROGRAMS = pathlib.Path(sys.argv[1]).resolve()
    missing = [name for name in NEEDED if not (PROGRAMS / name).exists()]
    if missing or not DATA.is_dir():
        print("skipped: not there:", ", ".join(missing) or DATA)
        return 77
    unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    sys.exit(main())
