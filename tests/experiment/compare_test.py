"""`slackline compare`: which folders it takes, what it shows of them, and what it refuses."""
import json
import pathlib
import subprocess
import sys
import unittest

import support
import fake_slackline
import yaml
from slackline_experiment import compare
from slackline_experiment.document import Wrong

JOB = {"name": "base", "seed": 1, "consistency": {"mode": "ssp", "staleness_max": 4}, "cluster": {"workers": 2, "servers": 2}}


class Compare(support.ExperimentTest):
    def make_run(self, name, seed=1, staleness_max=4, **settings):
        """A run that is done, as the stand-in leaves it, with its job."""
        folder = self.root / "runs" / name
        folder.mkdir(parents=True)
        job = {**JOB, "seed": seed, "consistency": {**JOB["consistency"], "staleness_max": staleness_max}}
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        fake_slackline.write_run({**fake_slackline.DEFAULTS, "seed": seed, "consistency.staleness_max": staleness_max,
                                  **settings}, "ssp", folder)
        return folder

    def command(self, *options):
        return [sys.executable, str(support.PYTHON / "slackline_compare"), "--slackline", str(self.slackline), *options]

    def compare(self, *options, code=0):
        done = subprocess.run(self.command(*options), cwd=self.root, capture_output=True, text=True,
                              timeout=support.DEADLINE_S)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def drop_accuracy(self, folder):
        """As a script leaves it that measures the loss alone."""
        summary = json.loads((folder / "summary.json").read_text())
        for one in [summary, *summary["evaluations"]]:
            one.update({key: None for key in ("accuracy", "test_accuracy", "best_test_accuracy") if key in one})
        (folder / "summary.json").write_text(json.dumps(summary))
        (folder / "report.json").unlink()
        rows = [line.split(",") for line in (folder / "metrics.csv").read_text().splitlines()]
        at = rows[0].index("test_accuracy")
        (folder / "metrics.csv").write_text("".join(
            ",".join("" if number and column == at else cell for column, cell in enumerate(row)) + "\n"
            for number, row in enumerate(rows)))

    def test_runs_stand_beside_each_other_by_the_names_of_their_folders(self):
        self.make_run("near", staleness_max=0)
        self.make_run("far", staleness_max=8)
        self.compare("runs/near", "runs/far", "--target-accuracy", "0.85")
        out = self.root / "comparison"
        rows = support.read_csv(out / "results.csv")
        self.assertEqual([(row["cell"], row["run"], row["seed"], row["state"]) for row in rows],
                         [("near", "near", "1", "done"), ("far", "far", "1", "done")])
        self.assertTrue(all(row["time_to_target_s"] for row in rows))
        differences = support.read_csv(out / "differences.csv")
        self.assertEqual({(row["cell"], row["against"], row["verdict"]) for row in differences}, {("far", "near", "one pair")})
        page = (out / "index.html").read_text()
        self.assertIn("$ slackline compare runs/near runs/far --target-accuracy 0.85", page)
        self.assertIn("<td>consistency.staleness_max=8</td>", page)
        names = {path.stem for path in (out / "plots").glob("*.svg")}
        self.assertGreater(names, {"accuracy-epochs", "accuracy-time", "loss-time", "staleness", "test-accuracy-by-run"})
        # The folder of an earlier comparison may be written again.
        self.compare("runs/far", "runs/near")

    def test_runs_of_one_label_are_repeats(self):
        for seed in (1, 2):
            self.make_run(f"near-{seed}", seed, 0)
            self.make_run(f"far-{seed}", seed, 8)
        self.compare("a=runs/near-1", "a=runs/near-2", "b=runs/far-1", "b=runs/far-2", "--out", "out")
        rows = support.read_csv(self.root / "out" / "results.csv")
        self.assertEqual([(row["cell"], row["repeat"], row["seed"]) for row in rows],
                         [("a", "1", "1"), ("a", "2", "2"), ("b", "1", "1"), ("b", "2", "2")])
        self.assertEqual({row["n"] for row in support.read_csv(self.root / "out" / "differences.csv")}, {"2"})
        # Other seeds are no pairs.
        self.compare("a=runs/near-1", "a=runs/near-2", "b=runs/far-2", "b=runs/far-1", "--out", "out")
        self.assertEqual(support.read_csv(self.root / "out" / "differences.csv"), [])

    def test_a_running_run_shows_its_reports(self):
        self.make_run("done")
        running = self.make_run("running")
        (running / "summary.json").unlink()
        self.compare("runs/done", "runs/running")
        row = support.read_csv(self.root / "comparison" / "results.csv")[1]
        self.assertEqual((row["state"], row["workers"], row["samples"], row["steps"]), ("running", "2", "36000", "563"))
        self.assertTrue(row["test_accuracy"] and row["samples_per_second"])
        self.assertIn("it has no summary.json", (self.root / "comparison" / "index.html").read_text())
        self.assertEqual(len(support.read_csv(self.root / "comparison" / "evaluations.csv")), 12)

    def test_a_run_without_an_accuracy_has_its_loss(self):
        with_it, without = self.make_run("with"), self.make_run("without")
        self.drop_accuracy(without)
        self.compare("runs/with", "runs/without")
        rows = support.read_csv(self.root / "comparison" / "results.csv")
        self.assertEqual((bool(rows[0]["test_accuracy"]), rows[1]["test_accuracy"], rows[1]["loss"]), (True, "", "0.3"))
        self.drop_accuracy(with_it)
        self.compare("runs/with", "runs/without")
        page = (self.root / "comparison" / "index.html").read_text()
        self.assertIn("Not drawn: Test accuracy over time", page)
        self.assertIn("<h3>Training loss over time</h3>", page)

    def test_folders_without_a_run_are_named_and_nothing_is_written(self):
        run = self.make_run("one")
        begun = self.make_run("begun")
        (begun / "summary.json").unlink()
        (begun / "metrics.csv").write_text("time_s,epoch\n")
        (self.root / "empty").mkdir()
        said = self.compare("runs", "nowhere", "empty", "runs/begun", "runs/one", "runs/../runs/one", code=2).stderr
        lines = said.splitlines()
        self.assertIn("found no job.yaml in runs; allowed is a run folder", lines[0])
        self.assertIn("2 runs are below it: name them, for example runs/begun", lines[0])
        self.assertIn("found no folder nowhere; allowed", lines[1])
        self.assertIn("found no job.yaml in empty; allowed", lines[2])
        self.assertNotIn("below it", lines[2])
        self.assertIn("found no summary.json in runs/begun, and no report in metrics.csv", lines[3])
        self.assertIn("found runs/../runs/one twice", lines[4])
        self.assertEqual(lines[5:], ["Nothing was written."])
        (run / "summary.json").write_text('{"state": "done", "steps": "many"}')
        self.assertIn("steps: found \"many\"; allowed is a number", self.compare("runs/one", code=2).stderr)
        self.assertFalse((self.root / "comparison").exists())

    def test_repeats_have_equal_settings(self):
        self.make_run("near", 1, 0)
        self.make_run("far", 2, 8)
        said = self.compare("a=runs/near", "a=runs/far", code=2).stderr
        self.assertIn("label a: found runs that differ in consistency.staleness_max; allowed", said)

    def test_a_folder_with_other_files_is_left_alone(self):
        self.make_run("one")
        said = self.compare("runs/one", "--out", "runs", code=2).stderr
        self.assertIn("found other files in runs; allowed is a new or empty folder", said)
        self.assertIn("allowed is 0 to 1", self.compare("runs/one", "--target-accuracy", "85", code=2).stderr)

    def test_equal_names_become_paths(self):
        self.assertEqual(compare.named(["a/x", "b/x", "c=b/y", "d/z"]),
                         [("a/x", pathlib.Path("a/x")), ("b/x", pathlib.Path("b/x")), ("c", pathlib.Path("b/y")),
                          ("z", pathlib.Path("d/z"))])
        with self.assertRaisesRegex(Wrong, "found 101 runs; allowed are 100"):
            compare.read_all(["x"] * 101)


if __name__ == "__main__":
    unittest.main()
