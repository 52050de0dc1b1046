"""Worker groups from outside: groups of devices of one node that train, each at its own pace, in one job.

    run_groups.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from run_e2e import DATA, NEEDED
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()
IMAGES, EPOCHS, SHARDS = 6000, 6, 4
BATCHES = {"worker-1": 48, "worker-2": 16}
JOB = f"""
name: groups
data: {{train_images_max: {IMAGES}}}
training: {{epochs: {EPOCHS}, batch_size: 32, evaluate_every_epochs: 0}}
optimizer: {{lr: 0.1}}
cluster: {{servers: 1, shards_per_server: {SHARDS}}}
durability: {{mode: none}}
output: {{report_every_ms: 50}}
worker: {{groups: [{{devices: [cpu, cpu], batch: 48}}, {{devices: [cpu], batch: 16}}], threads: 1}}
"""


class Groups(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-groups-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def begin(self, *settings):
        root = pathlib.Path(tempfile.mkdtemp(dir=self.root))
        job = root / "job.yaml"
        job.write_text(JOB)
        run = TrainRun(self.programs, root, job, settings)
        self.addCleanup(run.close)
        return run

    def slackline(self, *arguments):
        return subprocess.run([self.programs.path("slackline"), *arguments], capture_output=True, text=True, timeout=60)

    def both(self, run):
        """The workers by name, as soon as the status shows that both have trained."""
        def look():
            answer = self.slackline("status", str(run.folder), "--json")
            if answer.returncode != 0 or not answer.stdout.startswith("{"):
                return None
            workers = {one["name"]: one for one in json.loads(answer.stdout).get("workers", [])}
            trained = [one for one in workers.values() if int(one.get("steps", 0)) > 0 and one["state"] == "live"]
            return workers if len(trained) == 2 else None
        return self.programs.wait_for(lambda: f"two workers that train\n{run.diagnosis()}", look, 120, run.process)

    def check_ledger(self, summary):
        """Each sample was trained once an epoch, in batches of its group, and each push was applied by all shards."""
        self.assertEqual((summary["workers"], summary["deaths"], summary["samples_given_twice"]), (2, 0, 0))
        self.assertEqual(summary["samples"], EPOCHS * IMAGES)
        workers = {one["name"]: one for one in summary["worker_list"]}
        self.assertEqual(set(workers), set(BATCHES))
        self.assertEqual(sum(one["samples"] for one in workers.values()), EPOCHS * IMAGES)
        for name, one in workers.items():
            self.assertEqual(one["pushes_applied"], SHARDS * one["steps"], name)
            self.assertEqual(one["pushes_discarded"] + one["pushes_lost"], 0, name)
            # Whole batches, but for the last of a range or an epoch.
            mean = one["samples"] / one["steps"]
            self.assertLessEqual(mean, BATCHES[name], name)
            self.assertGreater(mean, 0.8 * BATCHES[name], name)
        self.assertGreater(summary["test_accuracy"], 0.75)

    def test_both_groups_train_in_one_job_each_with_its_batch(self):
        for mode in ("ssp", "bsp"):
            with self.subTest(mode):
                run = self.begin(f"consistency.mode={mode}")
                workers = self.both(run)
                self.assertEqual({name: one["devices"] for name, one in workers.items()},
                                 {"worker-1": ["cpu", "cpu"], "worker-2": ["cpu"]})
                self.assertEqual(run.wait(), 0, run.diagnosis())
                self.check_ledger(json.loads((run.folder / "summary.json").read_text()))
                for name, devices in (("worker-1", "cpu, cpu with"), ("worker-2", ", cpu with")):
                    self.assertIn(devices, (run.folder / "logs" / f"{name}.log").read_text())

    def test_a_group_that_dies_comes_back_as_the_same_and_the_other_goes_on(self):
        run = self.begin("cluster.worker_restarts_max=1", "training.epochs=40")
        before = self.both(run)
        run.kill("worker-2")
        self.programs.wait_for(lambda: f"another process of worker-2\n{run.diagnosis()}",
                               lambda: run.members()["worker-2"]["restarts"] == 1, 60, run.process)
        after = self.both(run)
        self.assertEqual(after["worker-2"]["devices"], ["cpu"])
        self.assertEqual(after["worker-1"]["pid"], before["worker-1"]["pid"])
        self.assertGreater(int(after["worker-1"]["steps"]), int(before["worker-1"]["steps"]))
        run.process.terminate()
        run.wait()

    def cores_of_threads(self, pid):
        """How often each set of cores is the one that a thread of the process may use."""
        sets = collections.Counter()
        for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
                sets[fields["Cpus_allowed_list"]] += 1
        return sets

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "there is one core only")
    def test_computing_is_kept_to_its_cores_and_the_exchange_to_the_others(self):
        cores = sorted(os.sched_getaffinity(0))
        run = self.begin("worker.groups=[]", "worker.cores=1", "worker.threads=0", "cluster.workers=1", "training.epochs=40")
        run.wait_for_training()
        sets = self.cores_of_threads(run.members()["worker-1"]["pid"])
        self.assertIn(str(cores[0]), sets)
        self.assertGreater(sets.total() - sets[str(cores[0])], 2, sets)
        # Nobody is on both.
        self.assertEqual(len(sets), 2, sets)
        run.process.terminate()
        run.wait()
        log = (run.folder / "logs" / "worker-1.log").read_text()
        self.assertIn(f"computes on cores {cores[0]}; other threads are on ", log)

    def test_cores_that_are_not_there_are_named(self):
        run = self.begin("worker.cores=[4000, 4001]")
        self.assertEqual(run.wait(), 1, run.diagnosis())
        log = (run.folder / "logs" / "worker-1.log").read_text()
        self.assertIn("worker.cores: found core 4000; allowed is those that this process may use: ", log)

    def test_bf16_learns_as_float32_does(self):
        run = self.begin("worker.groups=[]", "worker.precision=bf16", "cluster.workers=1", "training.epochs=3",
                         "data.train_images_max=3000", "model.kind=cnn", "model.filters=[4, 8]")
        self.assertEqual(run.wait(), 0, run.diagnosis())
        self.assertGreater(json.loads((run.folder / "summary.json").read_text())["test_accuracy"], 0.6)

    def test_fp16_on_a_cpu_trains_or_says_what_is_allowed(self):
        run = self.begin("worker.groups=[]", "worker.precision=fp16", "cluster.workers=1", "training.epochs=3",
                         "data.train_images_max=2000", "worker.loss_scale=1e9")
        code = run.wait()
        log = (run.folder / "logs" / "worker-1.log").read_text()
        if code == 0:
            skipped = log.count("skipped a step: ")
            self.assertGreater(skipped, 0, "so large a factor overflows")
            summary = json.loads((run.folder / "summary.json").read_text())
            self.assertGreaterEqual(summary["samples"], 3 * 2000 - 32 * skipped)
            self.assertLess(summary["samples"], 3 * 2000)
            self.assertGreater(summary["test_accuracy"], 0.4)
        else:
            self.assertIn("worker.precision: found fp16 on a cpu", log)

    def test_a_worker_that_does_not_say_its_group_is_told_which_there_are(self):
        (self.root / "job.yaml").write_text(JOB)
        command = [self.programs.path("slackline-worker"), str(self.root / "job.yaml"), "--scheduler", "127.0.0.1:1"]
        for arguments, found in (([], "none"), (["--group", "2"], "2")):
            ended = subprocess.run(command + arguments, capture_output=True, text=True, timeout=60)
            self.assertEqual(ended.returncode, 2, ended)
            self.assertIn(f"--group: found {found}; allowed is 0 to 1, which of worker.groups this is", ended.stderr)


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
