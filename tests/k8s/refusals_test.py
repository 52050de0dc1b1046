#!/usr/bin/env python3
"""usage: refusals_test.py --programs FOLDER [TEST...]: what the programs refuse of a job's devices, the chart refuses, too.

Two places say what worker.groups and the like may be: common/job/worker_rules.cc and the chart, which must say it before
there are pods. Here both are asked about the same jobs.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

import render
from render import CHART, RenderError, helm, skip


def groups(*some, training=None, **worker):
    return {"cluster": {"servers": 2, "workers": 2 * len(some)}, "worker": {"groups": list(some), **worker}, "training": training or {}}


def worker(**settings):
    return {"worker": settings}


REFUSED = {
    "the same GPU in two groups": groups(["cuda:0"], ["cuda:0"]),
    "the same GPU in two groups with settings": groups({"devices": ["cuda:1", "cuda:0"], "batch": 8}, "cpu", {"devices": "cuda:0"}),
    "all GPUs beside one": groups("auto", ["cuda:0"]),
    "one GPU beside all": groups(["cuda:3"], {"devices": "auto"}),
    "all GPUs twice": groups("auto", ["auto"]),
    "a GPU twice in a group": groups(["cuda:0", "cuda:0"]),
    "a group of two kinds": groups(["cuda:0", "cpu"]),
    "auto beside another": groups(["auto", "cpu"]),
    "a GPU with a zero": groups(["cuda:00"]),
    "a GPU beyond all": groups(["cuda:1024"]),
    "no such device": groups(["gpu:0"]),
    "a number as a device": groups([0]),
    "a group of nothing": groups([]),
    "a group without devices": groups({"batch": 4}),
    "an unknown key of a group": groups({"devices": "cpu", "core": 4}),
    "a batch that is no number": groups({"devices": "cpu", "batch": "16"}),
    "a batch below 0": groups({"devices": "cpu", "batch": -1}),
    "a precision that there is not": groups({"devices": "cpu", "precision": "half"}),
    "no cores": groups({"devices": "cpu", "cores": 0}),
    "cores below 0": groups({"devices": "cpu", "cores": -4}),
    "half a core": groups({"devices": "cpu", "cores": 1.5}),
    "more cores than there can be": groups({"devices": "cpu", "cores": 4097}),
    "cores of all groups that are none": groups("cpu", cores=0),
    "cores that are a word": groups({"devices": "cpu", "cores": "all"}),
    "more devices than the group's batch": groups({"devices": ["cpu"] * 3, "batch": 2}),
    "more devices than the batch": groups(["cpu"] * 5, training={"batch_size": 4}),
    "a batch of a group, and balance": groups({"devices": "cpu", "batch": 4}, training={"batch": "balance"}),
    "groups and stages": groups("cpu", stages=2),
    "groups and devices": groups("cpu", devices="cpu"),
    "a part of a node's groups": {**groups("cpu", "cpu"), "cluster": {"workers": 3}},
    "groups that are a map": worker(groups={"devices": "cpu"}),
    "no such device of a worker": worker(devices=["cuda0"]),
    "two kinds of devices of a worker": worker(devices=["cpu", "cuda:0"]),
    "a GPU of a worker twice": worker(devices=["cuda:1", "cuda:1"]),
    "more devices of a worker than the batch": {"worker": {"devices": ["cpu"] * 3}, "training": {"batch_size": 2}},
    "cores of a worker that are none": worker(cores=0),
    "stages without devices": worker(stages=2),
    "stages on whatever is there": worker(stages=2, devices="auto"),
    "fewer devices than stages": worker(stages=3, devices=["cpu", "cpu"]),
    "an unknown key of the job": {"trainig": {"epochs": 3}},
    "an unknown key far in": {"optimizer": {"schedule": {"warmup": 3}}},
    "an enum that there is not": {"consistency": {"mode": "bulk"}},
    "a number in quotes": {"optimizer": {"lr": "0.1"}},
    "no servers": {"cluster": {"servers": 0}},
    "peers without a cache": {"data": {"format": "prepared", "path": "/data", "cache": {"peers": True}}},
}
TAKEN = {
    "two groups": groups(["cuda:0", "cuda:1"], {"devices": "cpu", "cores": 2, "batch": 8, "precision": "bf16"}),
    "a device alone": groups("cpu"),
    "a processor twice": groups(["cpu", "cpu"], {"devices": ["cpu"], "cores": "auto"}),
    "the last GPU": groups(["cuda:1023"], ["cuda:0"]),
    "as many devices as the batch": groups({"devices": ["cpu", "cpu"], "batch": 2}),
    "no batch of a group, and balance": groups({"devices": "cpu", "batch": 0}, training={"batch": "balance"}),
    "devices of a worker": worker(devices=["cpu", "cpu"], cores=1),
    "a worker's GPUs": worker(devices=["cuda:0", "cuda:1"]),
    "stages": worker(stages=2, devices=["cpu", "cpu"]),
    "nobody is slowed down": worker(slowdown={}),
    "a section of nothing": {"worker": None, "wire": None},
    "text that looks like a number": {"wire": {"encoding": "fp32"}, "data": {"path": 7}},
}


class RefusalsTest(unittest.TestCase):
    def programs_say(self, job):
        own = render.yaml.safe_load((CHART / "values.yaml").read_text())["job"]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "job.yaml"
            path.write_text(json.dumps(merged(own, job)))
            done = subprocess.run([PROGRAM, "check", path, "--set", "security.mode=none"], capture_output=True, text=True, check=False,
                                  timeout=60)
        return done.stderr if done.returncode else ""

    def chart_says(self, job):
        limits = {"cpu": "8"}
        if "groups" not in (job.get("worker") or {}):
            limits["nvidia.com/gpu"] = 1024
        try:
            helm({"job": job, "workers": {"resources": {"limits": limits}}})
        except RenderError as refused:
            return str(refused)
        return ""

    def both_say(self, jobs):
        with ThreadPoolExecutor(max_workers=2) as pool:
            heard = list(pool.map(lambda job: (self.programs_say(job), self.chart_says(job)), jobs.values()))
        return dict(zip(jobs, heard))

    def test_what_the_programs_refuse_the_chart_refuses(self):
        for name, (programs, chart) in self.both_say(REFUSED).items():
            with self.subTest(name):
                self.assertTrue(programs, "the programs take it")
                self.assertTrue(chart, f"the chart takes it; the programs say: {programs}")

    def test_what_the_programs_take_the_chart_takes(self):
        for name, said in self.both_say(TAKEN).items():
            with self.subTest(name):
                self.assertEqual(said, ("", ""))

    def test_a_map_with_numbers_as_keys_is_read_again(self):
        config = next(thing for thing in helm({"job": worker(slowdown={3: 12})}) if thing["kind"] == "ConfigMap")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "job.yaml"
            path.write_text(config["data"]["job.yaml"])
            done = subprocess.run([PROGRAM, "check", path, "--set", "security.mode=none"], capture_output=True, text=True, check=False,
                                  timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("3: 12", done.stdout)


def merged(one, other):
    result = dict(one)
    for key, value in other.items():
        result[key] = merged(result[key], value) if isinstance(value, dict) and isinstance(result.get(key), dict) else value
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", required=True)
    options, rest = parser.parse_known_args()
    render.need_tools()
    PROGRAM = os.path.join(options.programs, "slackline")
    unittest.main(argv=[sys.argv[0], *rest])
