"""`slackline track`: which calls reach the trackers, whose places stand-ins take, and what is refused."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import support
from slackline_track.events import EventError, EventReader

RUN = "runs/first-1"


class Events(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="slackline-track-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "events.out.tfevents.1.slackline"

    def test_a_record_counts_once_and_when_it_is_whole(self):
        reader = EventReader(self.folder)
        self.assertEqual(reader.read(), [])
        self.file.write_bytes(support.FIRST + support.SECOND[:-1])
        (point,) = reader.read()
        self.assertEqual((point.wall_time, point.step), (1.7e9, 10))
        self.assertEqual(point.scalars["train/loss"], 2.25)
        self.assertAlmostEqual(point.scalars["train/learning_rate"], 0.1)
        self.assertEqual(reader.read(), [])
        self.file.write_bytes(support.FIRST + support.SECOND)
        self.assertEqual([point.step for point in reader.read()], [20])

    def test_a_resumed_run_goes_back_to_its_checkpoint(self):
        self.file.write_bytes(support.FIRST + support.SECOND)
        (self.folder / "events.out.tfevents.2.slackline").write_bytes(
            support.VERSION + support.record(1.7e9 + 9, 15, {"train/loss": 1}) + support.record(1.7e9 + 9, 300, {"train/loss": 1}))
        self.assertEqual([point.step for point in EventReader(self.folder).read()], [10, 15, 300])

    def test_damage_is_an_error(self):
        self.file.write_bytes(b"\xff" * 64)
        with self.assertRaisesRegex(EventError, "events.out.*found a record of .* bytes; allowed are"):
            EventReader(self.folder).read()
        self.file.write_bytes((4).to_bytes(8, "little") + b"crc1" + b"\x0a\xff\x00\x00" + b"crc2")
        with self.assertRaisesRegex(EventError, "no event"):
            EventReader(self.folder).read()


class Track(support.TrackTest):
    def told(self):
        (file,) = (self.root / "wandb").glob("offline-run-*/told.jsonl")
        return [json.loads(line) for line in file.read_text().splitlines()]

    def stored(self):
        (run,) = json.loads((self.root / "mlflow.db").read_text())["runs"]
        return run

    def test_both_get_settings_tags_curves_and_the_summary(self):
        self.end_run()
        said = self.track(RUN, "--wandb", "--mlflow", "--project", "p").stdout
        self.assertIn("wandb sync ", said)
        self.assertIn(f"mlflow ui --backend-store-uri sqlite:///{self.root}/mlflow.db", said)
        init, *logged, summary, finish = self.told()
        self.assertEqual((init[1]["project"], init[1]["name"], init[1]["tags"]),
                         ("p", "first-1", ["run:first-1", "mode:ssp", "model:mlp"]))
        self.assertEqual(init[1]["config"]["model"], {"kind": "mlp", "hidden": [16, 8]})
        self.assertEqual(logged[1], ["log", [20, {"train/loss": 1.5, "test/accuracy": 0.75, "_timestamp": 1.7e9 + 1}]])
        self.assertEqual(summary[1], {"summary/steps": 20, "summary/staleness/mean": 1.5, "summary/state": "done",
                                      "summary/reason": "training is complete"})
        self.assertEqual(finish, ["finish", 0])
        run = self.stored()
        self.assertEqual((run["place"], run["name"], run["status"]), ("p", "first-1", "FINISHED"))
        self.assertEqual({key: run["tags"][key] for key in ("run", "mode", "model", "state")},
                         {"run": "first-1", "mode": "ssp", "model": "mlp", "state": "done"})
        self.assertEqual(run["times"], [1000 * 1700000000, 1700000001000])
        self.assertIn(["model.hidden", "[16, 8]"], run["params"])
        self.assertIn(["test/accuracy", 0.75, 1700000001000, 20], run["metrics"])
        self.assertIn(["summary/steps", 20, 1700000001000, 20], run["metrics"])

    def test_a_repeated_call_adds_what_is_missing(self):
        self.events.write_bytes(support.FIRST)
        self.track(RUN, "--wandb", "--mlflow")
        self.assertEqual((self.stored()["status"], len(self.stored()["metrics"])), ("RUNNING", 2))
        self.events.write_bytes(support.FIRST + support.SECOND)
        self.end_run(state="stopped")
        for _ in range(2):
            self.track(RUN, "--wandb", "--mlflow")
            self.assertEqual((self.stored()["status"], len(self.stored()["metrics"])), ("KILLED", 6))
            self.assertEqual([what for what, _ in self.told()], ["init", "log", "log", "summary", "finish"])
            self.assertEqual(self.told()[-1], ["finish", 1])

    def test_a_run_is_followed_to_its_end(self):
        self.events.write_bytes(support.FIRST)
        process = subprocess.Popen(self.command(RUN, "--mlflow", "--follow"), cwd=self.root, env=self.environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(timeout=3)
        self.assertIn("another `slackline track` follows", self.track(RUN, "--mlflow", code=2).stderr)
        with self.events.open("ab") as file:
            file.write(support.SECOND)
        self.end_run()
        said = process.communicate(timeout=support.DEADLINE_S)[0]
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual((self.stored()["status"], len(self.stored()["metrics"])), ("FINISHED", 6))

    def test_a_resumed_run_is_not_over(self):
        self.end_run()
        self.happens("goes on from checkpoint 1: 10 samples, 1 of 3 epochs done, 2.0 s trained")
        self.track(RUN, "--mlflow")
        self.assertEqual(self.stored()["status"], "RUNNING")
        self.assertFalse([name for name, *_ in self.stored()["metrics"] if name.startswith("summary/")])

    def test_a_summary_of_an_earlier_part_is_not_that_of_the_end(self):
        self.end_run(state="stopped")
        self.happens("goes on from checkpoint 1: 10 samples", "the job is failed: the scheduler is gone")
        self.track(RUN, "--mlflow")
        self.assertEqual((self.stored()["status"], self.stored()["tags"]["reason"]), ("FAILED", "the scheduler is gone"))
        self.assertFalse([name for name, *_ in self.stored()["metrics"] if name.startswith("summary/")])

    def test_a_copy_with_new_times_has_ended(self):
        self.end_run()
        os.utime(self.run_folder / "summary.json", times=(1e9, 1e9))
        self.track(RUN, "--mlflow")
        self.assertEqual(self.stored()["status"], "FINISHED")

    def test_folders_that_cannot_be_tracked_are_named(self):
        self.assertIn("found no job.yaml in runs; allowed is the folder of a run", self.track("runs", "--wandb", code=2).stderr)
        self.assertIn("found no tracker; name one: --wandb, --mlflow or both", self.track(RUN, code=2).stderr)
        self.assertIn("--mlflow-uri without --mlflow", self.track(RUN, "--wandb", "--mlflow-uri", "x", code=2).stderr)
        self.assertIn("slackline track: mlflow: no store nowhere", self.track(RUN, "--mlflow", "--mlflow-uri", "nowhere", code=1).stderr)
        (self.run_folder / "job.yaml").write_text("output: {tensorboard: false}\n")
        self.assertIn("found output.tensorboard: false in", self.track(RUN, "--wandb", code=2).stderr)
        self.assertEqual(sorted(path.name for path in self.root.iterdir()), ["runs"])

    def test_a_package_that_is_missing_is_named_with_the_pip_line(self):
        done = subprocess.run([sys.executable, "-I", "-S", str(support.PYTHON / "slackline_track"), RUN, "--wandb", "--mlflow"],
                              cwd=self.root, capture_output=True, text=True, timeout=support.DEADLINE_S)
        self.assertEqual(done.returncode, 2)
        self.assertIn("has no module yaml, wandb, mlflow.\n", done.stderr)
        self.assertIn("-m pip install PyYAML wandb mlflow\n", done.stderr)

    def test_a_check_before_a_run_looks_for_the_packages_only(self):
        done = self.track("--check", "--wandb", "--mlflow")
        self.assertEqual(done.stdout + done.stderr, "")
        done = subprocess.run([sys.executable, "-I", "-S", str(support.PYTHON / "slackline_track"), "--check", "--wandb"],
                              cwd=self.root, capture_output=True, text=True, timeout=support.DEADLINE_S)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"the Python interpreter \S+ has no module yaml, wandb\.\n[^\n]*\nor leave it out of output.trackers\.$")
        self.assertEqual(sorted(path.name for path in self.root.iterdir()), ["runs"])


if __name__ == "__main__":
    unittest.main()
