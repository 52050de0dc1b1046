"""Faults that are not deaths, from outside: a full disk, processes that hang, a run folder that is removed, a start that fails.

    run_faults.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from run_e2e import DATA, NEEDED, SMALL
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()
QUICK = ("consistency.mode=async", "durability.snapshot_every_s=0.5", "data.train_images_max=6000", "training.epochs=4")


class Faults(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-faults-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def train(self, *settings):
        job = self.root / "job.yaml"
        job.write_text(SMALL)
        run = TrainRun(self.programs, self.root, job, settings)
        self.addCleanup(run.close)
        return run

    def wait_for(self, what, condition, run, seconds=90):
        return self.programs.wait_for(lambda: f"{what}\n{run.diagnosis()}", condition, seconds, run.process)

    def finish(self, run, code):
        self.assertEqual(run.wait(), code, run.diagnosis())
        self.programs.wait_for("the end of all processes", lambda: not run.leftovers(), 10)

    def ask(self, run):
        return subprocess.run([self.programs.path("slackline"), "status", run.folder, "--json"], capture_output=True, text=True,
                              timeout=60 * OPTIONS.patience, check=False)

    def status(self, run, code=0):
        done = self.ask(run)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout)


class FullDisk(Faults):
    """Of a disk that gets full when all is trained, nothing is lost."""

    def setUp(self):
        super().setUp()
        # The run folder, and nothing else: what is said must have room.
        self.disk = self.root / "run"
        self.disk.mkdir()
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", self.disk], capture_output=True, text=True)
        if mount.returncode != 0:
            self.skipTest(f"may not mount: {mount.stderr.strip()}")
        self.addCleanup(lambda: subprocess.run(["umount", "-l", self.disk], check=True))

    def fill(self):
        with open(self.disk / "filler", "wb", buffering=0) as out:
            try:
                while out.write(b"x" * 4096):
                    pass
            except OSError:
                pass  # full

    def train_until_full(self, *settings):
        run = self.train(*QUICK, "durability.mode=none", *settings)
        run.wait_for_training()
        self.fill()
        return run

    def test_the_results_wait_for_room(self):
        run = self.train_until_full()
        self.wait_for("a word of what is awaited", lambda: "waits for room for the results of the run" in run.stdout(), run)
        self.assertRegex(run.stdout(), r"No space left on device, 0\.0 of 67\.1 MB are free in \S+/run/")
        (self.disk / "filler").unlink()
        self.finish(run, 0)
        self.assertTrue((run.folder / "model.safetensors").exists())
        self.assertEqual(json.loads((run.folder / "summary.json").read_text())["state"], "done")
        self.assertIn("the job is done", run.events())
        self.assertEqual(self.status(run)["state"], "done")
        self.assertEqual([path.name for path in (run.folder / "checkpoints").iterdir()][-1][:11], "checkpoint-")

    def test_a_scheduler_that_dies_is_started_again_without_room(self):
        run = self.train(*QUICK, "training.epochs=400")
        run.wait_for_training()
        run.wait_for_snapshots()
        self.fill()
        run.kill("scheduler", signal.SIGKILL)
        self.wait_for("another scheduler", lambda: "the scheduler is started again (restart" in run.stdout(), run)
        self.wait_for("a scheduler that trains", lambda: self.ask(run).returncode == 0, run)
        self.assertEqual(self.status(run)["state"], "training")
        (self.disk / "filler").unlink()
        run.process.terminate()
        self.finish(run, 1)
        self.assertIn("the last checkpoint is checkpoint-", run.stderr())

    def test_without_room_for_too_long_it_says_what_to_do(self):
        run = self.train_until_full("checkpoint.timeout_s=3")
        self.finish(run, 1)
        self.assertRegex(run.stderr(), "failed: .*room for the results.*free some space there, and continue with `slackline resume`")

    def test_the_last_checkpoint_of_a_run_that_is_stopped_waits_for_room(self):
        run = self.train_until_full("training.epochs=400")
        run.process.terminate()
        self.wait_for("the first attempt", lambda: "while the servers keep the weights: make room" in run.stdout(), run)
        (self.disk / "filler").unlink()
        self.finish(run, 1)
        self.assertNotIn("The scheduler could not make a last checkpoint", run.stdout())
        self.assertIn("the last checkpoint is checkpoint-", run.stderr())

    def test_a_scheduler_that_then_hangs_says_that_nothing_was_saved(self):
        run = self.train_until_full("training.epochs=400", "cluster.scheduler_restarts_max=0")
        run.process.terminate()
        self.wait_for("the first attempt", lambda: "while the servers keep the weights: make room" in run.stdout(), run)
        run.kill("scheduler", signal.SIGSTOP)
        self.finish(run, 1)
        self.assertIn("did not live to make a checkpoint at the end: nothing was saved there", run.stdout())


class Hangs(Faults):
    """Whoever hangs is killed and started again."""

    def test_a_scheduler(self):
        run = self.train(*QUICK, "training.epochs=20")
        run.wait_for_training()
        run.wait_for_snapshots()
        first = run.members()["scheduler"]["pid"]
        run.kill("scheduler", signal.SIGSTOP)
        self.wait_for("another scheduler", lambda: run.members()["scheduler"]["pid"] != first, run)
        self.finish(run, 0)
        self.assertRegex(run.stdout(), r"the scheduler is killed: it has not answered for [\d.]+s, allowed are 5s")
        self.assertIn("the scheduler is started again (restart 1 of 10", run.stdout())

    def test_a_worker(self):
        run = self.train(*QUICK, "training.epochs=40", "cluster.worker_restarts_max=1", "timeouts.heartbeat_ms=100")
        run.wait_for_training()
        first = run.members()["worker-2"]["pid"]
        run.kill("worker-2", signal.SIGSTOP)
        self.wait_for("another worker-2", lambda: run.members()["worker-2"]["pid"] != first, run)
        self.finish(run, 0)
        self.assertRegex(run.stdout(), r"worker-2 is killed: the scheduler has given it up \(.*\), and it has not come back within 1\.6s")
        self.assertIn("worker-2 is started again (restart 1 of 1", run.stdout())

    def test_a_worker_that_may_not_be_replaced_may_come_back(self):
        run = self.train(*QUICK, "training.epochs=40", "timeouts.heartbeat_ms=100")
        run.wait_for_training()
        run.kill("worker-2", signal.SIGSTOP)
        self.wait_for("a word of it", lambda: "worker-2 is not replaced though the scheduler has given it up" in run.stdout(), run)
        run.kill("worker-2", signal.SIGCONT)
        self.finish(run, 0)
        self.assertEqual(run.members()["worker-2"]["restarts"], 0)


class LongSteps(Faults):
    """A worker that computes is not one that hangs."""

    def test_a_first_step_that_is_longer_than_a_hang_may_be(self):
        run = self.train("model.kind=resnet18", "data.train_images_max=512", "training.batch_size=128", "training.epochs=1",
                         "cluster.workers=1", "timeouts.heartbeat_ms=100", "timeouts.stall_ms=400")
        self.finish(run, 0)
        self.assertNotIn("made no step", run.stdout())
        worker, = json.loads((pathlib.Path(run.folder) / "summary.json").read_text())["worker_list"]
        if worker["compute_seconds"] / worker["steps"] < 0.4:
            self.skipTest("this machine is too fast: its steps are no longer than timeouts.stall_ms")


class Ends(Faults):
    """How a run has ended is known afterwards, whoever ended it."""

    def test_a_start_that_fails(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            run = self.train(f"network.metrics_port={taken.getsockname()[1]}")
            self.finish(run, 1)
        status = self.status(run, code=1)
        self.assertEqual(status["state"], "failed", status)
        self.assertRegex(status["reason"], r"scheduler \(process \d+\) died: exit code 1")

    def test_a_scheduler_that_dies_for_good(self):
        run = self.train(*QUICK, "training.epochs=40", "cluster.scheduler_restarts_max=0")
        run.wait_for_training()
        run.kill("scheduler")
        self.finish(run, 1)
        status = self.status(run, code=1)
        self.assertEqual(status["state"], "failed", status)
        self.assertRegex(status["reason"], r"scheduler \(process \d+\) died: killed by signal 9")
        self.assertEqual(run.events().count("the job is failed"), 1)

    def test_a_run_folder_that_is_removed(self):
        run = self.train(*QUICK, "training.epochs=60")
        run.wait_for_training()
        run.wait_for_snapshots()
        shutil.rmtree(run.folder, ignore_errors=True)
        self.finish(run, 1)
        self.assertRegex(run.stderr(), "failed: another program removed the run folder .*; Slackline makes the folder again, and saves what it still can")
        self.assertRegex(run.stderr(), r"the last checkpoint is checkpoint-\d+; to continue: \S*slackline resume ")
        again = TrainRun.resume(self.programs, run)
        self.addCleanup(again.close)
        self.finish(again, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True, type=pathlib.Path)
    parser.add_argument("--patience", type=float, default=1.0)
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    absent = [name for name in NEEDED if not (OPTIONS.programs / name).exists()]
    if absent or not DATA.exists():
        print("SKIP: found no", ", ".join(absent) or DATA)
        return 77
    result = unittest.main(argv=[sys.argv[0], *OPTIONS.tests], verbosity=2, exit=False).result
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
