"""Running: what is run, what is not run again, and how it stops."""
import json
import os
import pathlib
import shlex
import shutil
import signal
import sys
import unittest

from support import ExperimentTest

TRAINED = "job: job.yaml\nrun: train\nplots: [staleness]\n"
TWO_BY_TWO = "grid: {optimizer.lr: [0.1, 0.2]}\nrepeats: 2\n"


def is_alive(process):
    try:
        status = pathlib.Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


class Running(ExperimentTest):
    def test_every_cell_is_run_with_each_seed(self):
        self.write("set: {training.epochs: 3}\n" + TWO_BY_TWO)
        (self.root / "job.yaml").write_text("seed: 7\n")
        said = self.run_experiment().stdout
        calls = [(call["mode"], call["job"]["optimizer.lr"], call["job"]["seed"], call["job"]["training.epochs"])
                 for call in self.calls()]
        self.assertEqual(calls, [("simulate", 0.1, 7, 3), ("simulate", 0.2, 7, 3), ("simulate", 0.1, 8, 3),
                                 ("simulate", 0.2, 8, 3)])
        self.assertIn("[1/4] lr 0.1, repeat 1\n", said)
        self.assertRegex(said, r"\[4/4\] lr 0.2, repeat 2; about [\d.]+ s left\n")

    def test_real_runs_are_trained(self):
        self.write("", TRAINED)
        self.run_experiment()
        self.assertEqual([call["mode"] for call in self.calls()], ["train"])
        self.assertIn("allowed is 1", self.run_experiment("--jobs", "2", code=2).stderr)

    def test_the_workers_may_be_a_script(self):
        (self.root / "work.py").write_text("pass\n")
        # An interpreter whose package slackline is empty.
        python = self.root / "venv" / "python"
        (self.root / "venv" / "slackline").mkdir(parents=True)
        (self.root / "venv" / "slackline" / "__init__.py").touch()
        python.write_text(f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(python.parent))} exec {shlex.quote(sys.executable)} \"$@\"\n")
        python.chmod(0o755)
        text = "script: work.py\npython: venv/python\narguments: [--depth, 18]\ngrid: {optimizer.lr: [0.1, 0.2]}\nrepeats: 2\n"
        self.write(text, TRAINED)
        self.assertIn("4 runs of `slackline launch`", self.run_experiment("--dry-run").stdout)
        self.run_experiment()
        self.assertEqual([(call["mode"], call["job"]["model.kind"], call["job"]["seed"]) for call in self.calls()],
                         [("launch", "external", seed) for seed in (1, 1, 2, 2)])
        self.assertEqual(self.calls()[0]["script"], {"path": str(self.root.resolve() / "work.py"),
                                                     "python": str(python), "arguments": ["--depth", "18"]})
        self.assertEqual([row["state"] for row in self.results()], 4 * ["done"])
        # Another script, other runs.
        self.assertIn("4 of 4 runs are complete", self.run_experiment().stdout)
        (self.root / "work.py").write_text("import slackline\n")
        self.assertIn("its job has changed", self.run_experiment().stdout)
        # A point of an axis may have arguments of its own.
        self.write(text.replace("grid: {", "grid: {backend: [{name: gloo, arguments: [--backend, gloo]}, {name: nccl}], "), TRAINED)
        self.run_experiment()
        self.assertEqual([call["script"]["arguments"] for call in self.calls()[-8:]],
                         2 * (2 * [["--depth", "18", "--backend", "gloo"]] + 2 * [["--depth", "18"]]))
        self.write(text, TRAINED)
        # A job that names its model keeps it.
        (self.root / "job.yaml").write_text("model: {kind: mlp}\n")
        self.run_experiment()
        self.assertNotIn("model.kind", self.calls()[-1]["job"])
        python.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S \"$@\"\n")
        said = self.run_experiment("--dry-run", code=2).stderr
        self.assertRegex(said, r"python: .*venv/python cannot import slackline \(ModuleNotFoundError: .*\); install it there")

    def test_a_cell_may_run_without_slackline(self):
        (self.root / "plain.py").write_text(
            "import json, pathlib, sys, yaml\n"
            "job, folder = yaml.safe_load(open(sys.argv[1])), pathlib.Path(sys.argv[3])\n"
            "folder.mkdir(parents=True)\n"
            "(folder / 'summary.json').write_text(json.dumps({'state': 'done', 'seed': job['seed'], 'samples_per_second': job['optimizer.lr']}))\n")
        text = ("plain: plain.py\npython: " + sys.executable + "\ngrid:\n  how:\n    - {name: plain, set: {run: plain, optimizer.lr: 0.4}}\n"
                "    - {name: wrapped}\nrepeats: 2\nbaseline: {how: plain}\n")
        self.write(text, TRAINED)
        self.assertIn("4 runs of `plain.py` and `slackline train`", self.run_experiment("--dry-run").stdout)
        self.run_experiment()
        self.assertEqual([(call["mode"], call["job"]["seed"]) for call in self.calls()], [("train", 1), ("train", 2)])
        rows = [row for row in self.results() if row["how"] == "plain"]
        self.assertEqual([(row["state"], float(row["samples_per_second"]), float(row["speed_up"])) for row in rows], 2 * [("done", 0.4, 1)])
        job = (self.out / "cells" / "how-plain" / "2.yaml").read_text()
        self.assertIn("seed: 2\n", job)
        self.assertIn("4 of 4 runs are complete", self.run_experiment().stdout)
        # Another script, other runs of that cell alone.
        (self.root / "plain.py").write_text("raise SystemExit('no LibTorch')\n")
        said = self.run_experiment(code=1).stdout
        self.assertIn("how-plain: its job has changed", said)
        self.assertIn("FAILED (exit code 1: no LibTorch)", said)

    def test_the_first_repeats_may_record_traces(self):
        self.write("profiled: 1\n" + TWO_BY_TWO, TRAINED)
        self.run_experiment()
        self.assertEqual([call["job"].get("worker.trace", "").replace(str(self.root.resolve()), "") for call in self.calls()],
                         ["/experiments/trial/cells/lr-0.1/1/trace.json", "/experiments/trial/cells/lr-0.2/1/trace.json", "", ""])

    def test_repeats_go_through_the_folds(self):
        for name in ("one", "two"):
            (self.root / name).mkdir()
            (self.root / name / "index.json").touch()
        self.write("folds: [one, two]\nrepeats: 4\n", TRAINED)
        self.run_experiment()
        root = self.root.resolve()
        self.assertEqual([(call["job"]["data.path"], call["job"]["seed"]) for call in self.calls()],
                         [(str(root / "one"), 1), (str(root / "two"), 1), (str(root / "one"), 2), (str(root / "two"), 2)])
        self.assertEqual([row["fold"] for row in self.results()], ["1", "2", "1", "2"])
        text = (self.out / "results.md").read_text()
        table = text[text.index("## Folds"):].splitlines()[2:]
        self.assertEqual([line.split("|")[2].strip() for line in table if line], ["fold", "---", "1", "2", "all"])
        both = [100 * float(row["test_accuracy"]) for row in self.results() if row["fold"] == "1"]
        self.assertIn(f"{sum(both) / 2:.2f} ±", table[2])
        self.assertRegex((self.out / "index.html").read_text(), '<section id="folds">')
        # Other images, other runs.
        (self.root / "three").mkdir()
        (self.root / "three" / "index.json").touch()
        self.write("folds: [one, three]\nrepeats: 4\n", TRAINED)
        self.assertIn("its job has changed", self.run_experiment().stdout)

    def test_a_setting_may_name_the_repeat(self):
        self.write("grid: {model.weights: [first/%r/w, second/%r/w]}\nrepeats: 2\n", TRAINED)
        self.run_experiment()
        self.assertEqual([call["job"]["model.weights"] for call in self.calls()],
                         ["first/1/w", "second/1/w", "first/2/w", "second/2/w"])
        # In its first repeat, this one is the same job.
        self.write("grid: {model.weights: [first/1/w, second/%r/w]}\nrepeats: 2\n", TRAINED)
        self.run_experiment()
        self.assertEqual([call["job"]["model.weights"] for call in self.calls()[4:]], ["first/1/w", "first/1/w"])

    def test_real_and_simulated_runs_stand_side_by_side(self):
        self.write("grid: {run: [train, simulate], optimizer.lr: [0.1]}\n")
        self.run_experiment()
        self.assertEqual([call["mode"] for call in self.calls()], ["train", "simulate"])
        self.assertNotIn("run", self.calls()[0]["job"])
        rows = (self.out / "results.csv").read_text().splitlines()
        self.assertEqual([row.split(",")[1] for row in rows], ["run", "train", "simulate"])
        self.assertIn("allowed is 1", self.run_experiment("--jobs", "2", code=2).stderr)

    def test_a_dry_run_lists_the_cells_and_leaves_nothing(self):
        self.write(TWO_BY_TWO)
        said = self.run_experiment("--dry-run").stdout
        self.assertIn("   1  lr-0.1  (lr 0.1; seeds 1 to 2)\n", said)
        self.assertIn("2 cells x 2 repeats = 4 runs", said)
        self.assertEqual(self.calls(), [])
        self.assertFalse(self.out.exists())

    def test_a_cell_that_does_not_pass_is_named_and_nothing_runs(self):
        self.write("grid:\n  who:\n    - {name: good}\n    - {name: bad, set: {fake.refuse: no such mode}}\n")
        said = self.run_experiment(code=2).stderr
        self.assertIn("cell who-bad:\n", said)
        self.assertIn("no such mode", said)
        self.assertNotIn("who-good", said)
        self.assertEqual(self.calls(), [])
        self.assertFalse(self.out.exists())

    def test_what_cannot_be_simulated_is_told_before_anything_runs(self):
        self.write("grid: {run: [train, simulate], fake.not-simulated: [no shared memory here]}\n")
        said = self.run_experiment("--dry-run", code=2).stderr
        self.assertIn("no shared memory here", said)
        self.assertIn("simulate", said)
        self.assertNotIn("train", said.split("no shared memory here")[0])

    def test_what_this_machine_cannot_do_is_told_before_anything_runs(self):
        self.write("grid: {run: [train, simulate], fake.not-here: [no such folder]}\n")
        for dry_run in (("--dry-run",), ()):
            said = self.run_experiment(*dry_run, code=2).stderr
            self.assertIn("no such folder (train)", said)
            self.assertIn("no such folder (simulate)", said)
        self.assertEqual(self.calls(), [])
        self.assertFalse(self.out.exists())

    def test_a_report_needs_nothing_of_this_machine(self):
        self.write("grid: {optimizer.lr: [0.1]}\n")
        self.run_experiment()
        self.write("grid: {optimizer.lr: [0.1], fake.not-here: [no such folder]}\n")
        self.run_experiment("--report")

    def test_mistakes_of_an_inline_job_have_the_line_of_the_experiment_file(self):
        self.write("job:\n  optimizer.lr: 0.7\n  fake.refuse: this\n", "run: train\n# a comment\n")
        self.assertIn("trial.yaml:6: this", self.run_experiment(code=2).stderr)

    def test_an_inline_job_keeps_its_values(self):
        self.write("job:\n  optimizer.lr: 0.7\n  data: {path: here}\n  model: {weights: w}\n", "run: train\nplots: [staleness]\n")
        self.run_experiment()
        call = json.loads((self.out / "calls.log").read_text())
        self.assertEqual(call["job"]["optimizer.lr"], 0.7)
        self.assertEqual(call["job"]["data.path"], str(self.root.resolve() / "here"))
        self.assertEqual(call["job"]["model.weights"], str(self.root.resolve() / "w"))

    def test_several_simulated_runs_at_a_time_give_the_same_results(self):
        self.write(TWO_BY_TWO)
        self.run_experiment()
        one = [dict(row, wall_s="") for row in self.results()]
        shutil.rmtree(self.out)
        self.run_experiment("--jobs", "3")
        self.assertEqual([dict(row, wall_s="") for row in self.results()], one)


class Resuming(ExperimentTest):
    def test_complete_runs_are_not_repeated(self):
        self.write(TWO_BY_TWO)
        self.run_experiment()
        said = self.run_experiment().stdout
        self.assertEqual(len(self.calls()), 4)
        self.assertIn("4 of 4 runs are complete already.", said)

    def test_only_what_changed_is_run_anew(self):
        self.write(TWO_BY_TWO)
        self.run_experiment()
        self.write("grid: {optimizer.lr: [0.1, 0.3]}\nrepeats: 3\n")
        self.run_experiment()
        self.assertEqual([(call["job"]["optimizer.lr"], call["job"]["seed"]) for call in self.calls()[4:]],
                         [(0.3, 1), (0.3, 2), (0.1, 3), (0.3, 3)])
        (self.root / "job.yaml").write_text("name: another\n")
        said = self.run_experiment().stdout
        self.assertIn("lr-0.1: its job has changed; its runs are done anew.", said)
        self.assertEqual(len(self.calls()), 14)

    def test_a_run_of_the_other_kind_is_another_run(self):
        self.write("")
        self.run_experiment()
        self.write("", TRAINED)
        self.run_experiment()
        self.assertEqual([call["mode"] for call in self.calls()], ["simulate", "train"])

    def test_an_interrupted_run_is_stopped_in_good_order_and_done_anew(self):
        self.write("grid: {fake.hang: [0, 1]}\nrepeats: 2\n")
        process = self.start_experiment()
        folder = self.out / "cells" / "hang-1" / "1"
        self.wait_for("a run that hangs", (folder / "hanging").exists)
        said = self.interrupt(process)
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("To go on: slackline experiment trial.yaml\n", said)
        self.assertIn("fake: stopped in good order", folder.with_suffix(".log").read_text())
        (self.root / "free").touch()
        self.run_experiment()
        self.assertEqual([(call["job"]["fake.hang"], call["job"]["seed"]) for call in self.calls()],
                         [(0, 1), (1, 1), (1, 1), (0, 2), (1, 2)], "the interrupted run, and no other, was run twice")
        self.assertFalse((folder / "hanging").exists(), "what the first attempt left is gone")
        self.assertEqual([row["state"] for row in self.results()], ["done"] * 4)

    def test_a_reader_that_is_gone_does_not_kill_a_run(self):
        self.write("grid: {fake.hang: [0, 1]}\n")
        process = self.start_experiment()
        folder = self.out / "cells" / "hang-1" / "1"
        self.wait_for("a run that hangs", (folder / "hanging").exists)
        process.stdout.close()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 1)
        self.assertIn("fake: stopped in good order", folder.with_suffix(".log").read_text())

    def test_a_hangup_stops_in_good_order_and_one_that_was_ignored_does_nothing(self):
        self.write("set: {fake.hang: 1}\n")
        folder = self.out / "cells" / "job" / "1"
        process = self.start_experiment(ignored=(signal.SIGHUP, signal.SIGINT))
        self.wait_for("a run that hangs", (folder / "hanging").exists)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
        said = process.communicate(timeout=60)[0]
        self.assertEqual(said.count("Stopping job/1"), 1, said)
        self.assertIn("fake: stopped in good order", folder.with_suffix(".log").read_text())
        process = self.start_experiment()
        self.wait_for("a run that hangs", lambda: len(self.calls()) == 2 and (folder / "hanging").exists())
        process.send_signal(signal.SIGHUP)
        said = process.communicate(timeout=60)[0]
        self.assertIn("fake: stopped in good order", folder.with_suffix(".log").read_text(), said)

    def test_a_run_without_a_summary_is_done_anew(self):
        self.write("")
        self.run_experiment()
        summary = self.out / "cells" / "job" / "1" / "summary.json"
        for text in ('{"state": "stopped"}', '{"sta', None):
            with self.subTest(text):
                summary.unlink()
                if text:
                    summary.write_text(text)
                before = len(self.calls())
                self.run_experiment()
                self.assertEqual(len(self.calls()), before + 1)

    def test_two_do_not_work_in_one_folder(self):
        self.write("set: {fake.hang: 1}\n")
        process = self.start_experiment()
        hanging = self.out / "cells" / "job" / "1" / "hanging"
        self.wait_for("a run that hangs", hanging.exists)
        self.addCleanup(os.kill, int(hanging.read_text()), signal.SIGKILL)
        self.assertIn("another `slackline experiment`", self.run_experiment(code=2).stderr)
        # What it left still writes: the folder stays taken until that has ended.
        process.kill()
        process.wait()
        self.assertIn("or a run that it left", self.run_experiment(code=2).stderr)

    def test_a_run_that_does_not_stop_is_killed(self):
        self.write("set: {fake.hang: 2}\n")
        process = self.start_experiment()
        hanging = self.out / "cells" / "job" / "1" / "hanging"
        self.wait_for("a run that hangs", hanging.exists)
        process.stdout.readline()
        for _ in range(2):
            os.kill(process.pid, signal.SIGINT)
            self.assertIn("Stopping job/1", process.stdout.readline())
        child = int(hanging.read_text())
        self.assertIn("job/1 did not stop; killed.", self.interrupt(process))
        self.addCleanup(lambda: is_alive(child) and os.kill(child, signal.SIGKILL))
        self.wait_for("the end of the run", lambda: not is_alive(child))

    def test_a_pause_ends_with_an_interrupt(self):
        self.write("repeats: 2\ncool_down_s: 600\n")
        process = self.start_experiment()
        self.wait_for("the first run's end", self.has_finished_run)
        said = self.interrupt(process)
        self.assertIn("To go on", said)
        self.assertEqual(len(self.calls()), 1)

    def has_finished_run(self):
        path = self.out / "experiment.lock.json"
        return path.exists() and any(cell["wall_s"] for cell in json.loads(path.read_text())["cells"].values())


class Failing(ExperimentTest):
    FAILING = ("grid:\n  who:\n    - {name: bad, set: {fake.fail: the disk is full}}\n    - {name: good}\n")

    def test_the_first_failed_run_ends_it(self):
        self.write(self.FAILING)
        said = self.run_experiment(code=1).stdout
        self.assertIn("FAILED (exit code 1: fake: the disk is full); its log: experiments/trial/cells/who-bad/1.log", said)
        self.assertEqual(len(self.calls()), 1)
        self.assertEqual([(row["who"], row["state"]) for row in self.results()],
                         [("bad", "failed"), ("good", "missing")])

    def test_with_keep_going_the_rest_is_run(self):
        self.write(self.FAILING)
        self.run_experiment("--keep-going", code=1)
        self.assertEqual([(row["who"], row["state"]) for row in self.results()], [("bad", "failed"), ("good", "done")])
        self.assertIn("the disk is full", self.results()[0]["reason"])
        self.assertIn("the disk is full", (self.out / "index.html").read_text())
        self.assertIn("the disk is full", (self.out / "results.md").read_text())

    def test_a_failed_run_is_tried_again(self):
        self.write(self.FAILING)
        self.run_experiment("--keep-going", code=1)
        self.run_experiment("--keep-going", code=1)
        self.assertEqual(len(self.calls()), 3)

    def test_a_field_of_a_wrong_type_fails_the_run(self):
        self.write("set: {fake.break: test_accuracy}\n")
        said = self.run_experiment(code=1).stdout
        self.assertIn('summary.json: test_accuracy: found ["not", "a", "number"]; allowed is a number', said)


if __name__ == "__main__":
    unittest.main()
