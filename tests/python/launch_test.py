"""`slackline launch` with a script for the workers, from outside.

    launch_test.py --programs FOLDER --package FOLDER --examples FOLDER [TEST...]

Skipped (77) where the script's interpreter has no PyTorch.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from slackline_run import Programs, TrainRun  # noqa: E402

OPTIONS = argparse.Namespace()

# A script that waits for a word of a pipe when its job is done.
OWN_WORK = """
import pathlib, slackline, sys, torch
model = torch.nn.Linear(64, 1)
with slackline.connect() as worker:
    optimizer = slackline.Optimizer(model, worker)
    data = torch.utils.data.TensorDataset(torch.ones(64, 64))
    for (batch,) in worker.batches(torch.utils.data.DataLoader(data, batch_size=8, sampler=worker.sampler(64))):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
if pathlib.Path(sys.argv[1]).read_text() == "fail":
    raise RuntimeError("its own work")
print("its own work is done")
"""

CLUMSY = """
import slackline, torch, sys
with slackline.connect() as worker:
    slackline.Optimizer(torch.nn.Linear(1, 1), worker)
    next(iter(worker.sampler(9)))
    raise RuntimeError("said " + sys.argv[1])
"""


class Launched(unittest.TestCase):
    """Has a folder, and runs in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def launch(self, script, *flags, job=None, arguments=()):
        programs = Programs(OPTIONS.programs)
        job = job or OPTIONS.examples / "patterns.yaml"
        command = [programs.path("slackline"), "launch", str(script), "--python", sys.executable, str(job), *flags]
        command += ["--run-folder", str(self.folder / "run")]
        run = TrainRun(programs, self.folder, job, command=[*command, "--", *arguments])
        self.addCleanup(self.end, run)
        return run

    @staticmethod
    def end(run):
        if run.process.poll() is None:
            run.process.send_signal(signal.SIGINT)
            run.process.wait(60)

    def log(self, run, name):
        return (run.folder / "logs" / f"{name}.log").read_text(errors="replace")

    def accuracy(self, run):
        return json.loads((run.folder / "summary.json").read_text())["test_accuracy"]


class Launch(Launched):
    def check_mode(self, mode, *settings):
        flags = [word for one in (f"consistency.mode={mode}", *settings) for word in ("--set", one)]
        run = self.launch(OPTIONS.examples / "patterns.py", *flags)
        self.assertEqual(run.wait(120), 0, run.diagnosis())
        for name in ("worker-1", "worker-2"):
            self.assertIn("steps: training is complete", self.log(run, name), run.diagnosis())
        self.assertIn("test accuracy", run.events())
        self.assertTrue((run.folder / "model.safetensors").exists(), run.diagnosis())
        return run

    def test_bsp_with_tls(self):
        folder = self.folder / "credentials"
        slackline = str(pathlib.Path(OPTIONS.programs) / "slackline")
        subprocess.run(
            [slackline, "credentials", folder, "--job", "patterns"], check=True, timeout=60, capture_output=True
        )
        self.check_mode("bsp", "security.mode=tls", f"security.folder={folder}")

    def test_ssp(self):
        run = self.check_mode("ssp")
        last = [line for line in run.events().splitlines() if "test accuracy" in line][-1]
        self.assertGreater(float(last.split("test accuracy ")[1].split(" %")[0]), 90, last)

    def test_async_over_tcp_in_bf16(self):
        self.check_mode("async", "wire.same_host=tcp", "wire.encoding=bf16", "wire.pull_encoding=bf16")

    def test_scripts_of_a_node_have_their_own_cores_and_gpus(self):
        script = self.folder / "seats.py"
        script.write_text(
            OWN_WORK.split("if pathlib", maxsplit=1)[0] + "import os\n"
            "print('seat', worker.local_rank, worker.local_world_size, sorted(os.sched_getaffinity(0)),\n"
            "      os.environ['CUDA_VISIBLE_DEVICES'])\n"
        )
        with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}):
            run = self.launch(script, "--per-node", "2", "--set", "training.epochs=1")
        self.assertEqual(run.wait(120), 0, run.diagnosis())
        cores = sorted(os.sched_getaffinity(0))
        first = cores[: (len(cores) + 1) // 2]
        for name, rank, own, gpus in (("worker-1", 0, first, "4,5"), ("worker-2", 1, cores[len(first) :], "6,7")):
            self.assertIn(f"seat {rank} 2 {own if len(cores) > 1 else cores} {gpus}", self.log(run, name))

    def test_scripts_of_a_node_are_one_worker(self):
        script = self.folder / "node.py"
        script.write_text(
            OWN_WORK.split("if pathlib", maxsplit=1)[0]
            # print() writes each word by itself, and the log has whole lines.
            + "print('seat', worker.local_rank, worker.local_world_size, worker.batch_size, worker.rank, worker.reason)\n"
        )
        flags = ["--per-node", "2", "--node-group", "--set", "training.epochs=1", "--set", "training.batch_size=8"]
        run = self.launch(script, *flags)
        self.assertEqual(run.wait(120), 0, run.diagnosis())
        for rank in (0, 1):
            self.assertIn(f"[{rank}] seat {rank} 2 4 0 training is complete\n", self.log(run, "worker-1"))
        self.assertFalse((run.folder / "logs" / "worker-2.log").exists())

    def test_killed_script_of_a_node_is_replaced_with_the_others(self):
        flags = ["--per-node", "2", "--node-group", "--set", "training.epochs=10000"]
        run = self.launch(OPTIONS.examples / "patterns.py", *flags, "--set", "cluster.worker_restarts_max=1")
        run.wait_for_training()
        seat = run.members()["worker-1"]["pid"]
        scripts = pathlib.Path(f"/proc/{seat}/task/{seat}/children").read_text().split()
        self.assertEqual(len(scripts), 2, scripts)
        os.kill(int(scripts[1]), signal.SIGKILL)
        run.programs.wait_for(
            lambda: f"worker-1 to be back\n{run.diagnosis()}",
            lambda: self.log(run, "worker-1").count("live as worker") == 2,
            90,
            run.process,
        )
        died = f"process 1 of the node (pid {scripts[1]})"
        self.assertIn(f"failed: AbortedError: {died} died", run.events())
        self.assertIn(f"{died}: killed by signal 9 (Killed)", run.stdout(), run.diagnosis())
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(60), 1, run.diagnosis())
        self.assertEqual(run.leftovers(), [])

    def test_killed_worker_is_replaced(self):
        flags = [
            "--set",
            "consistency.mode=bsp",
            "--set",
            "cluster.worker_restarts_max=1",
            "--set",
            "training.epochs=10000",
        ]
        run = self.launch(OPTIONS.examples / "patterns.py", *flags)
        run.wait_for_training()
        run.kill("worker-2")
        run.programs.wait_for(
            lambda: f"worker-2 to be back\n{run.diagnosis()}",
            lambda: self.log(run, "worker-2").count("live as worker") == 2,
            60,
            run.process,
        )
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(60), 1, run.diagnosis())
        self.assertIn("worker-2 is started again (restart 1 of 1", run.stdout(), run.diagnosis())
        for name in ("worker-1", "worker-2"):
            self.assertRegex(self.log(run, name), r"took \d+ steps: ", run.diagnosis())

    def test_killed_worker_is_done_without(self):
        flags = [
            "--set",
            "consistency.mode=bsp",
            "--set",
            "cluster.worker_restarts_max=0",
            "--set",
            "training.epochs=20",
        ]
        run = self.launch(OPTIONS.examples / "patterns.py", *flags)
        run.wait_for_training()
        run.kill("worker-2")
        self.assertEqual(run.wait(120), 0, run.diagnosis())
        self.assertIn("worker-2 (process", run.stdout())
        self.assertIn("steps: training is complete", self.log(run, "worker-1"))

    def test_run_that_is_stopped_and_goes_on(self):
        script = OPTIONS.examples / "patterns.py"
        run = self.launch(script, "--set", "training.epochs=1000")
        run.wait_for_training()
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(60), 1, run.diagnosis())
        for name in ("worker-1", "worker-2"):
            self.assertRegex(self.log(run, name), r"took \d+ steps: ", run.diagnosis())
        self.assertEqual(run.leftovers(), [])
        slackline = str(pathlib.Path(OPTIONS.programs) / "slackline")
        (run.folder / "script.json").rename(run.folder / "kept")
        bare = subprocess.run([slackline, "resume", run.folder], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(bare.returncode, 2)
        self.assertIn("slackline resume RUN --script SCRIPT", bare.stderr)
        kept = (run.folder / "kept").read_text()
        (run.folder / "script.json").write_text(kept.replace("patterns.py", "gone.py"))
        gone = subprocess.run([slackline, "resume", run.folder], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(gone.returncode, 2)
        self.assertIn("gone.py, the script of this run; if the script has moved, name it with --script SCRIPT", gone.stderr)
        (run.folder / "script.json").write_text(kept)
        # Some more than were begun.
        done = json.loads((run.folder / "summary.json").read_text())["epochs_done"]
        more = ["--set", f"training.epochs={done + 5}"]
        again = TrainRun.resume(run.programs, run, more)
        self.addCleanup(self.end, again)
        self.assertEqual(again.wait(120), 0, again.diagnosis())
        self.assertIn("steps: training is complete", self.log(run, "worker-1") + self.log(run, "worker-2"))

    def test_script_that_raises(self):
        script = self.folder / "clumsy.py"
        script.write_text(CLUMSY)
        run = self.launch(script, "--workers", "1", "--servers", "1", arguments=["this"])
        self.assertEqual(run.wait(120), 1, run.diagnosis())
        self.assertIn("RuntimeError: said this", self.log(run, "worker-1"))
        self.assertIn("failed: RuntimeError: said this", run.events(), run.diagnosis())

    def test_script_that_goes_on_when_the_job_is_done(self):
        script = self.folder / "slow_end.py"
        script.write_text(OWN_WORK)
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for word in ("end", "fail", "Ctrl-C"):
            run = self.launch_own_work(script, pipe)
            waits = "The job is done. Waiting for scripts that still run: worker-1 (Ctrl-C ends them)"
            run.programs.wait_for(run.diagnosis, lambda: waits in run.stdout() + run.stderr(), 60, run.process)
            if word == "Ctrl-C":
                run.process.send_signal(signal.SIGINT)
            else:
                pipe.write_text(word)
            self.assertEqual(run.wait(60), 0, run.diagnosis())
            said = run.stdout() + run.stderr()
            self.assertEqual("its own work" in self.log(run, "worker-1"), word != "Ctrl-C", run.diagnosis())
            self.assertEqual("worker-1 (process" in said and "RuntimeError: its own work" in said, word == "fail", said)
            self.assertEqual("scripts are ended before their own work was done: worker-1" in said, word == "Ctrl-C", said)
            shutil.rmtree(run.folder)

    def test_script_that_fails_at_once_when_the_job_is_done(self):
        script = self.folder / "bad_end.py"
        script.write_text(OWN_WORK)
        word = self.folder / "word"
        word.write_text("fail")
        run = self.launch_own_work(script, word)
        self.assertEqual(run.wait(60), 0, run.diagnosis())
        said = run.stdout() + run.stderr()
        self.assertIn("RuntimeError: its own work", said)
        self.assertIn("worker-1 (process", said)

    def launch_own_work(self, script, words):
        return self.launch(script, "--set", "training.epochs=1", "--set", "cluster.workers=1", "--set", "durability.mode=none",
                           arguments=[str(words)])

    def test_scripts_that_leave_before_the_job_is_done(self):
        script = self.folder / "early.py"
        script.write_text(CLUMSY.split("    raise", maxsplit=1)[0])
        run = self.launch(script, "--workers", "1", "--servers", "1")
        self.assertEqual(run.wait(60), 1, run.diagnosis())
        self.assertIn("failed: no worker is left; worker-1 ended before the job was done", run.stderr(), run.diagnosis())

    def test_script_that_exits_without_leaving_is_dead_at_once(self):
        script = self.folder / "silent.py"
        script.write_text(CLUMSY.replace("raise RuntimeError", "__import__('os')._exit(0)\n    raise RuntimeError"))
        run = self.launch(script, "--workers", "1", "--servers", "1", arguments=["this"])
        said = "worker-1 is dead: exit code 0, without leaving the job first"
        run.programs.wait_for("word of it", lambda: said in run.stdout(), 60)

    def test_wrong_use(self):
        slackline = str(pathlib.Path(OPTIONS.programs) / "slackline")
        job = OPTIONS.examples / "patterns.yaml"
        script = OPTIONS.examples / "patterns.py"
        for arguments, said in (
            (["launch", "none.py", job], "found no file none.py"),
            (["launch", script, "none.yaml"], "none.yaml"),
            (["launch", script, job, "--python", "./none"], "--python: found no file ./none"),
            (["train", job], "found external; allowed is a model that is known here, or a script"),
        ):
            with self.subTest(said):
                result = subprocess.run(
                    [slackline, *map(str, arguments)],
                    capture_output=True,
                    text=True,
                    timeout=60,
                    cwd=self.folder,
                    check=False,
                )
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(said, result.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=lambda path: str(pathlib.Path(path).resolve()), required=True)
    parser.add_argument("--package", required=True)
    parser.add_argument("--examples", type=lambda path: pathlib.Path(path).resolve(), required=True)
    options, rest = parser.parse_known_args()
    vars(OPTIONS).update(vars(options))
    # Scripts find the package as they would in an environment of their own.
    os.environ["PYTHONPATH"] = options.package
    if subprocess.run([sys.executable, "-c", "import torch, slackline"], check=False).returncode:
        print("SKIP: this interpreter has no torch, or no package slackline")
        return 77
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
