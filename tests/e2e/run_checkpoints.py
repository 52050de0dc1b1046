"""Checkpoints from outside: made, listed, gone on from with other numbers of processes, and broken.

    run_checkpoints.py --programs BIN_FOLDER [--python PYTHON_WITH_TORCH] [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from run_e2e import DATA, MLP, NEEDED, SMALL, read_floats
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()


class Checkpoints(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-checkpoints-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def start(self, name, yaml, *settings):
        root = self.root / name
        root.mkdir()
        job = root / "job.yaml"
        job.write_text(yaml)
        run = TrainRun(self.programs, root, job, settings)
        self.addCleanup(run.close)
        return run

    def resume(self, run, *arguments):
        """The run goes on, as another TrainRun."""
        next_run = TrainRun.resume(self.programs, run, arguments)
        self.addCleanup(next_run.close)
        return next_run

    def finish(self, run, code=0):
        self.assertEqual(run.wait(), code, run.diagnosis())
        self.programs.wait_for("the end of all processes", lambda: not run.leftovers(), 10)
        return run

    def slackline(self, *arguments, code=0):
        """Output of the command line."""
        done = subprocess.run([self.programs.path("slackline"), *map(str, arguments)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=120 * OPTIONS.patience)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def folders(self, run):
        return sorted(path.name for path in (run.folder / "checkpoints").glob("*"))

    def everything(self, run):
        """All files of a run, as they are."""
        return {path.relative_to(run.folder): (path.stat().st_mtime_ns, path.read_bytes())
                for path in run.folder.rglob("*") if path.is_file()}

    def summary(self, run):
        return json.loads((run.folder / "summary.json").read_text())

    def test_training_ends_early_and_its_best_checkpoint_stays(self):
        run = self.start("early", MLP + "data: {train_images_max: 2000}\n", "training.epochs=50",
                         "training.early_stopping.patience=3", "training.early_stopping.min_delta=0.5",
                         "checkpoint.keep=1", "checkpoint.keep_best=1")
        self.finish(run)
        events = (run.folder / "events.log").read_text()
        self.assertRegex(events, "training ends early.*: 3 evaluations in a row did not better it")
        self.assertRegex(self.summary(run)["reason"], "training has ended early, after [4-9] of 50 epochs")
        names = self.folders(run)
        self.assertLessEqual(len(names), 2, names)
        self.assertIn("best test accuracy", events)
        listed = self.slackline("checkpoints", run.folder)
        self.assertRegex(listed, r"best:? test accuracy \d\d\.\d\d % after epoch \d")
        self.slackline("export", run.folder, self.root / "best.safetensors", "--checkpoint", "best")
        self.assertTrue((self.root / "best.safetensors").exists())
        # What was left out is trained when the run goes on.
        resumed = self.resume(run, "--checkpoint", "best", "--set", "training.epochs=9", "--set",
                              "training.early_stopping.patience=0", "--set", "training.early_stopping.min_delta=0")
        self.finish(resumed)
        self.assertGreaterEqual(self.summary(run)["samples"], 18000)

    def test_more_epochs_are_as_if_they_had_been_there_from_the_start(self):
        """Weights, momentum and the order of the images: to the bit, in other shards on another number of servers."""
        yaml = MLP.replace("schedule: {kind: cosine}", "momentum: 0.9").replace("lr: 0.1", "lr: 0.05") + """
data: {train_images_max: 1000}
consistency: {mode: bsp}
cluster: {workers: 1, servers: 2}
"""
        whole = self.finish(self.start("whole", yaml, "training.epochs=4"))
        half = self.finish(self.start("half", yaml, "training.epochs=2"))
        self.assertNotEqual(read_floats(half.folder / "model.safetensors"),
                            read_floats(whole.folder / "model.safetensors"))
        self.assertIn("2 epochs are done", self.slackline("resume", half.folder, code=2))
        said = json.loads(self.slackline("status", half.folder, "--json"))
        self.assertEqual((said["state"], said["progress"]["samples_done"], said["checkpoints"]["epochs"]), ("done", 2000, 2))
        self.assertEqual(said["go_on"], f"slackline resume {half.folder} --set training.epochs=3")
        self.finish(self.resume(half, "--set", "training.epochs=4", "--set", "cluster.servers=3", "--set",
                                "cluster.shards_per_server=3"))
        self.assertEqual(read_floats(half.folder / "model.safetensors"),
                         read_floats(whole.folder / "model.safetensors"))
        self.assertEqual(self.summary(half)["samples"], 4000)

    def test_sigterm_saves_and_another_number_of_workers_goes_on(self):
        run = self.start("run", SMALL)
        run.wait_for_training(6000)
        run.process.send_signal(signal.SIGTERM)
        self.finish(run, 1)
        self.assertEqual(self.folders(run), ["checkpoint-000001"], run.diagnosis())
        self.assertRegex(run.stderr(), r"the last checkpoint is checkpoint-000001; to continue: \S+ resume ")
        before = self.summary(run)["samples"]
        self.assertGreaterEqual(before, 6000)
        said = self.slackline("status", run.folder, code=1)
        self.assertRegex(said, r"^job \S+: stopped at .*\n.*loss.*\nlast checkpoint 1, made .*, \d+ of 40 epochs done\n")
        self.assertIn(f"to continue: slackline resume {run.folder}\n", said)
        again = self.finish(self.resume(run, "--set", "cluster.workers=3", "--set", "cluster.servers=1"))
        accuracy = re.search(r"Test accuracy ([\d.]+) %", again.stdout())
        self.assertGreater(float(accuracy.group(1)), 80, again.diagnosis())
        totals = self.summary(again)
        self.assertGreaterEqual(totals["samples"], 40 * 6000)
        self.assertLessEqual(totals["samples"], 40 * 6000 + totals["samples_given_twice"], "the others were trained once")
        times = [float(row["time_s"]) for row in again.rows()]
        self.assertEqual(times, sorted(times), "the curves go on where they were")
        self.assertIn("goes on from checkpoint 1", (run.folder / "events.log").read_text())

    def test_everything_killed_goes_on_from_the_last_one(self):
        run = self.start("run", SMALL, "checkpoint.every_s=0.3", "checkpoint.keep=2", "consistency.mode=bsp")
        self.programs.wait_for("three checkpoints", lambda: "checkpoint 3 is on disk" in run.events(), 60, run.process)
        for name in list(run.members()):
            run.kill(name)
        run.process.kill()
        run.process.wait()
        self.programs.wait_for("the end of all processes", lambda: not run.leftovers(), 10)
        self.assertRegex(self.slackline("status", run.folder, code=1), r"job \S+: lost.*its supervisor is gone "
                         rf"\(process {run.process.pid} on .*\n(.*\n)*last checkpoint (.*\n)*to continue: slackline resume ")
        whole = [name for name in self.folders(run) if not name.endswith(".partial")]
        self.assertLessEqual(len(whole), 3, "two, and one that was just named")
        # The newest is broken: the one before it is taken, and that is said.
        shard = next((run.folder / "checkpoints" / whole[-1]).glob("shard-00003*"))
        data = bytearray(shard.read_bytes())
        data[-100] ^= 1
        shard.write_bytes(data)
        self.assertIn("broken: ", self.slackline("checkpoints", run.folder, "--verify", code=1))
        again = self.finish(self.resume(run, "--set", "training.epochs=12"))
        self.assertRegex(again.stderr(), rf"skipped a damaged checkpoint: {whole[-1]}: .*shard-00003.safetensors: the checksum of block 0")
        self.assertRegex(again.stdout(), rf"Going on from \S+{whole[-2]}\n")
        events = (run.folder / "events.log").read_text()
        self.assertIn("epoch 12 of 12 is complete", events)
        # All shards of a bsp run are cut at one step.
        for path in (run.folder / "checkpoints").glob("checkpoint-*/manifest.json"):
            manifest = json.loads(path.read_text())
            versions = {entry.get("version") for entry in manifest["files"]}
            self.assertEqual(len(versions), 1, manifest["files"])

    def test_on_demand_listed_and_exported(self):
        run = self.start("run", SMALL, "consistency.mode=bsp", "training.epochs=200", "checkpoint.at_end=false")
        run.wait_for_training()
        first = self.slackline("checkpoint", run.folder).strip()
        self.assertEqual(first, str(run.folder / "checkpoints" / "checkpoint-000001"))
        run.process.send_signal(signal.SIGUSR1)
        self.programs.wait_for("the checkpoint of SIGUSR1", lambda: "(SIGUSR1 to `slackline train`)" in run.events(), 60,
                               run.process)
        run.kill("scheduler", signal.SIGUSR1)
        self.programs.wait_for("that of the scheduler", lambda: "(SIGUSR1)" in run.events(), 60, run.process)
        self.assertIsNone(run.process.poll(), "training goes on")
        run.process.send_signal(signal.SIGTERM)
        self.finish(run, 1)
        listed = self.slackline("checkpoints", run.folder, "--verify")
        self.assertEqual(len(re.findall(r"^checkpoint-00000\d .* whole ", listed, re.M)), 3, listed)
        out = self.root / "weights.safetensors"
        self.slackline("export", first, out)
        # Exported weights replace no other file.
        job = (run.folder / "job.yaml").read_bytes()
        self.assertIn("which is no safetensors file; allowed is a new file, or weights to replace",
                      self.slackline("export", first, run.folder / "job.yaml", code=2))
        self.assertEqual((run.folder / "job.yaml").read_bytes(), job)
        self.slackline("export", first, out)
        # Neither is what it began with, and they are not the same.
        last = self.root / "last.safetensors"
        self.slackline("export", run.folder, last)
        self.assertEqual(len(read_floats(out)), 784 * 192 + 192 + 192 * 10 + 10)
        self.assertNotEqual(read_floats(out), read_floats(last))
        if OPTIONS.python:
            code = ("import sys, torch; from safetensors.torch import load_file; w = load_file(sys.argv[1]); "
                    "print({k: tuple(v.shape) for k, v in w.items()})")
            done = subprocess.run([OPTIONS.python, "-c", code, str(out)], capture_output=True, text=True, timeout=300)
            if "No module named" not in done.stderr:
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("'fc1.weight': (192, 784)", done.stdout)

    def test_stopped_from_another_terminal(self):
        run = self.start("run", SMALL, "training.epochs=200")
        run.wait_for_training()
        self.assertIn("--reason: found 501 bytes; allowed are 1 to 500 bytes", self.slackline("stop", run.folder, "--reason", "x" * 501, code=2))
        said = self.slackline("stop", run.folder, "--reason", "enough for today")
        self.assertRegex(said, r"^stopped; to continue: \S*slackline resume \S+\n$")
        self.assertEqual(run.wait(60), 1, run.diagnosis())
        self.assertIn("stopped: enough for today", run.stderr())
        self.assertRegex(self.slackline("checkpoints", run.folder), r"checkpoint-000001 .* whole .*enough for today")
        self.assertEqual(run.leftovers(), [])
        self.assertRegex(self.slackline("stop", run.folder, code=1), "the run in .* is over: it is stopped")
        again = self.resume(run, "--set", "training.epochs=200")
        self.programs.wait_for("the resumed run", lambda: "goes on from checkpoint 1" in again.events(), 60, again.process)
        self.slackline("stop", run.folder)
        self.finish(again, 1)
        # A run that has only begun is waited for.
        begun = self.start("begun", SMALL, "training.epochs=200")
        self.programs.wait_for("its folder", (begun.folder / "job.yaml").exists, 60, begun.process)
        self.assertIn("stopped", self.slackline("stop", begun.folder))
        self.finish(begun, 1)

    def test_a_copy_of_the_job_and_its_checkpoints_is_a_run(self):
        run = self.finish(self.start("run", SMALL, "training.epochs=1"))
        copy = self.root / "copy" / "run"
        copy.mkdir(parents=True)
        shutil.copy(run.folder / "job.yaml", copy)
        shutil.copytree(run.folder / "checkpoints", copy / "checkpoints")
        run.folder = copy
        again = self.finish(self.resume(run, "--set", "training.epochs=2"))
        self.assertIn("goes on from checkpoint 1", again.events())
        self.assertTrue(again.rows())
        self.assertTrue((copy / "model.safetensors").exists())

    def test_wrong_use_is_named(self):
        run = self.finish(self.start("run", SMALL, "training.epochs=1"))
        self.assertIn("found no run in", self.slackline("resume", self.root, code=2))
        # What is refused leaves no trace.
        (run.folder / "lock").unlink()
        before = self.everything(run)
        for name in ("nothing", "8", "checkpoint-000008"):
            said = self.slackline("resume", run.folder, "--checkpoint", name, code=2)
            self.assertRegex(said, r"found no checkpoint in .*; allowed is checkpoint-000001, or its number\n")
        self.assertRegex(self.slackline("resume", run.folder, "--checkpoint", "best", code=2),
                         r"found no whole checkpoint of a best evaluation .*; allowed is checkpoint-000001, or its number\n")
        self.assertIn("1 epoch is done", self.slackline("resume", run.folder, "--checkpoint", "1", code=2))
        self.assertEqual(self.everything(run), before)
        self.assertIn(f"the run in {run.folder} is over: it is done", self.slackline("checkpoint", run.folder, code=1))
        self.assertIn("allowed is a run folder, the number of a job, or HOST:PORT", self.slackline("checkpoint", "nowhere", code=2))
        self.assertIn("found no folder", self.slackline("checkpoints", self.root / "nowhere", code=2))
        other = self.resume(run, "--set", "training.epochs=2", "--set", "model.hidden=[8]")
        self.finish(other, 2)
        self.assertIn("model.hidden", other.diagnosis())
        other = self.resume(run, "--set", "training.epochs=2", "--set", "optimizer={kind: adam, lr: 0.001}")
        self.finish(other, 1)
        self.assertIn("this job's optimizer needs weights", other.diagnosis())
        self.assertRegex(other.diagnosis(), r"to continue: \S*slackline resume \S+ --set training\.epochs=2 --set ")
        # What could not go on has left the run as it was.
        self.finish(self.resume(run, "--set", "training.epochs=2"))

    def test_a_run_that_still_runs_is_not_gone_on_with(self):
        run = self.start("run", SMALL, "checkpoint.every_s=0.2", "training.epochs=10000")
        self.programs.wait_for("a checkpoint", lambda: "checkpoint 1 is on disk" in run.events(), 60, run.process)
        self.assertRegex(self.slackline("resume", run.folder, code=2), rf"still runs: process {run.process.pid} on ")
        # Also where its scheduler does not answer.
        run.kill("scheduler", signal.SIGSTOP)
        self.assertIn("still runs", self.slackline("resume", run.folder, code=2))
        run.kill("scheduler", signal.SIGCONT)
        run.process.send_signal(signal.SIGTERM)
        self.finish(run, 1)
        self.finish(self.resume(run, "--set", f"training.epochs={self.epochs(run) + 8}"))

    def epochs(self, run):
        return int(run.rows()[-1]["epoch"])

    def test_a_stop_replaces_a_scheduler_that_does_not_answer(self):
        run = self.start("run", SMALL, "training.epochs=10000")
        run.wait_for_training()
        run.kill("scheduler", signal.SIGSTOP)
        run.process.send_signal(signal.SIGTERM)
        self.finish(run, 1)
        self.assertIn("the scheduler is killed: it has not answered for ", run.stdout())
        self.assertEqual(len(self.folders(run)), 1, run.diagnosis())

    def test_a_last_checkpoint_that_fails_is_said(self):
        run = self.start("run", SMALL, "training.epochs=10000")
        run.wait_for_training()
        # Where no folder can be made.
        (run.folder / "checkpoints").write_text("")
        run.process.send_signal(signal.SIGTERM)
        self.finish(run, 1)
        self.assertIn("The scheduler could not make a last checkpoint: ", run.stdout())

    def test_a_replicated_run_goes_on(self):
        run = self.start("run", SMALL, "training.epochs=10000", "durability.mode=replicated", "cluster.servers=1")
        self.programs.wait_for("a backup", lambda: "in step" in run.events(), 60, run.process)
        run.wait_for_training()
        run.process.send_signal(signal.SIGTERM)
        self.finish(run, 1)
        last = self.epochs(run)
        self.finish(self.resume(run, "--set", f"training.epochs={last + 8}"))
        self.finish(self.resume(run, "--set", f"training.epochs={last + 16}", "--set", "durability.mode=snapshot"))

    def test_all_that_was_started_by_hand_is_told_to_stop_at_once(self):
        """The servers are gone before the scheduler can have a checkpoint made."""
        job = self.root / "job.yaml"
        job.write_text(SMALL.replace("epochs: 40", "epochs: 10000"))
        folder = self.root / "run"

        def start(*arguments):
            log = open(self.root / "log", "ab")
            self.addCleanup(log.close)
            process = subprocess.Popen([self.programs.path(arguments[0]), *map(str, arguments[1:])], stdout=log, stderr=log,
                                       stdin=subprocess.DEVNULL)
            self.addCleanup(lambda: (process.kill(), process.wait()))
            return process

        def start_all(*arguments):
            processes = [start("slackline-scheduler", job, "--run-folder", folder, *arguments)]
            for program, name in (("ps", "a"), ("ps", "b"), ("worker", "c"), ("worker", "d")):
                processes.append(start(f"slackline-{program}", job, "--scheduler", folder / "scheduler.address", "--name", name))
            return processes

        def samples():
            path = folder / "metrics.csv"
            rows = path.read_text().splitlines()[1:] if path.exists() else []
            return [int(row.split(",")[3]) for row in rows if row.count(",") > 5]

        def said():
            return (self.root / "log").read_text(errors="replace")[-4000:] + (folder / "events.log").read_text()[-2000:]

        processes = start_all()
        self.programs.wait_for("training", lambda: max(samples(), default=0) > 6000, 120, processes[0])
        self.programs.wait_for("snapshots", lambda: "all shards are on disk" in (folder / "events.log").read_text(), 60)
        scheduler, *servers = processes[:3]
        for process in (*servers, scheduler, *processes[3:]):
            process.terminate()
            process.wait(120 * OPTIONS.patience)
        before = max(samples())
        self.assertEqual(list(folder.glob("checkpoints/checkpoint-000001")), [], said())
        self.assertIn("start the scheduler with --resume", said())
        processes = start_all("--resume")
        self.programs.wait_for(lambda: f"more training than {before}\n{said()}", lambda: max(samples()) > before + 6000, 120,
                               processes[0])

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True, type=pathlib.Path)
    parser.add_argument("--python", help="an interpreter with torch and safetensors")
    parser.add_argument("--patience", type=float, default=1.0)
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    missing = [name for name in NEEDED if not (OPTIONS.programs / name).exists()]
    if missing or not DATA.exists():
        print("SKIP: found no", ", ".join(missing) or DATA)
        return 77
    tests = [f"Checkpoints.{name}" for name in OPTIONS.tests]
    program = unittest.main(argv=[sys.argv[0], "-v", *tests], exit=False)
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
