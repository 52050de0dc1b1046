"""What the tests of experiments share: the package on the path, and a folder with a stand-in for the program."""
import csv
import importlib.util
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = HERE.parent.parent / "python"
DEADLINE_S = 60

for module in ("yaml", "numpy", "matplotlib"):
    if importlib.util.find_spec(module) is None:
        print(f"SKIP: no Python module {module}; scripts/setup installs it")
        sys.exit(77)
sys.path.insert(0, str(PYTHON))
# Tests that run in the background ignore Ctrl-C, and hand that on to what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class ExperimentTest(unittest.TestCase):
    """Has a folder with a job, the stand-in `slackline`, and runs experiments in it."""

    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-experiment-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.slackline = self.root / "slackline"
        self.slackline.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} "
                                  f"{shlex.quote(str(HERE / 'fake_slackline.py'))} \"$@\"\n")
        self.slackline.chmod(0o755)
        (self.root / "job.yaml").write_text("name: base\n")
        self.out = self.root / "experiments" / "trial"

    def write(self, text, head="job: job.yaml\nrun: simulate\nplots: [staleness]\n"):
        """An experiment that is called trial; one plot, where a test is not about plots, because they take time."""
        (self.root / "trial.yaml").write_text(f"name: trial\n{head}{text}")

    def command(self, *options):
        return [sys.executable, str(PYTHON / "slackline_experiment"), "--slackline", str(self.slackline), "trial.yaml",
                *options]

    def run_experiment(self, *options, code=0):
        done = subprocess.run(self.command(*options), cwd=self.root, capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def start_experiment(self, *options, ignored=()):
        process = subprocess.Popen(self.command(*options), cwd=self.root, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True,
                                   preexec_fn=lambda: [signal.signal(one, signal.SIG_IGN) for one in ignored])
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def wait_for(self, what, condition):
        deadline, look = time.monotonic() + DEADLINE_S, threading.Event()
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"waited in vain for {what}")
            look.wait(0.01)

    def interrupt(self, process):
        """As Ctrl-C does; returns what the experiment said."""
        os.kill(process.pid, signal.SIGINT)
        return process.communicate(timeout=DEADLINE_S)[0]

    def calls(self):
        """What was run, in order; checks do not count."""
        log = self.root / "calls.log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def results(self):
        return read_csv(self.out / "results.csv")
