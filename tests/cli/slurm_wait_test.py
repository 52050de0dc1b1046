#!/usr/bin/env python3
"""usage: slurm_wait_test.py SLACKLINE JOB_FILE [TEST...]: `slackline slurm submit --wait` and `slurm wait`, with shell scripts in the place
of SLURM's programs."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SLACKLINE = ""
JOB_FILE = ""
TIMEOUT_S = 60

PROGRAMS = {
    "sbatch": 'echo "$@" >> "$SLURM/submitted"; [ ! -e "$SLURM/refuses" ] || { echo "no such partition" >&2; exit 1; }\n'
              'echo "PENDING|Resources" > "$SLURM/state"; [ ! -e "$SLURM/dies" ] || kill -9 $PPID; echo 12',
    # A job that SLURM has forgotten has no state, and a controller that is away has no answer.
    "squeue": 'case "$*" in *%o*) [ ! -e "$SLURM/state" ] || echo "12|$SLURM/run/submit/slackline.sbatch"; exit ;; esac\n'
              '[ ! -e "$SLURM/away" ] || { echo "squeue: error: cannot contact the controller" >&2; exit 1; }\n'
              '[ -e "$SLURM/state" ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }\n'
              'IFS="|" read -r state reason < "$SLURM/state"; echo "12|$state|$reason|N/A|"',
    "scancel": 'echo "$@" >> "$SLURM/cancelled"; echo "CANCELLED|None" > "$SLURM/state"',
}


class SlurmWait(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="slackline-wait-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.run = self.root / "run"
        programs = self.root / "bin"
        programs.mkdir()
        for name, text in PROGRAMS.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SLURM": str(self.root)}

    def start(self, *arguments):
        process = subprocess.Popen([SLACKLINE, "slurm", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, text=True, cwd=self.root, env=self.environment)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def submit(self):
        """One that waits, once SLURM has said that the job is in its queue."""
        process = self.start("submit", "--wait", JOB_FILE, "--run-folder", self.run)
        self.await_line(process, "SLURM job 12 is PENDING (Resources)\n")
        return process

    def await_line(self, process, wanted):
        lines = []
        while (line := process.stdout.readline()) != wanted:
            lines.append(line)
            self.assertNotEqual(line, "", f"found no {wanted!r} in {lines}")
        return lines

    def end(self, process, code):
        out, _ = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, code, out)
        return out

    def slurm(self, state):
        (self.root / "state").write_text(state + "\n")

    def event(self, text):
        (self.run / "job.yaml").write_text("name: first\n")
        with open(self.run / "events.log", "a", encoding="utf-8") as events:
            events.write(f"2026-01-01 00:00:00.000 {text}\n")

    def cancelled(self):
        return (self.root / "cancelled").read_text().splitlines()

    def test_it_shows_the_output_and_ends_with_the_run(self):
        process = self.submit()
        self.slurm("RUNNING|None")
        with open(self.run / "submit/slurm-12.out", "w", encoding="utf-8") as output:
            output.write("epoch 1\n")
        self.await_line(process, "epoch 1\n")
        self.await_line(process, "SLURM job 12 is RUNNING\n")
        self.assertEqual((self.run / "submit/queue").read_text(), "SLURM job 12 is RUNNING\n")
        self.event("the job is done")
        self.slurm("COMPLETED|None")
        self.end(process, 0)

    def test_a_job_that_goes_back_into_the_queue_is_followed_to_its_end(self):
        process = self.submit()
        self.event("the job is stopped: the time is nearly over")
        self.slurm("PENDING|BeginTime")
        self.await_line(process, "SLURM job 12 is PENDING (BeginTime)\n")
        self.slurm("NODE_FAIL|None")
        threading.Event().wait(0.1)
        self.slurm("PENDING|Resources")
        self.event("goes on from checkpoint 3")
        self.event("the job is failed: no data")
        (self.root / "state").unlink()
        self.assertIn("the run has failed: no data; to continue: ", self.end(process, 1))

    def test_the_end_of_a_job_that_says_nothing_is_what_slurm_says(self):
        process = self.submit()
        self.slurm("OUT_OF_MEMORY|None")
        self.assertIn("SLURM job 12 is OUT_OF_MEMORY; its run has recorded no end", self.end(process, 1))

    def test_ctrl_c_takes_a_job_that_waits_out_of_the_queue(self):
        process = self.submit()
        process.send_signal(signal.SIGINT)
        self.assertIn("SLURM job 12 is CANCELLED; it was stopped before it began", self.end(process, 1))
        self.assertEqual(self.cancelled(), ["12"])
        self.assertIn("the job is stopped: stopped before SLURM started it", (self.run / "events.log").read_text())

    def test_a_second_ctrl_c_kills_the_job(self):
        process = self.submit()
        self.slurm("RUNNING|None")
        self.await_line(process, "SLURM job 12 is RUNNING\n")
        process.send_signal(signal.SIGINT)
        self.await_line(process, "Stopping; once more to end it at once.\n")
        process.send_signal(signal.SIGINT)
        self.assertIn("its run has recorded no end", self.end(process, 1))
        self.assertEqual(self.cancelled(), ["--full --signal=KILL 12"])

    def test_without_a_terminal_the_job_goes_on_and_can_be_followed_again(self):
        process = self.submit()
        process.terminate()
        self.assertIn(f"SLURM job 12 goes on; to follow it: slackline slurm wait {self.run}", self.end(process, -signal.SIGTERM))
        (self.run / "submit/slurm-12.out").write_text("shown before\n")
        process = self.start("wait", self.run)
        self.await_line(process, "SLURM job 12 is PENDING (Resources)\n")
        self.event("the job is done")
        self.slurm("COMPLETED|None")
        self.assertNotIn("shown before", self.end(process, 0))

    def test_a_controller_that_is_away_is_named_and_waited_for(self):
        process = self.submit()
        (self.root / "away").touch()
        deadline = time.monotonic() + TIMEOUT_S
        while "cannot contact the controller" not in process.stdout.readline():
            self.assertLess(time.monotonic(), deadline)
        (self.root / "away").unlink()
        self.event("the job is done")
        self.slurm("COMPLETED|None")
        self.end(process, 0)

    def test_a_submission_that_was_broken_off_is_found_again(self):
        (self.root / "dies").touch()
        self.end(self.start("submit", "--wait", JOB_FILE, "--run-folder", self.run), -signal.SIGKILL)
        self.assertFalse((self.run / "submit/job-id").exists())
        process = self.submit()
        self.event("the job is done")
        self.slurm("COMPLETED|None")
        self.end(process, 0)
        self.assertEqual(len((self.root / "submitted").read_text().splitlines()), 1)

    def test_what_sbatch_refuses_leaves_no_folder(self):
        (self.root / "refuses").touch()
        self.assertIn("no such partition", self.end(self.start("submit", "--wait", JOB_FILE, "--run-folder", self.run), 1))
        self.assertFalse(self.run.exists())

    def test_wrong_use_is_named(self):
        process = self.start("wait", self.root)
        self.assertIn(f"found no SLURM job of the run in {self.root} (submit/job-id); allowed is", self.end(process, 2))
        process = self.start("submit", "--wait", JOB_FILE, "--run-folder", self.run, "--", "--array=1-3")
        self.assertIn("found --array for sbatch; allowed are options of one job", self.end(process, 2))


if __name__ == "__main__":
    SLACKLINE, JOB_FILE = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
