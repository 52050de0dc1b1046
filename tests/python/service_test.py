"""The queue of jobs from Python, with a real service.

    service_test.py --programs BIN_FOLDER --examples FOLDER [TEST...]
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import slackline

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from slackline_run import end_jobs  # noqa: E402

OPTIONS = argparse.Namespace()

JOB = """
name: from-python
model: {kind: external}
cluster: {servers: 1, workers: 1}
training: {epochs: 1}
optimizer: {lr: 0.1}
"""
SCRIPT = """
import sys, slackline, torch
from torch.utils.data import DataLoader, TensorDataset
with slackline.connect() as worker:
    model = torch.nn.Linear(2, 1)
    optimizer = slackline.Optimizer(model, worker)
    print("arguments", sys.argv[1:], flush=True)
    for (x,) in worker.batches(DataLoader(TensorDataset(torch.ones(64, 2)), batch_size=32, sampler=worker.sampler(64))):
        model(x).mean().backward()
        optimizer.step()
"""


class ServiceFromPython(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-service-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        (self.root / "job.yaml").write_text(JOB)
        (self.root / "train.py").write_text(SCRIPT)
        before = os.environ.get("HOME")
        os.environ["HOME"] = str(self.root)
        self.addCleanup(lambda: os.environ.pop("HOME") if before is None else os.environ.update(HOME=before))
        self.host = subprocess.Popen(
            [pathlib.Path(OPTIONS.programs) / "slackline", "service", "start", "--folder", self.root / "service"],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=self.root,
        )
        self.addCleanup(self.end_all)
        self.assertIn("Jobs: ", self.host.stdout.readline())
        self.service = slackline.Service(self.root / "service", programs=OPTIONS.programs)

    def end_all(self):
        """The service, and the jobs that outlive it."""
        self.host.kill()
        self.host.wait()
        self.host.stdout.close()
        end_jobs(self.root / "service")

    def submit(self, **options):
        return self.service.submit(self.root / "job.yaml", script=self.root / "train.py", **options)

    def test_a_script_is_submitted_awaited_resumed_and_removed(self):
        job = self.submit(arguments=["--depth", "18"], name="deep", overrides=["training.epochs=2"])
        self.assertEqual(job.wait(120), "done", job.log())
        status = job.status()
        self.assertEqual((status["name"], status["epochs_done"], status["begins"]), ("deep", 2, 1))
        self.assertIn("arguments ['--depth', '18']", job.log("worker-1"))
        with self.assertRaisesRegex(slackline.InvalidArgumentError, "2 epochs are done"):
            job.resume()
        job.resume(["training.epochs=3"])
        self.assertEqual(job.wait(120), "done", job.log())
        self.assertEqual([one["id"] for one in self.service.jobs()], [job.id])
        job.remove()
        self.assertEqual(self.service.jobs(), [])

    def test_a_running_job_is_stopped_and_one_that_waits_is_cancelled(self):
        runs, waits = (self.submit(overrides=["training.epochs=100000"]) for _ in range(2))
        with self.assertRaisesRegex(slackline.DeadlineExceededError, r"job 2 is queued after 0\.1 s"):
            waits.wait(0.1)
        waits.cancel()
        runs.stop()
        self.assertEqual([runs.wait(), waits.wait()], ["stopped", "cancelled"])

    def test_what_the_commands_refuse_is_an_error_with_their_words(self):
        with self.assertRaisesRegex(slackline.InvalidArgumentError, "found no job 7"):
            self.service.job(7).status()
        with self.assertRaisesRegex(slackline.InvalidArgumentError, "training.epochs"):
            self.submit(overrides=["training.epochs=-1"])
        with self.assertRaisesRegex(slackline.InvalidArgumentError, "asks for 2 GPUs"):
            self.submit(gpus=2, memory=10**9)
        self.host.kill()
        self.host.wait()
        with self.assertRaisesRegex(slackline.AbortedError, "no answer from the service"):
            self.service.jobs()
        with self.assertRaises(slackline.NotFoundError):
            slackline.Service(programs=self.root)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", required=True)
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    unittest.main(argv=[sys.argv[0], "-v", *OPTIONS.tests])
