"""A new version of the programs takes the place of the old one while a run trains, as docs/rolling-upgrade.md says.

    run_rollout.py --programs BIN_FOLDER [--new BIN_FOLDER] [--patience FACTOR] [TEST...]

Without --new it is a copy of the programs. Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from run_e2e import DATA, MLP, NEEDED
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()

# Long enough for all of it; ended by the tests.
LONG = MLP + """
data: {train_images_max: 6000}
training: {epochs: 100000, evaluate_every_epochs: 0}
cluster: {servers: 2, workers: 2, shards_per_server: 2}
durability: {snapshot_every_s: 1}
"""


def copy_programs(source, target):
    link = target.parent / "lib"
    if not link.is_symlink():
        target.mkdir(parents=True, exist_ok=True)
        link.symlink_to(pathlib.Path(source).resolve().parent / "lib")
    target.mkdir(exist_ok=True)
    for name in NEEDED:
        # Never written into: a running program's file is replaced as a whole.
        shutil.copy2(pathlib.Path(source) / name, target / f"{name}.new")
        os.rename(target / f"{name}.new", target / name)


class Rollout(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-rollout-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)
        self.folder = self.root / "run"
        self.old, self.new = self.root / "old" / "bin", self.root / "new" / "bin"
        self.processes = {}

    def slackline(self, *arguments, code=0):
        done = subprocess.run([self.new / "slackline", *map(str, arguments)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=200 * OPTIONS.patience)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def seen(self):
        """What `slackline status` says; on a busy machine the scheduler does not always answer in time."""
        done = subprocess.run([self.new / "slackline", "status", self.folder], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60 * OPTIONS.patience)
        return done.stdout if done.returncode == 0 else ""

    def start(self, build, name, *arguments):
        """A process of the run, by hand."""
        program = {"scheduler": "slackline-scheduler", "s": "slackline-ps", "w": "slackline-worker"}
        role = name if name == "scheduler" else name[0]
        where = ("--run-folder", self.folder) if role == "scheduler" else (
            "--scheduler", self.folder / "scheduler.address", "--name", name)
        # The run's own has every value written out.
        job = next(path for path in (self.folder / "job.yaml", self.root / "job.yaml") if path.exists())
        with open(self.root / f"{name}.log", "ab") as log:
            process = subprocess.Popen([build / program[role], job, *where, *arguments], stdout=log, stderr=log,
                                       stdin=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.processes[name] = process

    def stop(self, name):
        self.processes[name].terminate()
        self.assertEqual(self.processes.pop(name).wait(30 * OPTIONS.patience), 0, self.said())

    def said(self):
        parts = [f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in sorted(self.root.glob("*.log"))]
        return "\n".join([self.events()[-4000:], *parts])

    def events(self):
        path = self.folder / "events.log"
        return path.read_text() if path.exists() else ""

    def samples(self):
        path = self.folder / "metrics.csv"
        text = path.read_text() if path.exists() else ""
        rows = text[:text.rfind("\n") + 1].splitlines()
        column = rows[0].split(",").index("samples") if rows else 0
        return int(rows[-1].split(",")[column]) if len(rows) > 1 else 0

    def wait_for(self, what, condition, seconds=90):
        try:
            return self.programs.wait_for(what, condition, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from error

    def trains_on(self):
        now = self.samples()
        self.wait_for(f"more than {now} samples", lambda: self.samples() > now + 2000)

    def status(self, name, words):
        """Until `slackline status` says so of a member."""
        self.wait_for(f"{name} {words}", lambda: re.search(rf"^ *{name} +{words}", self.seen(), re.MULTILINE))

    def event(self, words, before=0):
        """Until it has happened more often than before."""
        self.wait_for(words, lambda: self.events().count(words) > before)

    def begin(self, yaml, servers):
        copy_programs(OPTIONS.programs, self.old)
        copy_programs(OPTIONS.new or OPTIONS.programs, self.new)
        (self.root / "job.yaml").write_text(yaml)
        for name in ("scheduler", *servers, "w1", "w2"):
            self.start(self.old, name)
        self.wait_for("training", lambda: self.samples() > 0)

    def replace_workers_and_scheduler(self):
        for name in ("w1", "w2"):
            self.stop(name)
            log = self.root / f"{name}.log"
            lives = log.read_text().count("live as worker")
            self.start(self.new, name)
            # What it says itself: to the scheduler it is live a moment before.
            self.wait_for(f"{name} to be live", lambda: log.read_text().count("live as worker") > lives)
            self.trains_on()
        # At once: told to stop, it would end the run.
        self.processes["scheduler"].kill()
        self.processes["scheduler"].wait()
        self.start(self.new, "scheduler", "--resume")
        self.event("the scheduler goes on")
        self.trains_on()
        for name, process in self.processes.items():
            self.assertIsNone(process.poll(), f"{name}\n{self.said()}")
            self.assertEqual(pathlib.Path(os.readlink(f"/proc/{process.pid}/exe")).parent, self.new, name)
        processes, self.processes = self.processes, {}
        processes["scheduler"].terminate()
        for name, process in processes.items():
            self.assertEqual(process.wait(60 * OPTIONS.patience), 0, f"{name}\n{self.said()}")

    def test_servers_by_drain(self):
        """Shards move to new servers: nothing is lost, nobody waits for long."""
        self.begin(LONG, ("s1", "s2"))
        self.slackline("servers", "add", self.folder, "--wait", "0")
        self.start(self.new, "s3")
        self.status("s3", "live .*[1-9] shards?")
        self.slackline("servers", "drain", self.folder, "s1")
        self.assertEqual(self.processes.pop("s1").wait(30 * OPTIONS.patience), 0, self.said())
        self.trains_on()
        self.slackline("servers", "add", self.folder, "--wait", "0")
        self.start(self.new, "s4")
        self.status("s4", "live .*[1-9] shards?")
        self.slackline("servers", "drain", self.folder, "s2")
        self.assertEqual(self.processes.pop("s2").wait(30 * OPTIONS.patience), 0, self.said())
        self.trains_on()
        self.replace_workers_and_scheduler()
        self.assertNotIn("lost", self.events())
        self.assertNotIn("is dead", self.events())

    def test_servers_by_restart(self):
        """Told to stop, they write their shards once more; the new ones go on from there, and training waits for a moment."""
        self.begin(LONG, ("s1", "s2"))
        self.event("all shards are on disk")
        for name in ("s1", "s2"):
            before = self.events().count("goes on from its snapshots")
            self.stop(name)
            self.start(self.new, name)
            self.event("goes on from its snapshots", before)
            self.trains_on()
        self.assertNotIn("lost", self.events())
        self.replace_workers_and_scheduler()

    def test_servers_with_backups(self):
        """A backup takes over, and the new process becomes its backup: nothing is lost."""
        names = ("s1", "s2", "s3", "s4")
        self.begin(LONG.replace("snapshot_every_s: 1", "mode: replicated"), names)
        self.wait_for("backups in step", lambda: self.events().count(" is in step with ") >= 2)
        for name in names:
            steps = self.events().count(f"{name} is in step with ")
            # Its backup takes over when it has been silent for 3 T.
            self.processes[name].kill()
            self.processes.pop(name).wait()
            self.start(self.new, name)
            self.event(f"{name} is in step with ", steps)
            self.trains_on()
        self.replace_workers_and_scheduler()
        self.assertNotIn("lost", self.events())

    def test_under_slackline_train_by_replacing_the_files(self):
        """It starts again what dies, from the files that are there then."""
        copy_programs(OPTIONS.programs, self.old)
        self.new = self.old
        job = self.root / "job.yaml"
        job.write_text(LONG)
        run = TrainRun(Programs(self.old, OPTIONS.patience), self.root, job, ("cluster.worker_restarts_max=10",))
        self.addCleanup(run.close)
        run.wait_for_training()
        run.wait_for_snapshots()
        copy_programs(OPTIONS.new or OPTIONS.programs, self.old)
        for name in ("ps-1", "ps-2", "worker-1", "worker-2", "scheduler"):
            before = run.members()[name]
            run.kill(name, signal.SIGKILL)
            self.programs.wait_for(lambda: f"another {name}\n{run.diagnosis()}",
                                   lambda: run.members()[name]["pid"] != before["pid"] and run.members()[name]["state"] == "running",
                                   60, run.process)
            self.assertNotIn("(deleted)", os.readlink(f"/proc/{run.members()[name]['pid']}/exe"))
            self.trains_on()
        run.process.terminate()
        self.assertEqual(run.wait(), 1, run.diagnosis())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--new", help="folder of another build")
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
