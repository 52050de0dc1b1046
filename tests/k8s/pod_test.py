#!/usr/bin/env python3
"""usage: pod_test.py --programs FOLDER [--patience FACTOR] [TEST...]: k8s/image/slackline-pod with the real programs.

Each process is what it is in a pod: the first one of a PID namespace, where signals without a handler do nothing. Where
namespaces may not be made, the same runs without them.
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from slackline_run import Programs  # noqa: E402  (the folder is not a package)

LAUNCHER = str(ROOT / "k8s" / "image" / "slackline-pod")
UNSHARE = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child"]
JOB = """
name: pods
data: {train_images_max: 4000}
output: {report_every_ms: 100}
worker: {threads: 1}
training: {epochs: EPOCHS, evaluate_every_epochs: 0}
cluster: {servers: 2, workers: 1, shards_per_server: 2}
durability: {mode: snapshot, snapshot_every_s: 0.5}
timeouts: {startup_ms: 60000}
network: {metrics: false}
"""
ENDLESS = 100000


def can_unshare():
    return shutil.which("unshare") and subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


class Pod:
    """A container: a command as process 1."""

    def __init__(self, command, log):
        self.log = pathlib.Path(log)
        self.apart = can_unshare()
        environment = dict(os.environ, PATH=f"{PROGRAMS.folder}:{os.environ['PATH']}")
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen([*(UNSHARE if self.apart else []), *command], stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=out, env=environment)

    def said(self):
        return self.log.read_text(errors="replace")

    def wait_said(self, text):
        try:
            PROGRAMS.wait_for(repr(text), lambda: text in self.said(), alive=self.process)
        except AssertionError as error:
            raise AssertionError(f"{error} in\n{self.said()}") from None

    def first_process(self):
        if not self.apart:
            return self.process.pid
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(PROGRAMS.wait_for("process 1", children.read_text, alive=self.process).split()[0])

    def tell(self, number):
        os.kill(self.first_process(), number)

    def end(self):
        try:
            return self.process.wait(timeout=180 * PROGRAMS.patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"waited in vain for the end of\n{self.said()}") from None

    def close(self):
        # The namespace goes with its first process.
        if self.process.poll() is None:
            os.kill(self.first_process(), signal.SIGTERM)
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.kill(self.first_process(), signal.SIGKILL)
                self.process.wait(timeout=20)


class PodTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.run_folder = self.folder / "runs" / "pods"
        self.pods = 0

    def job(self, epochs):
        path = self.folder / "job.yaml"
        path.write_text(JOB.replace("EPOCHS", str(epochs)))
        return str(path)

    def pod(self, *command):
        self.pods += 1
        pod = Pod(command, self.folder / f"{self.pods}.log")
        self.addCleanup(pod.close)
        return pod

    def scheduler(self, *options):
        return self.pod(LAUNCHER, "scheduler", str(self.run_folder), str(self.folder / "job.yaml"),
                        "--listen=127.0.0.1:0", *options)

    def member(self, role, name, *options):
        return self.pod(LAUNCHER, role, str(self.run_folder), str(self.folder / "job.yaml"),
                        f"--scheduler={self.run_folder}/scheduler.address", f"--name={name}", *options)

    def members(self, *options):
        return [self.member("ps", "ps-0", *options), self.member("ps", "ps-1", *options),
                self.member("worker", "worker-0", *options)]

    def checkpoint(self):
        PROGRAMS.wait_for("a checkpoint", lambda: subprocess.run(
            [PROGRAMS.path("slackline"), "checkpoint", str(self.run_folder)], capture_output=True, check=False,
            timeout=60).returncode == 0)

    def summary(self):
        return json.loads((self.run_folder / "summary.json").read_text())

    def await_training(self):
        PROGRAMS.wait_for("rows of metrics.csv", lambda: (self.run_folder / "metrics.csv").exists() and
                          (self.run_folder / "metrics.csv").read_text().count("\n") > 2)

    def test_a_scheduler_that_is_evicted_goes_on_and_the_run_is_done(self):
        self.job(epochs=6)
        first = self.scheduler()
        members = self.members()
        self.await_training()
        first.tell(signal.SIGTERM)
        self.assertEqual(first.end(), 143, first.said())
        second = self.scheduler()
        second.wait_said("goes on with the run")
        self.assertEqual(second.end(), 0, second.said())
        self.assertEqual([pod.end() for pod in members], [0, 0, 0])
        self.assertEqual((self.summary()["state"], self.summary()["epochs_done"]), ("done", 6))
        # Kubernetes may start it once more: nothing is to be done, and nothing is changed.
        again = self.scheduler()
        self.assertEqual(again.end(), 0)
        self.assertIn("is done, with 6 epochs", again.said())
        # With more epochs there is.
        self.job(epochs=7)
        more = self.scheduler()
        more.wait_said("goes on from checkpoint-")
        members = self.members()
        self.assertEqual(more.end(), 0, more.said())
        self.assertEqual([pod.end() for pod in members], [0, 0, 0])
        self.assertEqual(self.summary()["epochs_done"], 7)

    def test_members_that_are_told_to_stop_have_not_ended_well(self):
        self.job(ENDLESS)
        self.scheduler()
        server, _, worker = self.members()
        self.await_training()
        worker.tell(signal.SIGTERM)
        self.assertEqual(worker.end(), 143, worker.said())
        server.tell(signal.SIGTERM)
        self.assertEqual(server.end(), 143, server.said())
        self.assertIn("told to stop by SIGTERM", server.said())

    def test_a_script_in_the_place_of_the_worker_is_told_all_and_ends_as_it_does(self):
        self.job(ENDLESS)
        script = self.folder / "script.sh"
        # Nothing of the package: what it would be told, and how it ends.
        script.write_text("#!/bin/sh\ntrap 'exit 143' TERM\n"
                          "printf '%s|' \"$SLACKLINE_JOB\" \"$SLACKLINE_SCHEDULER\" \"$SLACKLINE_WORKER\" \"$SLACKLINE_SET\" \"$@\"\n"
                          "[ $# -eq 2 ] || exit 0\necho waits\nwhile :; do sleep 0.1; done\n")
        script.chmod(0o755)
        options = ["--set=network.listen=0.0.0.0", "--set=worker.threads=2", "--", str(script), "a b"]
        pod = self.member("script", "worker-0", *options, "c")
        pod.wait_said("waits")
        self.assertIn(f"{self.folder}/job.yaml|{self.run_folder}/scheduler.address|worker-0|network.listen=0.0.0.0\nworker.threads=2\n|a b|c|",
                      pod.said())
        pod.tell(signal.SIGTERM)
        self.assertEqual(pod.end(), 143, pod.said())
        # It ends well where the run has, and else is started again.
        for state, code in (("done", 0), ("failed", 1)):
            self.run_folder.mkdir(parents=True, exist_ok=True)
            (self.run_folder / "summary.json").write_text(f'{{\n  "state": "{state}",\n  "reason": "r",\n  "epochs_done": 1\n}}\n')
            ended = self.member("script", "worker-0", *options)
            self.assertEqual(ended.end(), code, ended.said())
        for wrong in (["--"], ["--listen=1"], []):
            self.assertEqual(self.member("script", "worker-0", *wrong).end(), 2)

    def test_scripts_of_a_node_group_are_one_pod(self):
        self.job(1)
        path = self.folder / "job.yaml"
        plain = path.read_text()
        script = self.folder / "script.sh"
        script.write_text("#!/bin/sh\n"
                          "echo $SLACKLINE_WORKER $SLACKLINE_LOCAL_RANK of $SLACKLINE_LOCAL_WORLD_SIZE on $CUDA_VISIBLE_DEVICES,"
                          "cores ${SLACKLINE_CORES-unbound} $SLACKLINE_SET in ${SLACKLINE_NODE_GROUP:+a group}\n")
        script.chmod(0o755)
        self.run_folder.mkdir(parents=True)
        (self.run_folder / "summary.json").write_text('{\n  "state": "done",\n  "reason": "r",\n  "epochs_done": 1\n}\n')
        options = ["--set=worker.threads=5", "--", str(script)]
        model = "model: {kind: external}\n"
        path.write_text(model + plain.replace("worker: {threads: 1}", "worker: {per_node: 2, node_group: true}"))
        with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "0,1", "CPUS": "1"}):
            pod = self.member("script", "worker-0", *options)
            self.assertEqual(pod.end(), 0, pod.said())
        for rank in (0, 1):
            self.assertIn(f"[{rank}] worker-0 {rank} of 2 on {rank},cores unbound worker.threads=2 in a group\n", pod.said())
        path.write_text(model + plain.replace("worker: {threads: 1}", "worker: {per_node: 2}").replace("workers: 1", "workers: 2"))
        alone = self.member("script", "worker-0", *options)
        self.assertEqual(alone.end(), 2, alone.said())
        self.assertIn("found worker.per_node: 2 without worker.node_group; allowed is 1, since a pod has one worker", alone.said())

    def test_members_of_a_run_that_failed_have_not_ended_well_and_it_goes_on_from_its_checkpoint(self):
        self.job(ENDLESS)
        wait_little = ["--set=durability.server_return_s=3", "--set=durability.scheduler_return_s=1"]
        first = self.scheduler(*wait_little)
        server, other, worker = self.members(*wait_little)
        self.await_training()
        self.checkpoint()
        server.tell(signal.SIGTERM)
        self.assertEqual(server.end(), 143)
        self.assertEqual(first.end(), 1)
        self.assertEqual(self.summary()["state"], "failed")
        self.assertEqual([other.end(), worker.end()], [1, 1])
        self.assertIn("the run is failed", other.said())
        second = self.scheduler(*wait_little)
        second.wait_said("goes on from checkpoint-")
        self.members(*wait_little)
        self.checkpoint()

    def test_sigint_ends_the_run_with_a_checkpoint_from_which_the_next_one_goes_on(self):
        self.job(ENDLESS)
        first = self.scheduler()
        members = self.members()
        # One that the last one follows: it is begun only when every shard is on disk.
        self.checkpoint()
        first.tell(signal.SIGINT)
        self.assertEqual(first.end(), 0, first.said())
        self.assertEqual([pod.end() for pod in members], [0, 0, 0])
        self.assertEqual(self.summary()["state"], "stopped")
        second = self.scheduler()
        second.wait_said("goes on from checkpoint-000002")
        self.members()
        # Training for real: it makes checkpoints.
        self.checkpoint()

    def test_a_job_that_was_changed_goes_on_from_the_newest_checkpoint(self):
        self.job(ENDLESS)
        first = self.scheduler()
        members = self.members()
        self.await_training()
        self.checkpoint()
        first.tell(signal.SIGTERM)
        self.assertEqual(first.end(), 143)
        for pod in members:
            pod.close()
        second = self.scheduler("--set=optimizer.lr=0.01")
        second.wait_said("go on with the job file")
        second.wait_said("goes on from checkpoint-000001")
        self.members("--set=optimizer.lr=0.01")
        self.checkpoint()

    def test_a_run_in_which_nothing_was_trained_makes_way_for_a_new_one(self):
        self.job(ENDLESS)
        first = self.scheduler("--set=timeouts.startup_ms=1000")
        self.assertEqual(first.end(), 1)
        self.assertEqual(self.summary()["state"], "failed")
        second = self.scheduler()
        second.wait_said("listens on")
        self.assertIn("nothing was trained", second.said())
        self.assertTrue((self.folder / "runs" / "pods.1" / "summary.json").exists())

    def test_a_run_that_has_trained_and_has_no_checkpoint_is_not_thrown_away(self):
        self.job(ENDLESS)
        self.run_folder.mkdir(parents=True)
        (self.run_folder / "job.yaml").write_text("")
        (self.run_folder / "metrics.csv").write_text("head\nrow\n")
        (self.run_folder / "summary.json").write_text('{\n  "state": "failed",\n  "reason": "r",\n  "epochs_done": 1\n}\n')
        pod = self.scheduler()
        self.assertEqual(pod.end(), 1)
        self.assertIn("no whole checkpoint", pod.said())
        self.assertEqual(self.summary()["state"], "failed")

    def test_wrong_use_is_said(self):
        for arguments in ([], ["sleep", "1", "2"], ["scheduler", "folder"], ["ps", "folder"]):
            pod = self.pod(LAUNCHER, *arguments)
            self.assertEqual(pod.end(), 2, arguments)
            self.assertIn("allowed are", pod.said())

    def test_programs_that_are_process_1_themselves_end_when_they_are_told(self):
        """As the StatefulSet of servers and the Deployment of workers start them."""
        job = self.job(ENDLESS)
        self.scheduler()
        pods = [self.pod(PROGRAMS.path(f"slackline-{role}"), job, f"--scheduler={self.run_folder}/scheduler.address",
                         f"--name={name}") for role, name in (("ps", "a"), ("ps", "b"), ("worker", "c"))]
        self.await_training()
        for pod in reversed(pods):
            pod.tell(signal.SIGTERM)
            self.assertEqual(pod.end(), 0, pod.said())

    @unittest.skipUnless(os.geteuid() == 0, "only root can give files to root and run as somebody else")
    def test_keys_as_kubelet_mounts_them_are_taken_and_others_are_refused(self):
        self.job(ENDLESS)
        subprocess.run([PROGRAMS.path("slackline"), "credentials", str(self.folder / "made"), "--job", "pods"], check=True,
                       capture_output=True)
        os.chmod(self.folder, 0o755)
        mount = self.folder / "credentials"
        data = mount / "..2026"
        data.mkdir(parents=True)
        for name in ("ca.crt", "server.crt", "server.key"):
            shutil.copy(self.folder / "made" / name, data / name)
            os.chown(data / name, 0, 65532)
            os.chmod(data / name, 0o440)
            (mount / name).symlink_to(f"..data/{name}")
        (mount / "..data").symlink_to("..2026")
        command = ["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", PROGRAMS.path("slackline-ps"),
                   str(self.folder / "job.yaml"), "--scheduler=127.0.0.1:1", "--listen=0.0.0.0:0",
                   "--set=timeouts.startup_ms=1000", "--set=security.mode=tls", f"--set=security.folder={mount}"]
        taken = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(taken.returncode, 1)
        self.assertIn("did not take this server", taken.stderr)
        os.chmod(data / "server.key", 0o444)
        refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        self.assertIn("found mode 0444", refused.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", required=True)
    parser.add_argument("--patience", type=float, default=1)
    options, rest = parser.parse_known_args()
    PROGRAMS = Programs(options.programs, options.patience)
    if not pathlib.Path(PROGRAMS.path("slackline-worker")).exists():
        print("SKIP: there is no slackline-worker: it needs LibTorch")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
