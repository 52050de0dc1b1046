"""A service with many jobs: real processes, kill -9 of the service, orders to jobs, and what is left of them.

    run_service.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import yaml

from run_e2e import DATA, MLP, NEEDED
from slackline_run import Programs, end_jobs, processes_with

try:
    import jsonschema
except ImportError:
    jsonschema = None

OPTIONS = argparse.Namespace()

SHORT = MLP + """
data: {train_images_max: 2000}
training: {epochs: 2, evaluate_every_epochs: 0}
cluster: {servers: 1, workers: 1}
"""
LONG = SHORT.replace("epochs: 2", "epochs: 100000") + "checkpoint: {at_end: true}\n"


class ServiceCase(unittest.TestCase):
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


class Service(ServiceCase):
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
        labels = []

        def all_are_there():
            with urllib.request.urlopen(self.page + "targets", timeout=30) as targets:
                labels[:] = [target["labels"] for target in json.load(targets)]
            return {"scheduler", "server", "worker"} <= {label["role"] for label in labels}

        # The scheduler lists its members a moment after they have come.
        self.programs.wait_for(lambda: f"all targets; there are {labels}", all_are_there, 60)
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


class Api(ServiceCase):
    """Orders over HTTP. Every answer is compared with what openapi.yaml promises, where the package jsonschema is there."""

    def setUp(self):
        super().setUp()
        self.token = (self.root / "service/token").read_text().strip()
        self.assertEqual((self.root / "service/page").read_text().strip(), self.page)
        self.promised = yaml.safe_load(self.fetch("GET", "/api/openapi.yaml", token=None)[1])
        self.seen = set()

    def fetch(self, method, path, body=None, token=""):
        """Returns the code, the body and the headers. `token`: empty for the right one."""
        headers = {} if token is None else {"Authorization": "Bearer " + (token or self.token)}
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.page.rstrip("/") + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120 * OPTIONS.patience) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), error.headers

    def resolve(self, node):
        """The description with its references in their places."""
        if isinstance(node, dict) and "$ref" in node:
            target = self.promised
            for name in node["$ref"].removeprefix("#/").split("/"):
                target = target[name]
            return self.resolve(target)
        if isinstance(node, dict):
            return {name: self.resolve(value) for name, value in node.items()}
        return [self.resolve(value) for value in node] if isinstance(node, list) else node

    def call(self, method, path, body=None, code=200, token=""):
        """Returns the answer, which must have this code and be as it is described."""
        got, text, headers = self.fetch(method, path, body, token)
        self.assertEqual(got, code, text)
        name = re.sub(r"(?<=/api/jobs/)[^/?]+", "{id}", path.split("?")[0])
        operation = self.resolve(self.promised["paths"][name][method.lower()])
        self.assertIn(str(code), operation["responses"], f"{method} {name}")
        self.seen.add((method.lower(), name, str(code)))
        response = operation["responses"][str(code)]
        self.assertEqual({header for header in response.get("headers", {}) if header not in headers}, set())
        answer = json.loads(text)
        if jsonschema is not None:
            jsonschema.validate(answer, response["content"]["application/json"]["schema"])
            if 200 <= code < 300 and body is not None:
                asked = operation["requestBody"]["content"]["application/json"]["schema"]
                jsonschema.validate(json.loads(body) if isinstance(body, bytes) else body, asked)
        return answer

    def submit_over_http(self, job, **fields):
        return self.call("POST", "/api/jobs", {"job": job, "folder": str(self.root)} | fields, code=201)["id"]

    def test_jobs_are_submitted_followed_stopped_and_removed(self):
        begun = self.submit_over_http(LONG, name="long", owner="ada", priority=3,
                                      environment={"HOME": str(self.root), "PATH": os.environ["PATH"]})
        (self.root / "there").mkdir()
        waits = self.submit_over_http(yaml.safe_load(SHORT) | {"checkpoint": {"folder": "kept"}}, folder=str(self.root / "there"),
                                      overrides=["optimizer.lr=0.05"], name="--gpus=1", memory_bytes=0)
        self.await_training(begun)
        job = self.call("GET", f"/api/jobs/{begun}", token=None)
        self.assertEqual((job["name"], job["owner"], job["priority"], job["state"]), ("long", "ada", 3, "running"))
        kept = yaml.safe_load((self.root / f"service/jobs/{waits}/job.yaml").read_text())
        self.assertEqual((kept["optimizer"]["lr"], kept["checkpoint"]["folder"]), (0.05, str(self.root / "there/kept")))
        self.assertEqual(self.call("GET", f"/api/jobs/{waits}")["name"], "--gpus=1")
        self.assertEqual([job["id"] for job in self.call("GET", "/api/jobs", token=None)], [waits, begun])
        self.assertEqual(self.call("GET", f"/api/jobs/{waits}/log"), {"text": "", "next": 0, "end": False})
        log = self.call("GET", f"/api/jobs/{begun}/log")
        self.assertIn("training begins", log["text"])
        self.assertFalse(log["end"])
        more = self.call("GET", f"/api/jobs/{begun}/log?process=worker-1&from=0")
        self.assertEqual(len(more["text"].encode()), more["next"])
        with (self.root / f"service/jobs/{begun}/run/logs/other.log").open("wb") as other:
            other.write("é".encode() * (600 << 10) + b"\xc3")
        first = self.call("GET", f"/api/jobs/{begun}/log?process=other&from=1")
        self.assertEqual((first["next"], first["text"].count("é")), (1 << 20, (1 << 19) - 1), first["text"][-9:])
        rest = self.call("GET", f"/api/jobs/{begun}/log?process=other&from={first['next']}")
        self.assertEqual(rest["next"], 1200 << 10, "half a character is not given")
        self.assertEqual(self.call("POST", f"/api/jobs/{waits}/cancel")["state"], "cancelled")
        self.assertEqual(self.call("POST", f"/api/jobs/{begun}/stop", {"reason": "enough"})["state"], "stopping")
        self.await_state(begun, "stopped")
        done = self.call("GET", f"/api/jobs/{begun}", token=None)["epochs_done"]
        self.call("POST", f"/api/jobs/{begun}/resume", {"overrides": [f"training.epochs={done + 2}"]})
        self.await_state(begun, "done")
        self.assertEqual(self.call("GET", f"/api/jobs/{begun}")["epochs_done"], done + 2)
        for one in (begun, waits):
            self.call("DELETE", f"/api/jobs/{one}")
        self.assertEqual(self.jobs(), {})
        self.assertLessEqual({(method, name) for name, path in self.promised["paths"].items() for method in path
                              if method != "parameters"}, {(method, name) for method, name, _ in self.seen})

    def test_submissions_at_the_same_time_are_taken_or_refused(self):
        job = {"job": LONG, "folder": str(self.root)}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: self.fetch("POST", "/api/jobs", job), range(8)))
        taken = [json.loads(text)["id"] for code, text, _ in answers if code == 201]
        refused = [headers["Retry-After"] for code, _, headers in answers if code == 429]
        self.assertEqual((len(taken) + len(refused), set(refused) - {"1"}), (8, set()), answers)
        self.assertEqual(set(self.jobs()), set(taken))
        self.assertTrue(taken)

    def test_a_script_gets_its_arguments_as_they_are(self):
        (self.root / "words.py").write_text("import sys\nprint(sys.argv[1:])\n")
        words = ["--betas", "[0.9,0.99]", "[]", "a b", "--set=x", "[a", "b]"]
        job = self.submit_over_http({"model": {"kind": "external"}, "cluster": {"servers": 1, "workers": 1}}, script="words.py",
                                    python=sys.executable, arguments=words)
        self.programs.wait_for("the script to run", lambda: repr(words) in self.fetch("GET", f"/api/jobs/{job}/log?process=worker-1")[1], 60)

    def test_what_is_wrong_is_said_and_changes_nothing(self):
        job = {"job": SHORT, "folder": str(self.root)}
        for body, why in ((b"", "job: found nothing"), ({**job, "job": ""}, 'job: found ""'), ({**job, "owner": "x" * 201}, "owner"), (b"[]", "no JSON object"), (b"{", "no JSON object"),
                          ({**job, "job": 1}, "job: found 1; allowed is a job file"),
                          ({**job, "more": 1}, 'found the field "more"; allowed are job, folder'),
                          ({**job, "folder": "here"}, 'folder: found "here"; allowed is the absolute path'),
                          ({**job, "folder": "/nowhere"}, "folder: found /nowhere: No such file or directory"),
                          ({**job, "folder": "/dev/null"}, "folder: found /dev/null: Not a directory"),
                          ({**job, "name": 1}, "name: found 1; allowed is a text"), ({**job, "script": ""}, 'script: found ""'),
                          ({**job, "overrides": ["x" * 200000]}, "of at most 100 KiB"),
                          ({**job, "overrides": "optimizer.lr=1"}, "overrides: found"),
                          ({**job, "overrides": ["consistency.mode=x"]}, "--set consistency.mode=x: "),
                          ({**job, "overrides": ["data.path=/nowhere"]}, "data.path"),
                          ({**job, "environment": {"A=B": "c"}}, "environment: found"),
                          ({**job, "environment": {}}, "environment: found"),
                          ({**job, "priority": 1.5}, "priority: found 1.5; allowed is a whole number"),
                          ({**job, "priority": 1001}, "priority: Value 1001"), ({**job, "gpus": 1}, "--gpus"),
                          ({**job, "on": "moon"}, "moon"), ({**job, "job": "model: ["}, "job:1: found no"),
                          ({**job, "name": "--help\0"}, "name: found")):
            with self.subTest(why=why):
                self.assertIn(why, self.call("POST", "/api/jobs", body, code=400)["error"])
        for token in (None, "x" * 40):
            with self.subTest(token=token):
                self.call("POST", "/api/jobs", job, code=401, token=token)
                self.call("DELETE", "/api/jobs/1", code=401, token=token)
                self.call("GET", "/api/jobs/1/log", code=401, token=token)
        self.assertEqual(self.jobs(), {})
        self.assertEqual(self.fetch("POST", "/api/jobs", b"x" * ((2 << 20) + 1))[0], 413)
        for path in ("/api/jobs/7", "/api/jobs/7/log", "/api/jobs/0", "/api/jobs/x", "/api/jobs/99999999999999999999"):
            self.call("GET", path, code=404)
        self.call("POST", "/api/jobs/7/cancel", code=404)
        one = self.submit_over_http(LONG)
        self.assertIn("allowed are none", self.fetch("DELETE", f"/api/jobs/{one}", {"reason": "x"})[1])
        self.call("DELETE", f"/api/jobs/{one}", code=409)
        self.call("POST", f"/api/jobs/{one}/resume", code=409)
        self.call("POST", f"/api/jobs/{one}/cancel", {"overrides": []}, code=400)
        self.call("GET", f"/api/jobs/{one}/log?from=x", code=400)
        self.assertIn("allowed are process= and from=", self.call("GET", f"/api/jobs/{one}/log?form=1", code=400)["error"])
        code, text, headers = self.fetch("GET", f"/api/jobs/{one}/stop")
        self.assertEqual((code, headers["Allow"]), (405, "POST"))
        self.assertIn("allowed are log, stop, cancel, resume", self.fetch("POST", f"/api/jobs/{one}/halt")[1])
        self.assertIn("/api/openapi.yaml", self.fetch("POST", "/metrics")[1])
        self.assertEqual(self.jobs()[one]["state"], "running")


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
