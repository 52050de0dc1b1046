"""worker.trace, and the devices of a worker, from outside: what a worker did when is a file that viewers read.

    run_trace.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from run_e2e import DATA, NEEDED
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()

# Large enough to push while backward goes on, to servers that need it on a socket. The second layer is most of it, and
# its gradient is made first.
JOB = """
name: trace
model: {kind: mlp, hidden: [2048, 2048]}
optimizer: {lr: 0.02}
data: {train_images_max: 5120}
training: {epochs: 1, batch_size: 256}
cluster: {servers: 2, workers: 1, shards_per_server: 4}
durability: {mode: none}
wire: {same_host: tcp, encoding: bf16}
worker:
  threads: 1
  trace: "traces/{name}.json"
"""


class Collector(http.server.ThreadingHTTPServer):
    """Keeps what it is sent. Its first answer is 503."""

    def __init__(self):
        self.got = got = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                got.append((self.path, self.headers["Content-Type"], json.loads(body)))
                self.send_response(503 if len(got) == 1 else 200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

        super().__init__(("127.0.0.1", 0), Handler)
        self.port = self.server_port
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.shutdown()
        self.thread.join()
        self.server_close()


MICROSECOND = 1e-3  # times are written to the nanosecond


def ends_of(event):
    return event["ts"], event["ts"] + event["dur"]


class Traces(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-trace-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        (self.root / "traces").mkdir()
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def train(self, *settings):
        """The trace of its worker."""
        job = self.root / "job.yaml"
        job.write_text(JOB)
        run = TrainRun(self.programs, self.root, job, settings)
        self.addCleanup(run.close)
        self.assertEqual(run.wait(), 0, run.diagnosis())
        trace = json.loads((self.root / "traces" / "worker-1.json").read_text())
        self.assertEqual(trace["otherData"]["events_not_kept"], 0)
        return trace["traceEvents"]

    def rows(self, events):
        """The events of each row by its name, each of them nested as calls are."""
        names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        rows = {name: [event for event in events if event["ph"] == "X" and event["tid"] == row]
                for row, name in names.items()}
        for row in rows.values():
            open_ends = []
            for event in row:
                begin, end = ends_of(event)
                while open_ends and open_ends[-1] <= begin + MICROSECOND:
                    open_ends.pop()
                self.assertTrue(not open_ends or end <= open_ends[-1] + MICROSECOND, event)
                open_ends.append(end)
        return rows

    def overlapping(self, events, what):
        """Beginning and end of each of a kind."""
        ends = {event["id"]: event["ts"] for event in events if event["ph"] == "e" and event["cat"] == what}
        begins = {event["id"]: event["ts"] for event in events if event["ph"] == "b" and event["cat"] == what}
        self.assertEqual(set(begins), set(ends))
        self.assertTrue(all(begins[one] <= ends[one] for one in begins))
        return [(begins[one], ends[one]) for one in sorted(begins)]

    def check_overlap(self, events, backwards):
        """In some steps a push begins while all devices are in backward; a busy machine may spoil others."""
        begins = [begin for begin, _ in self.overlapping(events, "push shard")]
        overlapped = [begin for begin in begins
                      if all(any(first < begin < last for first, last in device) for device in backwards)]
        self.assertTrue(overlapped, "no push began before backward was over")

    def test_pushes_begin_while_two_devices_go_on_with_backward(self):
        events = self.train("worker.devices=[cpu, cpu]")
        rows = self.rows(events)
        self.assertEqual(set(rows), {"device 0", "device 1", "trainer", "exchange"})
        backwards = []
        for device in ("device 0", "device 1"):
            names = [event["name"] for event in rows[device]]
            self.assertEqual(names.count("forward"), 20)
            backwards.append([ends_of(event) for event in rows[device] if event["name"] == "backward"])
            self.assertEqual(len(backwards[-1]), 20)
        sums = [event["name"] for device in ("device 0", "device 1") for event in rows[device]
                if event["name"].startswith("reduce bucket")]
        # 5.8 million elements: 1 MiB, and five of 4 MiB and a rest.
        self.assertEqual({name: sums.count(name) for name in sums}, {f"reduce bucket {i}": 20 for i in range(7)})
        self.check_overlap(events, backwards)
        trainer = [event["name"] for event in rows["trainer"]]
        for name, least in (("wait for data", 20), ("wait for servers", 20), ("evaluate", 1)):
            self.assertGreaterEqual(trainer.count(name), least)
        self.assertEqual(sum(name.startswith("step ") for name in trainer), 20)
        self.assertTrue(all(event["name"].startswith("encode shard ") for event in rows["exchange"]))
        for what in ("push shard", "pull shard"):
            self.assertEqual(len(self.overlapping(events, what)), 20 * 8)

    def test_stages_work_on_different_micro_batches_at_once(self):
        events = self.train("worker.devices=[cpu, cpu]", "worker.stages=2")
        rows = self.rows(events)
        self.assertEqual(set(rows), {"stage 0", "stage 1", "trainer", "exchange"})
        for stage in ("stage 0", "stage 1"):
            names = [event["name"] for event in rows[stage]]
            self.assertEqual({name: names.count(name) for name in names},
                             {f"{way} {i}": 20 for way in ("forward", "backward") for i in range(8)})
        first = [ends_of(event) for event in rows["stage 0"]]
        second = [ends_of(event) for event in rows["stage 1"]]
        self.assertTrue(any(a < d and c < b for a, b in first for c, d in second), "stages took turns")

    def test_one_device_is_recorded_too(self):
        events = self.train()
        rows = self.rows(events)
        names = [event["name"] for event in rows["device 0"]]
        self.assertEqual({name: names.count(name) for name in names}, {"forward": 20, "backward": 20})
        self.check_overlap(events, [[ends_of(event) for event in rows["device 0"] if event["name"] == "backward"]])
        # Weights of the step before come while forward goes on: without layers that wait for their own, no pull does.
        forwards = [ends_of(event) for event in rows["device 0"] if event["name"] == "forward"]
        pulls = self.overlapping(events, "pull shard")
        self.assertTrue(any(begin < last and first < end for first, last in forwards for begin, end in pulls))
        self.assertIn("wait for a layer", [event["name"] for event in rows["trainer"]])

    def test_a_trace_becomes_spans_of_opentelemetry(self):
        begun = time.time_ns()
        events = self.train()
        target = self.root / "spans.jsonl"
        done = subprocess.run([self.programs.path("slackline"), "trace", self.root / "traces/worker-1.json", "--otlp-json", target],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * OPTIONS.patience)
        self.assertEqual(done.returncode, 0, done.stderr)
        line, = target.read_text().splitlines()
        spans = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
        self.assertEqual(len(spans), sum(event["ph"] in "Xe" for event in events))
        steps = {span["spanId"] for span in spans if span["name"].startswith("step ")}
        self.assertEqual(len(steps), 20)
        for name in ("forward", "backward"):
            self.assertEqual({span.get("parentSpanId") for span in spans if span["name"] == name}, steps)
        for span in spans:
            self.assertTrue(begun < int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) < time.time_ns(), span)

    def test_a_collector_gets_the_spans_while_the_run_goes_on(self):
        collector = Collector()
        self.addCleanup(collector.close)
        begun = time.time_ns()
        events = self.train(f"worker.trace_otlp=http://127.0.0.1:{collector.port}/")
        self.assertEqual({(path, kind) for path, kind, _ in collector.got}, {("/v1/traces", "application/json")})
        self.assertGreater(len(collector.got), 1, "all came at the end")
        resources = [message["resourceSpans"][0] for _, _, message in collector.got]
        attributes = {one["key"]: one["value"] for one in resources[-1]["resource"]["attributes"]}
        self.assertEqual({key: list(value.values())[0] for key, value in attributes.items()},
                         {"service.name": "slackline-worker", "service.instance.id": "worker-1", "slackline.job": "trace",
                          "slackline.events_not_kept": "0"})
        # The first answer was 503: what it was given came again.
        spans = [span for resource in resources[1:] for span in resource["scopeSpans"][0]["spans"]]
        self.assertEqual(len({span["spanId"] for span in spans}), len(spans))
        self.assertEqual(len(spans), sum(event["ph"] in "Xe" for event in events))
        steps = {span["spanId"] for span in spans if span["name"].startswith("step ")}
        self.assertEqual(len(steps), 20)
        for name in ("forward", "backward"):
            self.assertEqual({span.get("parentSpanId") for span in spans if span["name"] == name}, steps)
        for span in spans:
            self.assertRegex(span["traceId"], "^[0-9a-f]{32}$")
            self.assertTrue(begun < int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) < time.time_ns(), span)

    def test_a_collector_that_is_not_there_costs_nothing(self):
        collector = Collector()
        collector.close()
        self.train(f"worker.trace_otlp=http://127.0.0.1:{collector.port}")
        log = (self.root / "run" / "logs" / "worker-1.log").read_text()
        self.assertEqual(log.count("worker.trace_otlp: spans are not sent, and training goes on: "), 1)
        self.assertRegex(log, r"worker\.trace_otlp: sent 0 spans, dropped [1-9]\d*\n")


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
