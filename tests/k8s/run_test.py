#!/usr/bin/env python3
"""usage: run_test.py --programs FOLDER [--patience FACTOR] [TEST...]: plays what k8s/ renders to with the real programs.

Each container becomes a process with its own command and arguments. What a node would do is done here: mounts are folders
(a Secret has only the files that its volume names), $(NAME) is filled in, and since all pods share one machine, ports are
free ones on loopback and the scheduler's Service is the file that it writes its address to.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import socket
import struct
import tempfile
import unittest
import zlib

import render
from render import ROOT, helm, kustomize, skip

try:
    import rules
except ImportError as missing:
    skip(f"no Python module {missing.name}")

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from slackline_run import Programs  # noqa: E402  (the folder is not a package)

SMALL = {"data": {"train_images_max": 2000}, "training": {"epochs": 2}, "timeouts": {"startup_ms": 60000}}


class Node:
    """A machine that runs pods of some rendered objects."""

    def __init__(self, folder, objects):
        self.folder, self.objects = pathlib.Path(folder), objects
        self.maps = rules.by_kind(objects, "ConfigMap")
        self.running = []
        self.cpus = 1

    def make_credentials(self):
        job = self.job(next(iter(self.maps)))
        subprocess.run([PROGRAMS.path("slackline"), "credentials", str(self.folder / "secret"), "--job", job["name"]],
                       check=True, capture_output=True)

    def job(self, name):
        return render.yaml.safe_load(self.maps[name]["data"]["job.yaml"])

    def mount(self, pods, pod_name):
        """Folders for the container's mounts, by their path in it."""
        places = {}
        volumes = {volume["name"]: volume for volume in pods.spec["volumes"]}
        for mount in pods.container["volumeMounts"]:
            volume = volumes.get(mount["name"], {})
            place = self.folder / "pods" / pod_name / mount["name"]
            if "persistentVolumeClaim" in volume:
                place = self.folder / volume["persistentVolumeClaim"]["claimName"]
            place.mkdir(parents=True, exist_ok=True)
            for item in volume.get("secret", {}).get("items", []):
                shutil.copy(self.folder / "secret" / item["key"], place / item["path"])
                os.chmod(place / item["path"], 0o600)
            if "configMap" in volume:
                for key, text in self.maps[volume["configMap"]["name"]]["data"].items():
                    (place / key).write_text(json.dumps(merged(render.yaml.safe_load(text), SMALL)))
            places[mount["mountPath"]] = place
        # In a pod each server has its own under this path, and the others know only the path; it is part of the job.
        places["/snapshots"] = self.folder / "snapshots"
        return places

    def command(self, pods, pod_name, index):
        places = self.mount(pods, pod_name)
        values = {"INDEX": str(index), "POD_NAME": pod_name, "POD_IP": "127.0.0.1", "CPUS": str(self.cpus)}
        runs = places["/runs"]
        paths = f"(^|=)({'|'.join(map(re.escape, places))})(?=/|$)"
        words = []
        for word in [*pods.container["command"], *pods.container["args"]]:
            word = re.sub(r"\$\((\w+)\)", lambda match: values[match.group(1)], word)
            word = re.sub(paths, lambda match: match.group(1) + str(places[match.group(2)]), word)
            word = re.sub(r"^--scheduler=([\w-]+)-scheduler:7000$", rf"--scheduler={runs}/\1/scheduler.address", word)
            word = re.sub(r"^--set=network.advertise=[\w-]+-scheduler$", "--set=network.advertise=127.0.0.1", word)
            word = re.sub(r"^--set=network.metrics_port=90\d\d$", "--set=network.metrics_port=0", word)
            word = re.sub(r"^--set=network.ports=71\d\d-71\d\d$", lambda _: f"--set=network.ports={free_port()}-65535", word)
            word = re.sub(r"^--listen=0.0.0.0:70\d\d$", "--listen=127.0.0.1:0", word)
            words.append(word.replace("network.listen=0.0.0.0", "network.listen=127.0.0.1"))
        # The job file names them as a pod has them.
        for key, path in (("data.path", "/data"), ("data.cache.folder", "/cache")):
            if path in places:
                words.append(f"--set={key}={places[path]}")
        return words

    def start(self, role, index=0, group=None, cores=None):
        """`cores`: those that kubelet gives the container; None: all."""
        pods = next(pods for pods in rules.pods_of(self.objects) if pods.role == role and pods.group == group)
        owner = pods.owner["metadata"]["name"]
        return self.start_as(pods, f"{owner}-{role}-0-{index}" if pods.batch else f"{owner}-{index}", index, cores)

    def start_as(self, pods, pod_name, index, cores=None):
        path = f"{ROOT}/k8s/image:{PROGRAMS.folder}:{os.environ['PATH']}"
        log = self.folder / f"{pod_name}.{len(self.running)}.log"
        within = ["taskset", "--cpu-list", ",".join(map(str, cores))] if cores else []
        with open(log, "wb") as out:
            process = subprocess.Popen([*within, *self.command(pods, pod_name, index)], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                       env=dict(os.environ, PATH=path), start_new_session=True)
        process.log = log
        self.running.append(process)
        return process

    def start_all(self):
        return {(pods.role, index): self.start(pods.role, index)
                for pods in rules.pods_of(self.objects) for index in range(pods.count)}

    def close(self):
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=60)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def picture(colour):
    """A PNG of 8 x 8 equal pixels."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = (b"\0" + bytes(colour) * 8) * 8
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def merged(one, other):
    result = dict(one)
    for key, value in other.items():
        result[key] = merged(result[key], value) if isinstance(value, dict) and isinstance(result.get(key), dict) else value
    return result


def end_of(process):
    code = process.wait(timeout=120 * PROGRAMS.patience)
    return code, process.log.read_text(errors="replace")


class RunTest(unittest.TestCase):
    def node(self, objects):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        node = Node(folder.name, objects)
        self.addCleanup(node.close)
        node.make_credentials()
        return node

    def test_every_setting_exists_and_every_job_is_valid(self):
        groups = {"job": {"cluster": {"workers": 4}, "worker": {"groups": [{"devices": ["cuda:0"], "cores": 2, "batch": 8}, "cpu"]}}}
        peers = {"job": {"data": {"format": "prepared", "path": "http://files.example.org:8000/images",
                                  "cache": {"folder": "/cache", "peers": True, "peers_in_clear": True}}}}
        for objects in (kustomize("cpu"), kustomize("service"), helm(), helm({"mode": "service"}), helm(groups), helm(peers)):
            node = self.node(objects)
            for pods in rules.pods_of(objects):
                words = node.command(pods, f"pod-{pods.role}", 0)
                settings = [word for word in words if word.startswith("--set=")]
                self.assertGreater(len(settings), 2)
                # The command looks for the files of all roles, as `slackline train` would need them.
                settings = [f"--set=security.folder={node.folder}/secret" if "security.folder" in word else word for word in settings]
                job = next(word for word in words if word.endswith("/job.yaml"))
                checked = subprocess.run([PROGRAMS.path("slackline"), "check", job, *settings], capture_output=True, text=True,
                                         check=False, timeout=60)
                self.assertEqual((checked.returncode, checked.stderr), (0, ""), pods.where)

    def test_a_setting_that_does_not_exist_is_noticed_by_the_programs(self):
        node = self.node(kustomize("service"))
        server = next(pods for pods in rules.pods_of(node.objects) if pods.role == "server")
        server.container["args"].append("--set=network.adress=1")
        code, said = end_of(node.start("server"))
        self.assertEqual(code, 2)
        self.assertIn("network.adress", said)

    def test_the_batch_job_runs_to_its_end_and_so_it_is_reported(self):
        for name, objects in {"kustomize": kustomize("cpu"), "helm": helm()}.items():
            with self.subTest(name):
                node = self.node(objects)
                pods = node.start_all()
                for (role, _), process in pods.items():
                    code, said = end_of(process)
                    self.assertEqual(code, 0, f"{role}: {said}")
                run = node.folder / "slackline-runs" / "slackline"
                self.assertEqual(json.loads((run / "summary.json").read_text())["state"], "done")
                self.assertTrue((run / "model.safetensors").exists())
                names = {entry["name"] for entry in json.loads((run / "summary.json").read_text())["worker_list"]}
                self.assertEqual(names, {"worker-0", "worker-1"})
                # A JobSet that is restarted after all has nothing to do.
                code, said = end_of(node.start("scheduler"))
                self.assertEqual((code, "is done, with 2 epochs" in said), (0, True), said)

    def test_a_pod_with_two_groups_trains_and_each_of_its_containers_comes_back_as_its_group(self):
        node = self.node(helm({"job": {
            "security": {"mode": "none", "insecure": True}, "cluster": {"servers": 1, "workers": 2},
            "worker": {"cores": 1, "groups": [{"devices": ["cpu"], "batch": 48}, {"devices": ["cpu"], "batch": 16}]}}}))
        SMALL["training"]["epochs"] = 100000
        self.addCleanup(SMALL["training"].update, epochs=2)
        cores = sorted(os.sched_getaffinity(0))
        scheduler, server = node.start("scheduler"), node.start("server")
        first, second = node.start("worker", group=0, cores=cores[-1:]), node.start("worker", group=1)
        before = self.both(node)
        # A container that dies is started again, as the same group; the pod's other one goes on.
        os.killpg(second.pid, signal.SIGKILL)
        self.assertEqual(end_of(second)[0], -signal.SIGKILL)
        second = node.start("worker", group=1)
        pid = before["worker-0-group1"]["pid"]
        PROGRAMS.wait_for("the second group again", lambda: self.live(node).get("worker-0-group1", {}).get("pid", pid) != pid)
        after = self.both(node)
        self.assertEqual(after["worker-0-group0"]["pid"], before["worker-0-group0"]["pid"])
        # The pod is evicted: both are told to stop, and leave.
        for process in (first, second):
            process.send_signal(signal.SIGTERM)
        said = []
        for process in (first, second):
            code, log = end_of(process)
            self.assertEqual(code, 143, log)
            said.append(log)
        pod = [node.start("worker", group=group) for group in (0, 1)]
        self.both(node)
        scheduler.send_signal(signal.SIGINT)
        for process in (scheduler, server, *pod):
            code, log = end_of(process)
            self.assertEqual(code, 0, log)
        run = node.folder / "slackline-runs" / "slackline"
        for group in (0, 1):
            self.assertIn(f"worker-0-group{group} leaves: told to stop by SIGTERM", (run / "events.log").read_text())
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual(summary["state"], "stopped")
        for one in summary["worker_list"]:
            batch = {"worker-0-group0": 48, "worker-0-group1": 16}[one["name"]]
            self.assertTrue(0.7 * batch < one["samples"] / one["steps"] <= batch, one)
        # Cores are bound where they are the container's own.
        self.assertIn(f"computes on cores {cores[-1]};", said[0])
        if len(cores) > 1:
            self.assertIn(f"worker.cores: nothing is bound: this container may use 1 processor(s) at a time, and sees {len(cores)}", said[1])

    def test_devices_of_a_worker_share_the_processors_of_its_pod(self):
        node = self.node(helm({"job": {"security": {"mode": "none", "insecure": True}, "worker": {"devices": ["cpu", "cpu"]}}}))
        node.cpus = 5
        worker = node.start("worker")
        PROGRAMS.wait_for("a worker that says what it computes on", lambda: " thread(s), " in worker.log.read_text(errors="replace"))
        self.assertIn("cpu, cpu with 2 thread(s)", worker.log.read_text(errors="replace"))

    def test_workers_in_two_pods_give_each_other_images(self):
        node = self.node(helm({"job": {
            "security": {"mode": "none", "insecure": True}, "cluster": {"servers": 1, "workers": 2},
            "model": {"kind": "mlp", "classes": 2, "hidden": [8]}, "training": {"batch_size": 16}, "optimizer": {"kind": "sgd"},
            "data": {"format": "prepared", "path": "/data", "cache": {"folder": "/cache", "peers": True}}}, "data": {"claimName": "images"}}))
        for name in ("light", "dark"):
            (node.folder / "pictures" / name).mkdir(parents=True)
            for i in range(60):
                (node.folder / "pictures" / name / f"{i}.png").write_bytes(picture([i + (160 if name == "light" else 0)] * 3))
        subprocess.run([PROGRAMS.path("slackline"), "prepare", node.folder / "pictures", node.folder / "images", "--size", "8",
                        "--split", "train=0.7,validation=0.1,test=0.2", "--shard-images", "4"], check=True, capture_output=True)
        said = {role: end_of(process) for role, process in node.start_all().items()}
        for code, log in said.values():
            self.assertEqual(code, 0, log)
        come = [int(number) for number in re.findall(r"(\d+) bytes came from other workers", "".join(log for _, log in said.values()))]
        self.assertEqual((len(come), sum(come) > 0), (2, True), said)

    def live(self, node):
        """Workers that train, by name."""
        asked = subprocess.run([PROGRAMS.path("slackline"), "status", str(node.folder / "slackline-runs" / "slackline"), "--json"],
                               capture_output=True, text=True, check=False, timeout=60)
        workers = json.loads(asked.stdout).get("workers", []) if asked.stdout.startswith("{") else []
        return {one["name"]: one for one in workers if one["state"] == "live" and int(one.get("steps", 0)) > 0}

    def both(self, node):
        """What the status says of two workers, as soon as both train."""
        def look():
            workers = self.live(node)
            return workers if len(workers) == 2 else None
        return PROGRAMS.wait_for(lambda: "two workers that train\n" + "\n".join(
            f"{process.log.name}:\n{process.log.read_text(errors='replace')}" for process in node.running), look, seconds=90)

    def test_the_service_goes_on_when_each_of_its_pods_is_replaced(self):
        node = self.node(kustomize("service"))
        SMALL["training"]["epochs"] = 100000
        self.addCleanup(SMALL["training"].update, epochs=2)
        pods = node.start_all()
        run = node.folder / "slackline-runs" / "slackline"
        self.await_row(run, 0)
        for who in (("scheduler", 0), ("server", 1), ("worker", 0)):
            pods[who].send_signal(signal.SIGTERM)
            code, said = end_of(pods[who])
            self.assertEqual(code, 143 if who[0] == "scheduler" else 0, said)
            pods[who] = node.start(*who)
            self.await_row(run, self.rows(run) + 1)
        # One more than the job has.
        node.start("worker", 2)
        PROGRAMS.wait_for("a third worker", lambda: (run / "events.log").read_text().count("slackline-worker-2"))
        self.await_row(run, self.rows(run) + 1)
        self.assertEqual([who for who, process in pods.items() if process.poll() is not None], [])
        self.assertEqual(len(list((node.folder / "snapshots").iterdir())), 1)

    def rows(self, run):
        path = run / "metrics.csv"
        return path.read_text().count("\n") if path.exists() else 0

    def await_row(self, run, least):
        PROGRAMS.wait_for(f"row {least} of {run}/metrics.csv", lambda: self.rows(run) > max(least, 2), seconds=90)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", required=True)
    parser.add_argument("--patience", type=float, default=1)
    options, rest = parser.parse_known_args()
    render.need_tools()
    PROGRAMS = Programs(options.programs, options.patience)
    if not pathlib.Path(PROGRAMS.path("slackline-worker")).exists():
        print("SKIP: there is no slackline-worker: it needs LibTorch")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest])
