"""`--slurm`: what is submitted, collected, left alone and submitted again, with a stand-in for SLURM's queue."""
import json
import os
import pathlib
import sys
import unittest

import fake_slackline
from support import ExperimentTest

TRAINED = "job: job.yaml\nrun: train\nplots: [staleness]\n"
TWO = "grid: {optimizer.lr: [0.1, 0.2]}\n"
NODES = ("--", "--nodes=2", "--time=5")


class SlurmTest(ExperimentTest):
    """The queue is a file `queue` in the experiment's folder."""

    def setUp(self):
        super().setUp()
        self.queue = self.root / "queue"
        self.queue.touch()
        programs = self.root / "bin"
        programs.mkdir()
        self.install("sbatch", "exit 1")
        self.install("squeue", f"[ -e '{self.queue}' ] || {{ echo no such cluster >&2; exit 1; }}\ncat '{self.queue}'")
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{programs}:/usr/bin:/bin"
        self.addCleanup(os.environ.__setitem__, "PATH", before)

    def install(self, name, text):
        program = self.root / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)

    def folder(self, cell, repeat=1):
        return self.out / "cells" / cell / str(repeat)

    def number(self, cell, repeat=1):
        return (self.folder(cell, repeat) / "submit" / "job-id").read_text().strip()

    def leave_queue(self, *numbers):
        lines = self.queue.read_text().splitlines()
        kept = [line for line in lines if line.split("|")[0] not in numbers]
        self.assertEqual(len(kept), len(lines) - len(numbers))
        self.queue.write_text("".join(f"{line}\n" for line in kept))

    def end_well(self, cell, repeat=1):
        folder = self.folder(cell, repeat)
        fake_slackline.write_run(json.loads((folder / "submit" / "job.json").read_text()), "bsp", folder)
        self.leave_queue(self.number(cell, repeat))

    def end_badly(self, cell, words, repeat=1):
        (self.folder(cell, repeat) / "submit" / f"slurm-{self.number(cell, repeat)}.out").write_text(words)
        self.leave_queue(self.number(cell, repeat))

    def states(self):
        return [row["state"] for row in self.results()]


class Submitting(SlurmTest):
    def test_each_run_is_a_job_and_the_call_returns(self):
        self.write(TWO + "repeats: 2\n", TRAINED)
        said = self.run_experiment("--slurm", "--stop-before", "60", "--no-requeue", "--interface", "ib0",
                                   "--srun-option=--container-image=i", *NODES).stdout
        calls = self.calls()
        self.assertEqual([(call["job"]["optimizer.lr"], call["job"]["seed"]) for call in calls],
                         [(0.1, 1), (0.2, 1), (0.1, 2), (0.2, 2)])
        self.assertEqual(calls[0]["flags"], ["--no-requeue", "--srun-option=--container-image=i"])
        self.assertEqual(calls[0]["values"], {"--stop-before": "60", "--interface": "ib0"})
        self.assertEqual(calls[2]["sbatch"], ["--job-name=trial-lr-0.1-2", "--nodes=2", "--time=5"])
        self.assertIn("lr-0.2/1: submitted as SLURM job 2\n", said)
        self.assertIn("4 of 4 runs are in SLURM's queue. To collect their results: slackline experiment trial.yaml --slurm", said)
        self.assertEqual(self.states(), 4 * ["missing"])
        self.assertEqual(self.results()[0]["reason"], "SLURM job 1 has left no result yet")

    def test_a_second_call_collects_leaves_alone_and_submits_again(self):
        self.write("grid: {optimizer.lr: [0.1, 0.2, 0.3]}\n", TRAINED)
        self.run_experiment("--slurm", *NODES)
        self.end_well("lr-0.1")
        self.end_badly("lr-0.2", "some words\nno such GPU\n")
        said = self.run_experiment("--slurm", *NODES, code=1).stdout
        self.assertIn("1 of 3 runs are complete.", said)
        self.assertIn("lr-0.3/1: SLURM job 3 is PENDING (Priority)\n", said)
        self.assertIn("lr-0.2/1: FAILED (SLURM job 2 ended without a result: no such GPU); its log: "
                      "experiments/trial/cells/lr-0.2/1/submit/slurm-2.out\n", said)
        self.assertIn("lr-0.2/1: submitted as SLURM job 4\n", said)
        self.assertEqual(len(self.calls()), 4)
        self.assertEqual(self.states(), ["done", "missing", "missing"])
        # The log of the attempt that failed is still there.
        self.assertIn("no such GPU", self.folder("lr-0.2").with_suffix(".log").read_text())
        self.end_well("lr-0.2")
        self.end_well("lr-0.3")
        self.assertIn("3 of 3 runs are complete.", self.run_experiment("--slurm", *NODES).stdout)
        self.assertEqual(len(self.calls()), 4)

    def test_the_report_is_that_of_a_local_experiment(self):
        self.write(TWO + "repeats: 3\n", TRAINED)
        self.run_experiment()
        local = [dict(row, wall_s="", run_mode="") for row in self.results()]
        differences = (self.out / "differences.csv").read_text().splitlines()
        self.run_experiment("--out", "experiments/other", "--slurm", *NODES)
        self.out = self.root / "experiments" / "other"
        for cell in ("lr-0.1", "lr-0.2"):
            for repeat in (1, 2, 3):
                self.end_well(cell, repeat)
        self.run_experiment("--out", "experiments/other", "--slurm", *NODES)
        self.assertEqual([dict(row, wall_s="", run_mode="") for row in self.results()], local)
        self.assertEqual([line for line in (self.out / "differences.csv").read_text().splitlines() if "wall_s" not in line],
                         [line for line in differences if "wall_s" not in line])

    def test_a_run_with_a_checkpoint_goes_on_from_it_unless_it_failed_by_itself(self):
        self.write(TWO, TRAINED)
        self.run_experiment("--slurm", *NODES)
        for cell, state in (("lr-0.1", "stopped"), ("lr-0.2", "failed")):
            (self.folder(cell) / "checkpoints" / "checkpoint-000001").mkdir(parents=True)
            (self.folder(cell) / "summary.json").write_text(json.dumps({"state": state, "reason": "the loss is nan"}))
        self.leave_queue("1", "2")
        said = self.run_experiment("--slurm", *NODES, code=1).stdout
        self.assertIn("lr-0.1/1: submitted as SLURM job 3, from its newest checkpoint\n", said)
        self.assertEqual([call["flags"] for call in self.calls()[2:]], [["--resume"], []])
        self.assertIn("lr-0.2/1: FAILED (SLURM job 2 ended without a result: the loss is nan)", said)
        self.assertFalse((self.folder("lr-0.2") / "checkpoints").exists())
        self.end_well("lr-0.1")
        self.end_well("lr-0.2")
        self.run_experiment("--slurm", *NODES)
        self.assertEqual(self.states(), ["done", "done"])

    def test_a_dry_run_shows_a_batch_script_and_submits_nothing(self):
        self.write(TWO, TRAINED)
        said = self.run_experiment("--slurm", "--dry-run", *NODES).stdout
        self.assertIn("2 runs of `slackline slurm submit`", said)
        self.assertIn("The batch script of lr-0.1/1:\n\n#!/bin/bash\n", said)
        self.assertEqual(self.calls(), [])
        self.assertFalse(self.out.exists())


class Waiting(SlurmTest):
    def test_the_call_ends_with_the_last_job(self):
        self.write(TWO, TRAINED)
        process = self.start_experiment("--slurm", "--wait", *NODES)
        self.wait_for("both jobs", lambda: len(self.queue.read_text().splitlines()) == 2)
        self.end_well("lr-0.1")
        self.end_badly("lr-0.2", "out of memory\n")
        said = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("lr-0.1/1: done\n", said)
        self.assertIn("lr-0.2/1: FAILED (SLURM job 2 ended without a result: out of memory)", said)
        self.assertIn("Ended without a result: lr-0.2/1. To submit them again: slackline experiment", said)
        self.assertEqual(self.states(), ["done", "failed"])
        self.assertIn("cells/lr-0.2/1/submit/slurm-2.out", (self.out / "results.md").read_text())
        # A result that is seen late counts.
        fake_slackline.write_run(json.loads((self.folder("lr-0.2") / "submit" / "job.json").read_text()), "bsp", self.folder("lr-0.2"))
        self.assertIn("2 of 2 runs are complete.", self.run_experiment("--slurm", *NODES).stdout)
        self.assertEqual(self.states(), ["done", "done"])

    def test_an_interrupt_leaves_the_jobs_in_the_queue(self):
        self.write("", TRAINED)
        process = self.start_experiment("--slurm", "--wait", *NODES)
        self.wait_for("the job", self.queue.read_text)
        said = self.interrupt(process)
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("Interrupted; the jobs in SLURM's queue go on. To collect their results: slackline experiment trial.yaml --slurm", said)
        self.assertEqual(self.queue.read_text(), "1|PENDING|Priority\n")


class Refusing(SlurmTest):
    def refused(self, *options, code=2):
        said = self.run_experiment(*options, code=code).stderr
        self.assertEqual(self.calls(), [])
        return said

    def test_what_does_not_go_together(self):
        self.write(TWO, TRAINED)
        self.assertIn("found --wait without --slurm", self.refused("--wait"))
        self.assertIn("found -- --nodes=2 without --slurm", self.refused(*NODES))
        self.assertIn("found --jobs 2 with --slurm", self.refused("--slurm", "--jobs", "2", *NODES))
        self.assertIn("found --array=1-5; allowed are other options of sbatch", self.refused("--slurm", "--", "--array=1-5"))
        self.assertIn("found -Mother; allowed are other options of sbatch", self.refused("--slurm", "--", "-Mother"))
        self.assertIn("found --slurm with --report", self.refused("--slurm", "--report"))
        self.write("grid: {cluster.workers: [1, 2]}\n", TRAINED)
        self.assertIn("cell workers-1: found cluster.workers set with --slurm", self.refused("--slurm", *NODES))
        self.write(TWO)
        self.assertIn("cell lr-0.1: found run: simulate with --slurm", self.refused("--slurm", *NODES))

    def test_without_slurm_nothing_is_submitted(self):
        self.write("", TRAINED)
        self.queue.unlink()
        self.assertIn("no such cluster", self.refused("--slurm", *NODES, code=1))
        (self.root / "bin" / "sbatch").unlink()
        # This machine may have one of its own.
        os.environ["PATH"] = str(self.root / "bin")
        self.assertIn("found no program sbatch in PATH; --slurm needs it", self.refused("--slurm", *NODES))
        self.assertIn("#!/bin/bash", self.run_experiment("--slurm", "--dry-run", *NODES).stdout)

    def test_a_job_that_sbatch_refuses_is_named(self):
        self.write("grid: {optimizer.lr: [0.1, 0.2]}\ninclude: [{optimizer.lr: 0.3, set: {fake.not_submitted: no such account}}]\n", TRAINED)
        said = self.run_experiment("--slurm", *NODES, code=1)
        self.assertRegex(said.stderr, r"lr-0.3_not_submitted-no-such-account/1 was not submitted: no such account\n2 runs were submitted")
        self.assertEqual(len(self.queue.read_text().splitlines()), 2)

    def test_runs_of_a_job_in_the_queue_are_not_removed(self):
        self.write("", TRAINED)
        self.run_experiment("--slurm", *NODES)
        self.assertIn("job/1: found a run in SLURM's queue: SLURM job 1 is PENDING (Priority); allowed is --slurm, or scancel 1 first",
                      self.run_experiment(code=2).stderr)
        self.write("set: {optimizer.lr: 0.7}\n", TRAINED)
        self.assertIn("job/1: its job file has changed, and SLURM job 1 is PENDING (Priority)",
                      self.run_experiment("--slurm", *NODES, code=2).stderr)
        self.assertTrue((self.folder("job") / "submit").is_dir())
        (self.root / "bin" / "squeue").write_text("#!/bin/sh\necho no answer >&2\nexit 1\n")
        self.assertIn("job/1 was submitted as SLURM job 1, and SLURM does not say whether that has ended (no answer)",
                      self.run_experiment(code=2).stderr)
        # When it has ended, the cell is run anew.
        self.install("squeue", "true")
        self.assertIn("its job has changed", self.run_experiment("--slurm", *NODES).stdout)
        self.assertEqual(self.calls()[-1]["job"]["optimizer.lr"], 0.7)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    unittest.main()
