"""A service with many jobs: real processes, kill -9 of the service, orders to jobs, and what is left of them.

    run_service.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from run_e2e import DATA, MLP, NEEDED
from slackline_run import Programs, end_jobs, processes_with

OPTIONS = argparse.Namespace()

SHORT = MLP + """
data: {train_images_max: 2000}
training: {epochs: 2, evaluate_every_epochs: 0}
cluster: {servers: 1, workers: 1}
"""
LONG = SHORT.replace("epochs: 2", "epochs: 100000") + "checkpoint: {at_end: true}\n"


class Service(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-service-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)
        self.host = None
        (self.root / "short.yaml").write_text(SHORT)
        (self.root / "long.yaml").write_text(LONG)
        self.addCleanup(self.end_all)
        self.start()

    def environment(self):
        return {**os.environ, "HOME": str(self.root)}

    def start(self, *options):
        self.host = subprocess.Popen(
            [self.programs.folder / "slackline", "service", "start", "--folder", self.root / "service", *options],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=self.root, env=self.environment())
        line = self.host.stdout.readline()
        self.assertRegex(line, r"^Jobs: http://[\d.]+:\d+/$")
        self.page = line.split()[1]

    def end_all(self):
        """The service, and the jobs that outlive it."""
        self.host.kill()
        self.host.wait()
        self.host.stdout.close()
        end_jobs(self.root / "service")

    def slackline(self, *arguments, code=0):
        done = subprocess.run([self.programs.folder / "slackline", *map(str, arguments)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=120 * OPTIONS.patience, cwd=self.root,
                              env=self.environment(), check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def submit(self, job, *options):
        return int(self.slackline("submit", job, *options))

    def jobs(self):
        return {job["id"]: job for job in json.loads(self.slackline("jobs", "--json"))}

    def await_state(self, job, *states):
        self.programs.wait_for(f"job {job} to be {states}", lambda: self.jobs()[job]["state"] in states, 120)

    def await_training(self, job):
        """Until it has trained an epoch."""
        self.programs.wait_for(f"job {job} to train", lambda: (self.jobs()[job]["epochs_done"] or 0) >= 1, 120)

    def test_jobs_wait_run_and_end(self):
        jobs = [self.submit("short.yaml", "--name", f"lr-{lr}", "--set", f"optimizer.lr={lr}") for lr in (0.1, 0.05)]
        self.assertEqual(jobs, [1, 2])
        self.await_state(2, "done")
        listed = self.jobs()
        self.assertEqual([listed[job]["state"] for job in jobs], ["done", "done"])
        self.assertEqual(listed[1]["epochs_done"], 2)
        self.assertGreater(listed[1]["best"], 0.3)
        self.assertTrue((self.root / "service/jobs/1/run/model.safetensors").exists())
        self.assertRegex(self.slackline("jobs"), r"(?m)^1 +lr-0\.1 +\S+ +done +\S+ +1 +1 +2/2 +[\d.]+ % ")
        self.assertIn("Test accuracy", self.slackline("logs", 1, "--follow"))
        self.assertIn("worker-1", self.slackline("logs", 1, "--process", "worker-1"))
        self.assertIn("done", self.slackline("status", 1))
        with urllib.request.urlopen(self.page, timeout=30) as page:
            self.assertIn("<td>lr-0.05</td>", page.read().decode())
        with urllib.request.urlopen(self.page + "metrics", timeout=30) as metrics:
            self.assertRegex(metrics.read().decode(), r'slackline_service_jobs\{[^}]*state="done"[^}]*\} 2')
        refused = self.slackline("resume", 1, code=2)
        self.assertIn("2 epochs are done", refused)
        self.assertEqual(self.jobs()[1]["state"], "done")
        self.slackline("rm", 1)
        self.assertFalse((self.root / "service/jobs/1").exists())
        self.assertEqual(list(self.jobs()), [2])

    def test_the_service_is_killed_and_its_jobs_go_on(self):
        runs, waits = self.submit("long.yaml"), self.submit("short.yaml")
        self.await_training(runs)
        self.host.kill()
        self.host.wait()
        self.host.stdout.close()
        self.assertIn("no answer from the service", self.slackline("jobs", code=1))
        self.start()
        with urllib.request.urlopen(self.page + "targets", timeout=30) as targets:
            labels = [target["labels"] for target in json.load(targets)]
        self.assertLessEqual({"scheduler", "server", "worker"}, {label["role"] for label in labels})
        self.assertEqual({label["run"] for label in labels}, {str(runs)})
        job = self.jobs()[runs]
        self.assertEqual((job["state"], job["begins"]), ("running", 1))
        self.assertEqual(self.jobs()[waits]["state"], "queued")
        self.assertEqual(self.slackline("stop", f"service/{runs}"),
                         f"job service/{runs} is stopped; to continue: slackline resume service/{runs}\n")
        self.await_state(waits, "done")
        # The job goes on from the checkpoint that the stop has made.
        done = self.jobs()[runs]["epochs_done"]
        self.slackline("resume", runs, "--set", f"training.epochs={done + 3}")
        self.await_state(runs, "done")
        self.assertIn("Going on from", self.slackline("logs", runs, "--all"))
        self.assertEqual(self.jobs()[runs]["epochs_done"], done + 3)

    def test_a_job_that_is_killed_goes_on_and_one_that_is_cancelled_ends_at_once(self):
        job = self.submit("long.yaml", "--set", "checkpoint={at_end: true, every_s: 1}")
        self.await_training(job)
        self.programs.wait_for("a checkpoint", lambda: list(self.root.glob("service/jobs/1/run/checkpoints/checkpoint-??????/manifest*")), 60)
        os.kill(int((self.root / "service/jobs/1/process").read_text().split()[0]), signal.SIGKILL)
        self.programs.wait_for("it to begin again", lambda: self.jobs()[job]["begins"] == 2, 60)
        self.programs.wait_for("it to go on", lambda: "Going on from" in self.slackline("logs", job, "--all"), 60)
        self.assertEqual(self.slackline("cancel", job), f"job {job} is cancelled\n")
        self.assertEqual(processes_with(str(self.root / "service/jobs/1")), [], "its processes are gone")

    def test_who_follows_a_job_that_never_begins_is_told_of_its_end(self):
        self.submit("long.yaml")
        waits = self.submit("short.yaml")
        with subprocess.Popen([self.programs.folder / "slackline", "logs", str(waits), "--follow"], stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True, cwd=self.root, env=self.environment()) as follower:
            self.slackline("stop", waits)
            self.assertIn(f"job {waits} has not begun", follower.communicate(timeout=60 * OPTIONS.patience)[1])
        self.assertIn("has not begun", self.slackline("status", waits, code=2))

    def test_jobs_wait_for_gpus_and_for_their_owner(self):
        self.assertIn("hands out none; start it with --gpus", self.slackline("submit", "long.yaml", "--gpus", 1, code=2))
        self.host.kill()
        self.host.wait()
        self.host.stdout.close()
        self.start("--jobs-max", "4", "--gpus", "5,7", "--memory-max", "1GB", "--owner-jobs-max", "2")
        self.assertIn("allowed are 953.7 MiB", self.slackline("submit", "long.yaml", "--memory", "1.1GB", code=2))
        has = self.submit("long.yaml", "--gpus", 2, "--memory", "600MB")
        waits = self.submit("long.yaml", "--gpus", 1)
        self.await_training(has)
        self.assertEqual(self.jobs()[has]["gpu_names"], ["5", "7"])
        self.assertEqual(self.jobs()[waits]["reason"], "it asks for 1 GPU, and 0 of 2 are free")
        with urllib.request.urlopen(self.page + "metrics", timeout=30) as metrics:
            text = metrics.read().decode()
        self.assertRegex(text, r"slackline_service_gpus_used\{[^}]*\} 2\n")
        self.assertRegex(text, r"slackline_service_memory_reserved_bytes\{[^}]*\} 600000000\n")
        environment = pathlib.Path(f"/proc/{(self.root / 'service/jobs/1/process').read_text().split()[0]}/environ")
        self.assertIn(b"CUDA_VISIBLE_DEVICES=5,7\0", environment.read_bytes())
        other = self.submit("long.yaml")
        self.await_training(other)
        last = self.submit("long.yaml")
        self.assertRegex(self.jobs()[last]["reason"], r"runs 2 of 2 jobs \(--owner-jobs-max\)")
        self.slackline("cancel", has, other)
        self.await_state(waits, "running")
        self.assertEqual(self.jobs()[waits]["gpu_names"], ["5"])

    def test_what_is_wrong_is_said_and_changes_nothing(self):
        self.assertIn("consistency.mode", self.slackline("submit", "short.yaml", "--set", "consistency.mode=x", code=2))
        self.assertIn("found no job 7", self.slackline("cancel", 7, code=2))
        self.assertIn("found no job 7", self.slackline("logs", 7, "--follow", code=2))
        first, second = self.submit("long.yaml"), self.submit("long.yaml")
        self.slackline("cancel", first)
        self.assertIn("job 1 is cancelled, and cannot be", self.slackline("cancel", first, second, code=2))
        self.assertEqual(self.jobs()[second]["state"], "cancelled")
        self.assertIn("found no job 7", self.slackline("status", 7, code=2))
        self.assertIn("allowed is the number of a job", self.slackline("rm", "x", code=2))
        self.assertIn("data.path", self.slackline("submit", "short.yaml", "--set", "data.path=/nowhere", code=2))
        self.assertRegex(self.slackline("jobs", "--service", self.root / "none", code=2), "found no service in .*/none")
        second = self.slackline("service", "start", "--folder", self.root / "service", code=2)
        self.assertIn("another `slackline service start` runs in", second)
        self.assertRegex(self.slackline("service", "start", "--listen", "0.0.0.0:0", code=2), "only this machine reaches")
        token = self.root / "service/token"
        self.assertEqual(token.stat().st_mode & 0o777, 0o600)
        token.write_text("x" * 40 + "\n")
        self.assertRegex(self.slackline("jobs", code=1), "(?i)token")
        self.assertEqual(self.slackline("submit", "short.yaml", code=1).count("\n"), 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--patience", type=float, default=1, help="factor on all waits")
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    missing = [name for name in NEEDED if not (pathlib.Path(OPTIONS.programs) / name).exists()]
    if missing or not DATA.is_dir():
        print("skipped: not there:", ", ".join(missing) or DATA)
        return 77
    unittest.main(argv=[sys.argv[0], "-v", *OPTIONS.tests])


if __name__ == "__main__":
    sys.exit(main())
