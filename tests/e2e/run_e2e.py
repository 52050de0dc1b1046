"""The whole system from outside: trains Fashion-MNIST with real processes, kills some of them, reads what is left.

    run_e2e.py --programs BIN_FOLDER [--twin TWIN.PY --python PYTHON_WITH_TORCH] [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import array
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from slackline_run import Programs, TrainRun

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
NEEDED = ("slackline", "slackline-scheduler", "slackline-ps", "slackline-worker")
# Columns that every metrics.csv has; there may be more.
COLUMNS = {"time_s", "epoch", "step", "loss", "accuracy", "samples_per_second", "staleness_mean", "staleness_max",
           "slack"}

OPTIONS = argparse.Namespace()

MLP = """
name: e2e
optimizer: {lr: 0.1, schedule: {kind: cosine}}
output: {report_every_ms: 50}
worker: {threads: 1}
"""
# Long enough to die in, short enough to wait for.
SMALL = MLP + """
data: {train_images_max: 6000}
training: {epochs: 40, evaluate_every_epochs: 0}
"""


def read_floats(path):
    """All values of a safetensors file of fp32 tensors, one tensor after the other."""
    data = path.read_bytes()
    values = array.array("f")
    values.frombytes(data[8 + int.from_bytes(data[:8], "little"):])
    return values


class EndToEnd(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-e2e-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def train(self, yaml, *settings):
        job = self.root / "job.yaml"
        job.write_text(yaml)
        run = TrainRun(self.programs, self.root, job, settings)
        self.addCleanup(run.close)
        return run

    def finish(self, run, code, seconds=400):
        self.assertEqual(run.wait(seconds), code, run.diagnosis())
        self.programs.wait_for("the end of all processes", lambda: not run.leftovers(), 10)

    def check(self, yaml, least, *settings, seconds=400):
        """Trains to an accuracy of `least`."""
        run = self.train(yaml, *settings)
        self.finish(run, 0, seconds)
        accuracy = self.accuracy(run)
        print(f"{self.id()}: {100 * accuracy:.2f} %", flush=True)
        self.assertGreaterEqual(accuracy, least, run.diagnosis())

    def accuracy(self, run):
        """What the final table says, as a fraction."""
        found = re.search(r"Test accuracy ([\d.]+) %", run.stdout())
        self.assertIsNotNone(found, run.diagnosis())
        return float(found.group(1)) / 100

    def check_worker_death(self, mode):
        """kill -9 of a worker in the middle: the other one finishes."""
        run = self.train(SMALL, f"consistency.mode={mode}")
        run.wait_for_training()
        run.kill("worker-2")
        self.finish(run, 0)
        self.assertRegex(run.stdout(), r"worker-2 \(process \d+\) died: killed by signal 9")
        self.assertEqual(run.stdout().count("killed by signal 9"), 1, "a death is told once")
        self.assertRegex((run.folder / "events.log").read_text(), r" worker-2 is dead: killed by signal 9")
        self.assertIn("epoch 40 of 40 is complete", run.stdout(), "its data went to others")
        self.assertGreaterEqual(self.accuracy(run), 0.80)


class Learning(EndToEnd):
    """Models, optimizers and modes learn; on few images, and quickly."""

    def test_async(self):
        self.check(SMALL, 0.80, "consistency.mode=async", "training.epochs=10")

    def test_bsp_with_three_servers(self):
        self.check(SMALL, 0.80, "consistency.mode=bsp", "training.epochs=10", "cluster.servers=3")

    def test_adamw_with_three_workers(self):
        self.check(SMALL, 0.80, "optimizer={kind: adamw, lr: 0.001}", "cluster.workers=3",
                   "training.epochs=10")

    def test_two_devices_a_worker(self):
        self.check(SMALL, 0.80, "worker.devices=[cpu, cpu]", "cluster.workers=1", "training.epochs=10")

    def test_cnn_with_batch_norm(self):
        self.check(SMALL, 0.75, "model={kind: cnn, filters: [8, 16], hidden: [64], batch_norm: true}",
                   "training.epochs=4", "optimizer.lr=0.05")

    def weights_of(self, *settings):
        """After 5 epochs of 139 images, as one list."""
        with tempfile.TemporaryDirectory(dir=self.root) as root:
            job = pathlib.Path(root) / "job.yaml"
            job.write_text(MLP + "data: {train_images_max: 139}\ntraining: {epochs: 5}\n")
            run = TrainRun(self.programs, root, job, ("consistency.mode=bsp", *settings))
            self.addCleanup(run.close)
            self.finish(run, 0)
            summary = json.loads((run.folder / "summary.json").read_text())
            return read_floats(run.folder / "model.safetensors"), [one["samples"] for one in summary["worker_list"]]

    def test_batches_of_128_and_11_are_one_of_139(self):
        one, _ = self.weights_of("cluster.workers=1", "training.batch_size=139")
        two, samples = self.weights_of("cluster.workers=2", "training.batch_size=128")
        self.assertEqual(sum(samples), 5 * 139)
        self.assertGreater(min(samples), 0)
        self.assertEqual(len(one), len(two))
        self.assertLessEqual(max(abs(a - b) for a, b in zip(one, two)), 1e-6)
        uniform, _ = self.weights_of("cluster.workers=2", "training.batch_size=128", "consistency.weighting=uniform")
        self.assertGreater(max(abs(a - b) for a, b in zip(one, uniform)), 1e-3)


class Local(EndToEnd):
    """Rounds of local steps, which the servers average or take an outer step with."""

    LOCAL = ("cluster.workers=3", "training.epochs=20", "training.batch_size=32",
             "optimizer={lr: 1, schedule: {kind: constant}}")

    def test_local_sgd_in_bsp(self):
        self.check(SMALL, 0.75, "consistency.mode=bsp", "local={steps: 10, lr: 0.1}", *self.LOCAL)

    def test_local_sgd_in_a_quorum(self):
        self.check(SMALL, 0.75, "consistency={mode: quorum, quorum: 0.6, quorum_deadline_ms: 1000, grace: adaptive}",
                   "local={steps: 10, lr: 0.1}", *self.LOCAL)

    def test_diloco(self):
        self.check(SMALL, 0.75, "consistency.mode=bsp", "local={steps: 10, optimizer: adamw, lr: 0.0003}", *self.LOCAL,
                   "optimizer={lr: 0.7, momentum: 0.9, nesterov: true, schedule: {kind: constant}}")

    def test_local_epochs_on_subsets_in_async(self):
        self.check(SMALL, 0.75, "consistency.mode=async", "local={epochs: 2, subset_samples: 500, lr: 0.1}",
                   *self.LOCAL, "optimizer={lr: 0.5, schedule: {kind: constant}}")

    # A worker is dead after 0.8 s of silence, or when its lease is over.
    AWAY = ("consistency.mode=async", "timeouts.heartbeat_ms=50", "optimizer.lr=0.3")

    def stop_worker(self, lease_s):
        run = self.train(SMALL, *self.LOCAL, *self.AWAY, f"local={{steps: 10, lr: 0.1, lease_s: {lease_s}}}")
        run.wait_for_training()
        run.kill("worker-2", signal.SIGSTOP)
        return run

    def test_a_worker_that_was_away_within_its_lease_goes_on(self):
        run = self.stop_worker(lease_s=300)
        self.programs.wait_for("2 s of silence", lambda: self.silence(run, "worker-2") > 2, 60, run.process)
        run.kill("worker-2", signal.SIGCONT)
        self.finish(run, 0)
        self.assertNotIn("is dead", (run.folder / "events.log").read_text())
        self.assertGreaterEqual(self.accuracy(run), 0.70)

    def test_a_worker_that_was_away_for_longer_comes_back_as_another(self):
        run = self.stop_worker(lease_s=1)
        events = run.folder / "events.log"
        self.programs.wait_for("the end of the lease", lambda: "its lease is over" in events.read_text(), 60, run.process)
        run.kill("worker-2", signal.SIGCONT)
        self.finish(run, 0)
        self.assertIn("samples that worker-2 held go to others", events.read_text())

    def silence(self, run, name):
        """Seconds, as `slackline status` has them."""
        status = subprocess.run([self.programs.path("slackline"), "status", run.folder], capture_output=True, text=True,
                                timeout=60)
        found = re.search(rf"(?m)^  {name} .* ([\d.]+) s ", status.stdout)
        return float(found.group(1)) if found else 0


class Groups(EndToEnd):
    """Modes that make steps of some workers' pushes."""

    def check_mode(self, consistency):
        self.check(SMALL, 0.80, f"consistency={consistency}", "cluster.workers=3", "training.epochs=10",
                   "training.batch_size=32")

    def test_softsync(self):
        self.check_mode("{mode: softsync, staleness_lr: inverse}")

    def test_quorum(self):
        self.check_mode("{mode: quorum, quorum: 0.6, quorum_deadline_ms: 1000}")

    def test_a_worker_dies_in_a_quorum(self):
        self.check_worker_death("quorum")


class Encodings(EndToEnd):
    """What is rounded away on the wire does not keep a model from learning."""

    def test_int8_with_biases_as_they_are(self):
        self.check(SMALL, 0.80, "training.epochs=10",
                   'wire={same_host: tcp, encoding: int8, groups: [{match: "*.bias", encoding: fp32}]}')

    def test_a_twentieth_of_the_gradient(self):
        self.check(SMALL, 0.80, "training.epochs=10", "wire={same_host: tcp, encoding: \"topk:0.05\"}")

    def test_bsp_with_bf16_both_ways(self):
        self.check(SMALL, 0.80, "training.epochs=10", "consistency.mode=bsp",
                   "wire={same_host: tcp, encoding: bf16, pull_encoding: bf16}")

    def test_group_that_matches_nothing_is_told(self):
        run = self.train(SMALL, 'wire.groups=[{match: "*.bais"}]')
        self.assertNotEqual(run.wait(60), 0)
        self.assertIn("which no trained tensor is called", run.diagnosis())


class Accuracy(EndToEnd):
    """What the models reach on all 60,000 images, in each mode."""

    ADAM = "optimizer={kind: adam, lr: 0.001, schedule: {kind: cosine}}"

    def reach(self, kind, epochs, least, mode):
        # A step of bsp is one for all workers: half the batch each keeps the number of steps.
        batch = 32 if mode == "bsp" else 64
        self.check(MLP, least, f"model.kind={kind}", self.ADAM, f"consistency.mode={mode}", f"training.epochs={epochs}",
                   f"training.batch_size={batch}", seconds=1200)

    def test_mlp_async(self):
        self.reach("mlp", 5, 0.875, "async")

    def test_mlp_ssp(self):
        self.reach("mlp", 5, 0.875, "ssp")

    def test_mlp_bsp(self):
        self.reach("mlp", 5, 0.875, "bsp")

    def test_cnn_async(self):
        self.reach("cnn", 2, 0.885, "async")

    def test_cnn_ssp(self):
        self.reach("cnn", 2, 0.885, "ssp")

    def test_cnn_bsp(self):
        self.reach("cnn", 2, 0.885, "bsp")


class Devices(EndToEnd):
    """A worker built with CUDA or without it."""

    def test_auto_computes_on_what_is_there(self):
        run = self.train(SMALL, "worker.devices=auto", "cluster.workers=1", "training.epochs=2")
        self.finish(run, 0)
        self.assertRegex((run.folder / "logs" / "worker-1.log").read_text(),
                         r"LibTorch [0-9.]+.*, (cpu|cuda:0.*) with \d+ thread")

    def test_a_gpu_that_is_not_there_is_named_with_what_is(self):
        run = self.train(SMALL, "worker.devices=[cuda:63]", "cluster.workers=1")
        self.finish(run, 1)
        self.assertRegex((run.folder / "logs" / "worker-1.log").read_text(),
                         r"worker\.devices: cuda:63 was asked for; here (is|are) ")


class Results(EndToEnd):
    def test_the_run_folder_is_complete_and_the_weights_are_the_reported_ones(self):
        run = self.train(SMALL, "training.epochs=4", "training.evaluate_every_epochs=1")
        self.finish(run, 0)
        names = {path.name for path in run.folder.iterdir()}
        self.assertLessEqual({"job.yaml", "metrics.csv", "model.safetensors", "report.json", "logs"}, names)
        self.assertTrue(list(run.folder.rglob("events.out.tfevents.*")), names)
        logs = {path.stem for path in (run.folder / "logs").iterdir()}
        self.assertEqual(logs, {"scheduler", "ps-1", "ps-2", "worker-1", "worker-2"})
        self.assertEqual({entry["state"] for entry in run.members().values()}, {"exit code 0"})
        self.check_job(run)
        self.check_twin(run)
        self.check_rows(run)

    def check_rows(self, run):
        rows = run.rows()
        self.assertGreater(len(rows), 1)
        self.assertLessEqual(COLUMNS, set(rows[0]))
        for column in ("time_s", "step", "samples"):
            values = [float(row[column]) for row in rows]
            self.assertEqual(values, sorted(values), f"{column} never falls")
        last = rows[-1]
        self.assertGreaterEqual(int(last["samples"]), 4 * 6000, "every sample, at least once")
        self.assertLess(float(last["loss"]), float(next(row["loss"] for row in rows if row["loss"])))
        self.assertLessEqual(max(int(row["slack"]) for row in rows), 5, "ssp's bound of 4, seen between two clocks")

    def check_job(self, run):
        check = subprocess.run([self.programs.path("slackline"), "check", run.folder / "job.yaml"],
                               capture_output=True, text=True, timeout=60)
        self.assertEqual(check.returncode, 0, check.stderr)
        self.assertTrue(check.stdout.startswith((run.folder / "job.yaml").read_text()))

    def check_twin(self, run):
        if not OPTIONS.twin:
            return
        report = json.loads((run.folder / "report.json").read_text())
        self.assertAlmostEqual(report["accuracy"], self.accuracy(run), 4)
        twin = subprocess.run([OPTIONS.python, OPTIONS.twin, "evaluate", run.folder / "model.safetensors", "--kind",
                               "mlp", "--data", DATA, "--expect-accuracy", str(report["accuracy"])],
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(twin.returncode, 0, twin.stdout + twin.stderr)


class WorkerDeath(EndToEnd):
    """kill -9 of a worker in the middle: the rest finish."""

    def test_in_bsp(self):
        self.check_worker_death("bsp")

    def test_in_ssp(self):
        self.check_worker_death("ssp")


class Failover(EndToEnd):
    """What tests of deaths that cost no run share."""

    SETTINGS = ("durability.snapshot_every_s=0.3", "cluster.servers=2")

    def die(self, run, name, number=signal.SIGKILL):
        before = run.members()[name]["pid"]
        run.kill(name, number)
        self.programs.wait_for(f"a new {name}", lambda: run.members()[name]["pid"] != before, 60, run.process)
        events = run.folder / "events.log"
        self.programs.wait_for(f"{name} to go on", lambda: f"server {name} goes on from its snapshots" in
                               events.read_text(), 60, run.process)


class ServerDeath(Failover):
    """kill -9 of a server in the middle: it is started again, goes on from its snapshots, and nobody restarts the job."""

    def check_server_death(self, mode):
        run = self.train(SMALL, f"consistency.mode={mode}", *self.SETTINGS)
        run.wait_for_training()
        run.wait_for_snapshots()
        self.die(run, "ps-1")
        self.die(run, "ps-2")
        self.finish(run, 0)
        self.assertIn("ps-1 is started again (restart 1 of 10", run.stdout())
        self.assertGreaterEqual(self.accuracy(run), 0.80, run.diagnosis())
        self.assertFalse((run.folder / "snapshots").exists(), "the job is done")
        for worker in ("worker-1", "worker-2"):
            self.assertEqual(run.members()[worker]["restarts"], 0)

    def test_in_async(self):
        self.check_server_death("async")

    def test_in_bsp(self):
        self.check_server_death("bsp")

    def test_in_ssp(self):
        self.check_server_death("ssp")

    def test_a_stopped_server_is_replaced(self):
        run = self.train(SMALL, "timeouts.heartbeat_ms=100", *self.SETTINGS)
        run.wait_for_training()
        run.wait_for_snapshots()
        self.die(run, "ps-1", signal.SIGSTOP)
        self.finish(run, 0)
        self.assertIn("ps-1 is killed: the scheduler has given it up", run.stdout())
        self.assertGreaterEqual(self.accuracy(run), 0.80, run.diagnosis())

    def test_a_server_that_always_dies_fails_the_run(self):
        run = self.train(SMALL, "cluster.server_restarts_max=1", "training.epochs=4000", *self.SETTINGS)
        run.wait_for_training()
        run.wait_for_snapshots()
        self.die(run, "ps-1")
        run.kill("ps-1")
        self.finish(run, 1)
        self.assertIn("ps-1 is not started again: 1 restarts are used up", run.stderr())
        self.assertTrue((run.folder / "snapshots").exists(), "it can still be looked at")


class SchedulerDeath(Failover):
    """kill -9 of the scheduler in the middle: it is started again, and workers and servers have waited for it."""

    def kill_scheduler(self, run, goes_on):
        """`goes_on`: how often it has by now."""
        run.kill("scheduler")
        events = run.folder / "events.log"
        self.programs.wait_for("the scheduler to go on", lambda: events.read_text().count("the scheduler goes on with") >=
                               goes_on, 60, run.process)

    def finished_well(self, run):
        self.finish(run, 0)
        self.assertGreaterEqual(self.accuracy(run), 0.80, run.diagnosis())
        self.assertFalse((run.folder / "scheduler").exists(), "there is nothing to go on with")
        rows = run.rows()
        times = [float(row["time_s"]) for row in rows]
        self.assertEqual(times, sorted(times), "one run, one clock")
        self.assertGreaterEqual(int(rows[-1]["samples"]), 40 * 6000, "every sample, at least once")
        for name, member in run.members().items():
            if name.startswith("worker"):
                self.assertEqual(member["restarts"], 0, name)

    def test_in_bsp(self):
        run = self.train(SMALL, "consistency.mode=bsp", *self.SETTINGS)
        run.wait_for_training()
        self.kill_scheduler(run, 1)
        self.kill_scheduler(run, 2)
        self.finished_well(run)
        self.assertIn("the scheduler is started again (restart 2 of 10", run.stdout())

    def test_in_ssp_and_then_a_server(self):
        run = self.train(SMALL, "consistency.mode=ssp", *self.SETTINGS)
        run.wait_for_training()
        run.wait_for_snapshots()
        self.kill_scheduler(run, 1)
        self.die(run, "ps-1")
        self.finished_well(run)

    def test_with_a_server_at_once(self):
        run = self.train(SMALL, "consistency.mode=async", *self.SETTINGS)
        run.wait_for_training()
        run.wait_for_snapshots()
        run.kill("ps-2")
        self.kill_scheduler(run, 1)
        self.finished_well(run)

    def test_with_a_worker_at_once(self):
        run = self.train(SMALL, "consistency.mode=async", "cluster.worker_restarts_max=1", *self.SETTINGS)
        run.wait_for_training()
        run.kill("worker-1")
        self.kill_scheduler(run, 1)
        self.finish(run, 0)
        self.assertGreaterEqual(self.accuracy(run), 0.80, run.diagnosis())


class Deaths(EndToEnd):
    """Other deaths: each is named, and none becomes a hang."""

    def test_a_worker_is_started_again(self):
        run = self.train(SMALL, "cluster.worker_restarts_max=1")
        run.wait_for_training()
        first = run.members()["worker-2"]["pid"]
        run.kill("worker-2")
        self.programs.wait_for("a new worker-2", lambda: run.members()["worker-2"]["pid"] != first, 30, run.process)
        self.finish(run, 0)
        self.assertIn("worker-2 is started again (restart 1 of 1", run.stdout())
        self.assertEqual(run.members()["worker-2"]["restarts"], 1)

    def test_all_workers_die(self):
        run = self.train(SMALL)
        run.wait_for_training()
        run.kill("worker-1")
        run.kill("worker-2")
        self.finish(run, 1)
        self.assertIn("worker-2 (process", run.stdout())
        self.assertRegex(run.stderr(), "failed: .*worker")

    def check_fatal(self, name, *settings):
        run = self.train(SMALL, *settings)
        run.wait_for_training()
        run.kill(name)
        self.finish(run, 1)
        self.assertRegex(run.stderr(), rf"failed: {name} \(process \d+\) died: killed by signal 9")
        self.assertIn("the logs are in", run.stderr())

    def test_a_server_dies_without_durability(self):
        self.check_fatal("ps-1", "durability.mode=none")

    def test_the_scheduler_dies_without_durability(self):
        self.check_fatal("scheduler", "durability.mode=none")


class Stopping(EndToEnd):
    def check_stop(self, number):
        run = self.train(SMALL, "training.epochs=4000")
        run.wait_for_training()
        run.process.send_signal(number)
        self.finish(run, 1)
        self.assertIn("slackline: stopped", run.stderr())
        self.assertNotIn("was killed", run.stdout(), "they leave in good order")

    def test_ctrl_c(self):
        self.check_stop(signal.SIGINT)

    def test_terminate(self):
        self.check_stop(signal.SIGTERM)

    def test_ctrl_c_while_starting(self):
        run = self.train(SMALL)
        self.programs.wait_for("the scheduler", run.members, 60, run.process)
        run.process.send_signal(signal.SIGINT)
        self.finish(run, 1)

    def test_nothing_outlives_a_killed_slackline(self):
        run = self.train(SMALL, "training.epochs=4000")
        run.wait_for_training()
        run.process.kill()
        run.process.wait()
        self.programs.wait_for("the end of the children", lambda: not run.leftovers(), 30)

    def test_status_of_a_live_run(self):
        run = self.train(SMALL, "training.epochs=4000")
        run.wait_for_training()
        status = subprocess.run([self.programs.path("slackline"), "status", run.folder], capture_output=True,
                                text=True, timeout=60)
        self.assertEqual(status.returncode, 0, status.stderr)
        self.assertIn("job e2e: training", status.stdout)
        for name in ("ps-1", "ps-2", "worker-1", "worker-2"):
            self.assertRegex(status.stdout, rf"(?m)^  {name} +live ")


class ByHand(EndToEnd):
    """The programs one by one, as on several machines."""

    def start(self, name, *arguments):
        log = open(self.root / f"{name}.log", "wb")
        self.addCleanup(log.close)
        process = subprocess.Popen([self.programs.path(arguments[0]), *map(str, arguments[1:])], stdout=log,
                                   stderr=log, stdin=subprocess.DEVNULL)

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()

        self.addCleanup(end)
        return process

    def logs(self):
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}"
                         for log in sorted(self.root.glob("*.log")))

    def scheduler(self, job):
        address = self.root / "address"
        process = self.start("scheduler", "slackline-scheduler", job, "--run-folder", self.root / "run",
                             "--address-file", address)
        self.programs.wait_for("the scheduler's address", address.exists, 30, process)
        return process, address.read_text().strip()

    def test_one_by_one(self):
        job = self.root / "job.yaml"
        job.write_text(SMALL.replace("epochs: 40", "epochs: 4"))
        processes = {}
        processes["scheduler"], address = self.scheduler(job)
        # Workers first: nobody depends on the order.
        for name, program in (("worker-a", "slackline-worker"), ("ps-a", "slackline-ps"), ("ps-b", "slackline-ps"),
                              ("worker-b", "slackline-worker")):
            processes[name] = self.start(name, program, job, "--scheduler", address, "--name", name)
        for name, process in processes.items():
            self.programs.wait_for(lambda: f"the end of {name}\n{self.logs()}", lambda p=process: p.poll() is not None, 120)
            self.assertEqual(process.returncode, 0, f"{name}\n{self.logs()}")
        self.assertTrue((self.root / "run" / "model.safetensors").exists())

    def test_a_worker_with_another_job_is_refused(self):
        job = self.root / "job.yaml"
        job.write_text(SMALL)
        _, address = self.scheduler(job)
        worker = self.start("worker", "slackline-worker", job, "--scheduler", address, "--set", "optimizer.lr=0.9")
        self.programs.wait_for(lambda: f"the worker's end\n{self.logs()}", lambda: worker.poll() is not None, 60)
        self.assertIn(worker.returncode, (1, 2))
        self.assertRegex((self.root / "worker.log").read_text(), "job file")

    def test_wrong_use(self):
        job = self.root / "job.yaml"
        job.write_text("optimizer: {lr: fast}\n")
        for program in NEEDED[1:]:
            extra = [] if program == "slackline-scheduler" else ["--scheduler", "127.0.0.1:1"]
            for arguments in ([], [str(job), *extra], [str(job), "--no-such-flag"]):
                with self.subTest(program, arguments=arguments):
                    result = subprocess.run([self.programs.path(program), *arguments], capture_output=True, text=True,
                                            timeout=60)
                    self.assertEqual(result.returncode, 2, result.stderr)
            version = subprocess.run([self.programs.path(program), "--version"], capture_output=True, text=True,
                                     timeout=60)
            self.assertEqual(version.returncode, 0)
            self.assertRegex(version.stdout, rf"^{program} \d+\.\d+\.\d+ \([^,]+, \w+ [\d.]+, \w*\)\n$")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--twin", default="", help="script that evaluates a run folder with PyTorch")
    parser.add_argument("--python", default=sys.executable, help="Python that has torch")
    parser.add_argument("--patience", type=float, default=1.0, help="factor on all deadlines")
    parser.add_argument("tests", nargs="*", help="e.g. Deaths or Deaths.test_a_server_dies; default: all")
    parser.parse_args(namespace=OPTIONS)
    missing = [name for name in NEEDED if not os.access(pathlib.Path(OPTIONS.programs) / name, os.X_OK)]
    if missing or not DATA.is_dir():
        print("skipped: found no " + (", ".join(missing) if missing else str(DATA)))
        return 77
    return 0 if unittest.main(argv=[sys.argv[0], *OPTIONS.tests], verbosity=2, exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
