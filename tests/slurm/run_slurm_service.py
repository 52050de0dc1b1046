"""Jobs of `slackline service` in allocations of a real SLURM of four nodes, which this starts on this machine.

    run_slurm_service.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where SLURM, the programs or the data are not there.
"""
import os
import re
import shutil
import signal
import sys
import unittest

import run_slurm
from run_slurm import processes_with
import run_service  # noqa: E402; importing run_slurm has made its folder known

SBATCH = ("--on", "slurm", "--sbatch=--nodes=2", "--sbatch=--time=10")


def setUpModule():
    run_slurm.setUpModule()


class OnSlurm(run_service.Service):
    path = ""  # folders before those of PATH

    def environment(self):
        own = run_slurm.CLUSTER.environment
        return {**own, "HOME": str(self.root), "PATH": self.path + own["PATH"]}

    def setUp(self):
        super().setUp()
        self.addCleanup(self.empty_queue)

    def empty_queue(self):
        run_slurm.CLUSTER.run("scancel", "--user=root", check=False)
        self.programs.wait_for("an empty queue", lambda: not self.queue(), 90)

    def queue(self):
        return run_slurm.CLUSTER.run("squeue", "-h", "-o", "%i").split()

    def await_reason(self, job, pattern):
        self.programs.wait_for(pattern, lambda: re.search(pattern, self.jobs()[job]["reason"] or ""), 60)

    def follower(self, job):
        return int((self.root / f"service/jobs/{job}/process").read_text().split()[0])

    def test_a_job_outlives_the_service_and_the_process_that_follows_it(self):
        job = self.submit("long.yaml", *SBATCH)
        self.await_training(job)
        self.await_reason(job, r"^SLURM job \d+ is RUNNING on n\[\d-\d\]$")
        self.assertEqual(self.jobs()[job]["on"], "slurm")
        self.assertRegex(self.slackline("jobs"), rf"(?m)^job {job} is running: SLURM job \d+ is RUNNING on ")
        self.assertRegex(self.slackline("logs", job, "--all"), r"Submitted job \d+[\s\S]*ps-1")
        self.assertIn("training", self.slackline("status", job))
        queue = self.queue()
        self.host.kill()
        self.host.wait()
        self.host.stdout.close()
        os.kill(self.follower(job), signal.SIGKILL)
        self.start()
        self.programs.wait_for("somebody to follow it", lambda: self.jobs()[job]["begins"] == 2, 60)
        self.assertEqual(self.queue(), queue, "it was not submitted again")
        self.assertEqual(self.slackline("stop", job), f"job {job} is stopped; to continue: slackline resume {job}\n")
        self.assertEqual(self.queue(), [])
        done = self.jobs()[job]["epochs_done"]
        self.slackline("resume", job, "--set", f"training.epochs={done + 2}")
        self.await_state(job, "done")
        self.assertEqual(self.jobs()[job]["epochs_done"], done + 2)
        self.assertIn("Going on from", self.slackline("logs", job, "--all"))

    def test_jobs_that_wait_and_that_run_are_cancelled(self):
        held = self.submit("short.yaml", *SBATCH, "--sbatch=--hold")
        self.await_reason(held, r"^SLURM job \d+ is PENDING \(JobHeldUser\)$")
        local = self.submit("short.yaml")
        self.await_state(local, "done")  # the one that waits takes no place here
        self.assertEqual(self.slackline("cancel", held), f"job {held} is cancelled\n")
        self.assertEqual(self.queue(), [])
        runs = self.submit("long.yaml", *SBATCH)
        self.await_training(runs)
        self.assertEqual(self.slackline("cancel", runs), f"job {runs} is cancelled\n")
        self.programs.wait_for("an empty queue", lambda: not self.queue(), 30)
        self.programs.wait_for("the end of all processes", lambda: not processes_with(str(self.root / "service/jobs")), 30)

    def test_a_job_that_is_stopped_while_it_waits_leaves_the_queue_of_slurm(self):
        held = self.submit("short.yaml", *SBATCH, "--sbatch=--hold")
        self.await_reason(held, "JobHeldUser")
        self.assertIn(f"job {held} is stopped", self.slackline("stop", held))
        self.assertEqual(self.queue(), [])
        self.assertEqual(self.jobs()[held]["reason"], "stopped by `slackline stop`")

    def test_a_job_whose_submission_is_broken_off_is_not_submitted_again(self):
        programs = self.root / "slow"
        programs.mkdir()
        real = shutil.which("sbatch", path=self.environment()["PATH"])
        (programs / "sbatch").write_text(f'#!/bin/sh\n{real} "$@"\nexec sleep 600\n')
        (programs / "sbatch").chmod(0o755)
        self.path = f"{programs}:"
        job = self.submit("long.yaml", *SBATCH)
        self.programs.wait_for("SLURM to have it", self.queue, 60)
        queue = self.queue()
        os.kill(self.follower(job), signal.SIGKILL)
        self.await_training(job)
        self.await_reason(job, rf"^SLURM job {queue[0]} is RUNNING")
        self.assertEqual(self.queue(), queue)
        self.assertEqual(self.slackline("cancel", job), f"job {job} is cancelled\n")
        self.assertEqual(self.queue(), [])

    def test_what_slurm_refuses_fails_with_its_words(self):
        job = self.submit("short.yaml", "--on", "slurm", "--sbatch=--partition=none")
        self.await_state(job, "failed")
        self.assertRegex(self.jobs()[job]["reason"], "sbatch: .*invalid partition specified: none")
        for option in ("--array=1-2", "-a1-2", "--wait", "--test-only", "--output=x"):
            self.assertIn("allowed are options of one job",
                          self.slackline("submit", "short.yaml", "--on", "slurm", f"--sbatch={option}", code=2))
        self.assertIn("allowed are options for sbatch", self.slackline("submit", "short.yaml", *SBATCH, "--gpus", 1, code=2))
        self.assertIn("allowed is --sbatch with --on slurm", self.slackline("submit", "short.yaml", SBATCH[2], code=2))


if __name__ == "__main__":
    run_service.OPTIONS = run_slurm.OPTIONS
    sys.exit(run_slurm.main("OnSlurm", [name for name in vars(OnSlurm) if name.startswith("test_")]))
