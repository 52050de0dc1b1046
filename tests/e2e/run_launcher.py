"""`slackline train` elsewhere than in the foreground of a terminal: with pipes that nobody reads, and signals ignored.

    run_launcher.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

from run_e2e import DATA, NEEDED, SMALL
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()
LONG = ("training.epochs=10000",)


class Launcher(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-launcher-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def start(self, *settings, **how):
        job = self.root / "job.yaml"
        job.write_text(SMALL)
        run = TrainRun(self.programs, self.root, job, (*LONG, *settings), **how)
        self.addCleanup(run.close)
        run.wait_for_training()
        return run

    def stop(self, run, number=signal.SIGTERM):
        """Stops the run, which must save itself."""
        run.process.send_signal(number)
        self.finish(run)

    def finish(self, run):
        self.assertEqual(run.wait(), 1, run.diagnosis())
        self.programs.wait_for("the end of all processes", lambda: not run.leftovers(), 10)
        saved = [path.name for path in (run.folder / "checkpoints").glob("*")]
        self.assertEqual(len(saved), 1, f"{run.events()}\n{run.diagnosis()}")
        self.assertRegex(saved[0], r"^checkpoint-\d+$")

    def pipe(self):
        """A small pipe: its ends."""
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        return reader, writer

    def fill(self, writer):
        """Whoever writes now waits for the reader."""
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 64)
        except BlockingIOError:
            os.set_blocking(writer, True)

    def new_process_of(self, run, name):
        first = run.members()[name]["pid"]
        run.kill(name)
        self.programs.wait_for(f"a new {name}", lambda: run.members()[name]["pid"] != first, 30, run.process)

    def test_a_reader_that_is_gone_costs_no_checkpoint(self):
        reader, writer = self.pipe()
        run = self.start(output=writer)
        os.close(writer)
        os.close(reader)
        self.stop(run, signal.SIGINT)

    def test_a_reader_that_does_not_read_does_not_stop_supervision(self):
        reader, writer = self.pipe()
        self.addCleanup(os.close, reader)
        run = self.start("cluster.worker_restarts_max=2", output=writer)
        self.fill(writer)
        os.close(writer)
        self.new_process_of(run, "worker-1")
        self.new_process_of(run, "worker-2")
        self.stop(run)

    def test_what_nobody_read_in_time_is_read_later(self):
        reader, writer = self.pipe()
        run = self.start("cluster.worker_restarts_max=1", output=writer)
        self.fill(writer)
        os.close(writer)
        self.new_process_of(run, "worker-1")
        got = []

        def read():
            with open(reader, "rb") as pipe:
                got.append(pipe.read())
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        self.stop(run)
        thread.join(30)
        text = b"".join(got).decode()
        for said in ("Training e2e: 2 servers", "worker-1 is started again", "slackline: the last checkpoint is checkpoint-"):
            self.assertIn(said, text)

    def test_a_hangup_that_was_ignored_does_nothing(self):
        run = self.start(ignored=[signal.SIGHUP])
        run.process.send_signal(signal.SIGHUP)
        run.wait_for_training(int(run.rows()[-1]["samples"]) + 2000)
        self.assertNotIn("stopped by a signal", run.events())
        self.stop(run)

    def test_trackers_get_the_run_and_harm_none(self):
        fakes = pathlib.Path(__file__).resolve().parent.parent / "track" / "fakes"
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.root)
        with unittest.mock.patch.dict(os.environ, PYTHONPATH=str(fakes)):
            run = self.start("output.trackers=[wandb, mlflow]")
            self.stop(run)
            told = list((self.root / "wandb").glob("offline-run-*/told.jsonl"))
            self.assertEqual(len(told), 1, run.stderr() + run.diagnosis())
            self.assertIn('"summary/state": "stopped"', told[0].read_text())
            self.assertRegex(run.stderr(), r"wandb: .*; send it with: wandb sync ")
            (self.root / "mlflow.db").write_text("no store")
            again = TrainRun.resume(self.programs, run)
            self.addCleanup(again.close)
            again.wait_for_training(int(run.rows()[-1]["samples"]) + 2000)
            again.process.send_signal(signal.SIGTERM)
            self.assertEqual(again.wait(), 1, again.diagnosis())
        self.assertIn("the trackers do not have the run: exit code 1", again.stderr())
        self.assertIn(f"slackline track {run.folder} --wandb --mlflow", again.stderr())
        self.assertEqual(json.loads((run.folder / "summary.json").read_text())["reason"], "stopped by a signal to `slackline resume`")

    def test_a_hangup_saves_and_stops(self):
        self.stop(self.start(), signal.SIGHUP)

    def test_ctrl_c_in_the_foreground_is_nothing_to_the_background(self):
        run = self.start(ignored=[signal.SIGINT])
        run.process.send_signal(signal.SIGINT)
        run.wait_for_training(int(run.rows()[-1]["samples"]) + 2000)
        self.assertNotIn("stopped by a signal", run.events())
        self.stop(run)

    def test_deaths_are_seen_though_sigchld_was_ignored(self):
        run = self.start("cluster.worker_restarts_max=1", ignored=[signal.SIGCHLD])
        self.new_process_of(run, "worker-2")
        self.programs.wait_for("word of it", lambda: "worker-2 is started again (restart 1 of 1" in run.stdout(), 30)
        self.stop(run)

    def test_a_failed_run_ends_once(self):
        run = self.start("cluster.workers=1")
        run.wait_for_snapshots()
        run.kill("worker-1", signal.SIGKILL)
        self.finish(run)
        self.assertRegex(run.stderr(), "failed: no worker is left; worker-1 died: ")
        self.assertNotIn("started again", run.stdout())
        self.assertEqual(run.events().count("the job is failed"), 1)

    def test_the_last_worker_and_the_scheduler_die_together(self):
        run = self.start("cluster.workers=1")
        run.wait_for_snapshots()
        pids = [run.members()[name]["pid"] for name in ("scheduler", "worker-1")]
        run.kill("scheduler", signal.SIGSTOP)  # it must not hear of the other's death first
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.finish(run)
        self.assertRegex(run.stderr(), "failed: no worker is left; worker-1 died: ")


class InTheBackground(unittest.TestCase):
    """Programs that a script has started with `&`: Ctrl-C in the foreground is nothing to them."""

    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-background-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.run_folder = self.root / "run"
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)
        self.job = self.root / "job.yaml"
        self.job.write_text(f"{SMALL}\ncluster: {{servers: 1, workers: 1}}\n".replace("epochs: 40", "epochs: 10000"))

    def start(self, name, program, *arguments):
        with open(self.root / f"{name}.log", "wb") as log:
            process = subprocess.Popen([self.programs.path(program), self.job, *map(str, arguments)], stdout=log, stderr=log,
                                       stdin=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def log(self, name):
        return (self.root / f"{name}.log").read_text()

    def test_each_program_hears_the_second_signal_only(self):
        address = self.run_folder / "scheduler.address"
        scheduler = self.start("scheduler", "slackline-scheduler", "--run-folder", self.run_folder)
        self.programs.wait_for("the scheduler's address", address.exists, 30, scheduler)
        server = self.start("ps-1", "slackline-ps", "--scheduler", address, "--name", "ps-1")
        worker = self.start("worker-1", "slackline-worker", "--scheduler", address, "--name", "worker-1")
        events = self.run_folder / "events.log"
        self.programs.wait_for("training", lambda: "training begins" in events.read_text(), 60, worker)
        for process in (worker, server, scheduler):
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
            self.programs.wait_for("its end", lambda one=process: one.poll() is not None, 60)
        self.assertIn("worker-1 leaves: told to stop by SIGTERM", events.read_text())
        self.assertIn("told to stop by SIGTERM", self.log("ps-1"))
        self.assertIn("the job is stopped: the scheduler got SIGTERM", events.read_text())


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
