"""Servers that join and leave a run while it trains, from outside.

    run_servers.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from run_e2e import DATA, MLP, NEEDED
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()

# Long enough for several changes; ended by the tests.
LONG = MLP + """
data: {train_images_max: 6000}
training: {epochs: 10000, evaluate_every_epochs: 0}
cluster: {servers: 2, workers: 2, shards_per_server: 3}
durability: {snapshot_every_s: 1}
"""


class Servers(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-servers-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def start(self, yaml=LONG, *settings):
        job = self.root / "job.yaml"
        job.write_text(yaml)
        run = TrainRun(self.programs, self.root, job, settings)
        self.addCleanup(run.close)
        run.wait_for_training()
        return run

    def slackline(self, *arguments, code=0):
        """Output of the command line."""
        done = subprocess.run([self.programs.path("slackline"), *map(str, arguments)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=200 * OPTIONS.patience)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def shards(self, run):
        """By the name of the server, of those that are live."""
        status = self.slackline("status", run.folder)
        return {name: int(count) for name, count in re.findall(r"^ +(ps-\w+) +live .*, (\d+) shards?", status, re.MULTILINE)}

    def trains_on(self, run):
        """After all that has happened up to now."""
        now = int(run.rows()[-1]["samples"])
        run.wait_for_training(now + 1000)

    def worries(self, run):
        """Warnings about servers that follow one another."""
        return [line for log in run.folder.glob("logs/*.log") for line in log.read_text(errors="replace").splitlines()
                if re.search(r" warning: .*(is lost|lost the server)", line)]

    def stop(self, run):
        run.process.terminate()
        self.assertEqual(run.wait(), 1, run.diagnosis())
        self.programs.wait_for("the end of all processes", lambda: not run.leftovers(), 10)

    def test_more_and_then_fewer(self):
        run = self.start()
        self.assertEqual(self.shards(run), {"ps-1": 3, "ps-2": 3})
        out = self.slackline("servers", "add", run.folder, "--count", "2")
        self.assertIn("the run will have 4 servers", out)
        self.assertEqual(sorted(self.shards(run).values()), [1, 1, 2, 2])
        self.trains_on(run)
        out = self.slackline("servers", "drain", run.folder, "ps-1", "ps-3")
        self.assertEqual(self.shards(run), {"ps-2": 3, "ps-4": 3}, out)
        self.programs.wait_for("the end of the drained servers",
                               lambda: all(run.members()[name]["state"] != "running" for name in ("ps-1", "ps-3")), 20)
        self.trains_on(run)
        said = run.stdout()
        self.assertIn("ps-1 has left: it was drained", said)
        self.assertNotIn("started again", said)
        self.assertNotIn("lost", run.events())
        self.assertEqual(self.worries(run), [])
        # A checkpoint is one of all shards, wherever they are.
        self.slackline("checkpoint", run.folder)
        self.assertIn(" whole ", self.slackline("checkpoints", run.folder, "--verify"))
        # The death of a server that has what another one had.
        run.kill("ps-4")
        self.programs.wait_for(lambda: f"the server's return\n{run.diagnosis()}",
                               lambda: "goes on from its snapshots" in run.events(), 60, run.process)
        self.trains_on(run)
        self.stop(run)

    def test_a_scheduler_that_is_started_again_knows_where_shards_are(self):
        run = self.start()
        self.slackline("servers", "add", run.folder)
        before = self.shards(run)
        self.assertEqual(len(before), 3)
        run.kill("scheduler")
        self.programs.wait_for(lambda: f"the scheduler's return\n{run.diagnosis()}",
                               lambda: "the scheduler goes on" in run.events(), 60, run.process)
        self.trains_on(run)
        self.assertEqual(self.shards(run), before)
        self.slackline("servers", "drain", run.folder, "ps-2")
        self.trains_on(run)
        self.stop(run)

    def test_a_run_ends_as_ever(self):
        run = self.start(LONG.replace("epochs: 10000", "epochs: 60"))
        self.slackline("servers", "add", run.folder, "--wait", "0")
        self.assertEqual(run.wait(), 0, run.diagnosis())
        self.programs.wait_for("the end of all processes", lambda: not run.leftovers(), 10)
        self.assertGreater(json.loads((run.folder / "report.json").read_text())["accuracy"], 0.5)
        self.assertFalse((run.folder / "snapshots").exists())

    def test_one_by_hand(self):
        run = self.start()
        address = run.folder / "scheduler.address"
        server = [self.programs.path("slackline-ps"), run.folder / "job.yaml", "--scheduler", address, "--name", "ps-x",
                  "--set", "network.metrics_port=0"]
        refused = subprocess.run(server, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual(refused.returncode, 1, refused.stdout + refused.stderr)
        self.assertIn("`slackline servers add` makes room for more", refused.stdout + refused.stderr)
        self.stop(run)

    def start_by_hand(self):
        """The processes of a run, by name, and its folder."""
        job = self.root / "job.yaml"
        job.write_text(LONG.replace("workers: 2", "workers: 1"))
        folder = self.root / "run"
        processes = {}

        def start(name, program, *arguments):
            log = open(self.root / f"{name}.log", "wb")
            self.addCleanup(log.close)
            processes[name] = subprocess.Popen([self.programs.path(program), job, *arguments], stdout=log, stderr=log,
                                               stdin=subprocess.DEVNULL)
            self.addCleanup(processes[name].wait)
            self.addCleanup(processes[name].kill)

        start("scheduler", "slackline-scheduler", "--run-folder", folder)
        for name, program in (("s1", "slackline-ps"), ("s2", "slackline-ps"), ("w1", "slackline-worker")):
            start(name, program, "--scheduler", folder / "scheduler.address", "--name", name)
        self.programs.wait_for("training", lambda: (folder / "metrics.csv").exists()
                               and len((folder / "metrics.csv").read_text().splitlines()) > 1, 60, processes["scheduler"])
        return processes, folder

    def test_by_hand_what_is_pending_is_shown_and_the_scheduler_is_stopped_first(self):
        processes, folder = self.start_by_hand()
        out = self.slackline("servers", "add", folder, "--wait", "1", code=1)
        self.assertIn("1 more server may join", out)
        self.assertIn("servers: 1 more server may join\n", self.slackline("status", folder))
        processes["s2"].kill()
        self.programs.wait_for("the death of s2", lambda: re.search("s2 +dead", self.slackline("status", folder)), 30)
        out = self.slackline("servers", "drain", folder, "s2", "--wait", "1", code=1)
        self.assertIn("s2 is to leave, and is dead: nothing moves until it is started again; 1 more server may join", out)
        self.assertIn("servers: s2 is to leave, and is dead", self.slackline("status", folder))
        processes["scheduler"].terminate()
        for name in ("scheduler", "s1", "w1"):
            self.assertEqual(processes[name].wait(60 * self.programs.patience), 0, (self.root / f"{name}.log").read_text())

    def test_what_cannot_be_is_said(self):
        run = self.start()
        self.assertRegex(self.slackline("servers", "drain", run.folder, "ps-7", code=2),
                         "no server is called ps-7; there are (ps-1, ps-2|ps-2, ps-1)")
        self.assertIn("none would be left", self.slackline("servers", "drain", run.folder, "ps-1", "ps-2", code=1))
        self.assertIn("more servers than shards", self.slackline("servers", "add", run.folder, "--count", "5", code=1))
        self.assertIn("allowed is", self.slackline("servers", "add", self.root / "nothing", code=2))
        self.assertEqual(len(self.shards(run)), 2)
        self.trains_on(run)
        self.stop(run)
        self.slackline("servers", "add", run.folder, code=1)

    def test_not_with_backups(self):
        run = self.start(LONG.replace("snapshot_every_s: 1", "mode: replicated"))
        self.assertIn("durability.mode is replicated", self.slackline("servers", "add", run.folder, code=1))
        self.stop(run)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--patience", type=float, default=1, help="factor on all waits")
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    programs = pathlib.Path(OPTIONS.programs)
    missing = [name for name in NEEDED if not (programs / name).exists()]
    if missing or not DATA.is_dir():
        print("skipped: not there:", ", ".join(missing) or DATA)
        return 77
    unittest.main(argv=[sys.argv[0], "-v", *OPTIONS.tests])


if __name__ == "__main__":
    sys.exit(main())
