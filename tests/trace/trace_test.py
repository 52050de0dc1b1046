"""`slackline trace`: files of worker.trace as spans of OpenTelemetry."""
import base64
import contextlib
import copy
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from slackline_trace import command  # noqa: E402

BEGAN_NS = 1738310400000000123


def row(number, name):
    return {"ph": "M", "pid": 0, "tid": number, "name": "thread_name", "args": {"name": name}}


def on_row(number, name, begin_us, length_us):
    return {"ph": "X", "pid": 0, "tid": number, "name": name, "ts": begin_us, "dur": length_us}


# As a worker writes it: two steps of 100 us, a push that begins in the first and ends in the second, and something before any step.
TRACE = {
    "displayTimeUnit": "ms", "otherData": {"began_unix_ns": str(BEGAN_NS), "events_not_kept": 3},
    "traceEvents": [
        {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": "worker-1"}},
        row(1, "device 0"), row(2, "trainer"),
        on_row(1, "warm up", 0.0, 5.0),
        on_row(2, "step 1", 10.0, 100.0), on_row(1, "forward", 12.5, 20.0), on_row(1, "backward", 32.5, 40.0),
        on_row(1, "reduce bucket 0", 40.0, 5.0),
        {"pid": 0, "tid": 0, "cat": "push shard", "name": "push shard 7", "id": 8, "ph": "b", "ts": 60.0},
        {"pid": 0, "tid": 0, "cat": "push shard", "name": "push shard 7", "id": 8, "ph": "e", "ts": 130.0},
        on_row(2, "wait for servers", 80.0, 30.0),
        on_row(2, "step 2", 110.0, 100.0), on_row(1, "forward", 110.0, 20.0)]}


class Trace(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-trace-export-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)

    def write(self, name, text):
        path = self.root / name
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return str(path)

    def export(self, *arguments, code=0):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            found = command.main([*arguments, "--otlp-json", str(self.root / "spans.jsonl")])
        self.assertEqual(found, code, err.getvalue())
        return err.getvalue()

    def lines(self):
        return [json.loads(line) for line in (self.root / "spans.jsonl").read_text().splitlines()]

    def spans(self, trace=None):
        self.export(self.write("trace.json", trace or TRACE))
        line, = self.lines()
        return line["resourceSpans"][0]["scopeSpans"][0]["spans"]

    def test_times_are_of_the_wall_clock(self):
        spans = {(span["name"], span["startTimeUnixNano"]): span for span in self.spans()}
        forward = spans["forward", str(BEGAN_NS + 12500)]
        self.assertEqual(forward["endTimeUnixNano"], str(BEGAN_NS + 32500))
        push = spans["push shard 7", str(BEGAN_NS + 60000)]
        self.assertEqual(push["endTimeUnixNano"], str(BEGAN_NS + 130000))
        self.assertEqual(len(spans), 9)

    def test_a_step_is_a_trace_with_all_that_begins_in_it(self):
        spans = self.spans()
        by_id = {span["spanId"]: span for span in spans}
        self.assertEqual(len(by_id), len(spans))
        named = {}
        for span in spans:
            named.setdefault(span["name"], []).append(span)

        def parent(span):
            return by_id[span["parentSpanId"]]["name"] if "parentSpanId" in span else None

        self.assertEqual({name: [parent(span) for span in of] for name, of in named.items()},
                         {"warm up": [None], "step 1": [None], "step 2": [None], "forward": ["step 1", "step 2"],
                          "backward": ["step 1"], "reduce bucket 0": ["backward"], "push shard 7": ["step 1"],
                          "wait for servers": ["step 1"]})
        for span in spans:
            if "parentSpanId" in span:
                self.assertEqual(span["traceId"], by_id[span["parentSpanId"]]["traceId"])
        self.assertEqual(len({span["traceId"] for span in spans}), 3)
        self.assertEqual({span["name"]: span["kind"] for span in spans if span["kind"] != 1}, {"push shard 7": 3})

    def test_what_ends_with_its_step_or_overlaps_nothing_keeps_its_place(self):
        trace = copy.deepcopy(TRACE)
        trace["traceEvents"] += [on_row(2, "evaluate", 210.0, 10.0), on_row(1, "after", 230.0, 1.0)]
        spans = {span["name"]: span for span in self.spans(trace)}
        for name in ("evaluate", "after"):
            self.assertNotIn("parentSpanId", spans[name])

    def test_each_file_is_a_line_and_a_resource(self):
        other = copy.deepcopy(TRACE)
        other["traceEvents"][0]["args"]["name"] = "worker-2"
        said = self.export(self.write("one.json", TRACE), self.write("two.json", other), "--job", "first")
        self.assertIn("worker-1: 9 spans\nworker-2: 9 spans\n", said)
        attributes = []
        for line in self.lines():
            attributes.append({one["key"]: next(iter(one["value"].values())) for one in line["resourceSpans"][0]["resource"]["attributes"]})
        self.assertEqual(attributes, [{"service.name": "slackline-worker", "service.instance.id": f"worker-{number}",
                                       "slackline.job": "first", "slackline.events_not_kept": "3"} for number in (1, 2)])
        ids = [{span["traceId"] for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]} for line in self.lines()]
        self.assertFalse(ids[0] & ids[1])

    def test_the_same_file_gives_the_same_bytes(self):
        path = self.write("trace.json", TRACE)
        self.export(path)
        first = (self.root / "spans.jsonl").read_bytes()
        self.export(path)
        self.assertEqual((self.root / "spans.jsonl").read_bytes(), first)

    def test_the_messages_of_opentelemetry_have_these_fields(self):
        try:
            from google.protobuf import json_format
            from opentelemetry.proto.trace.v1 import trace_pb2
        except ImportError:
            self.skipTest("opentelemetry-proto is not installed; ./test --all installs it")
        spans = self.spans()
        line, = self.lines()
        # In OTLP these are hexadecimal digits, elsewhere in protobuf's JSON base64.
        for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            for name, size in (("traceId", 16), ("spanId", 8), ("parentSpanId", 8)):
                if name in span:
                    self.assertEqual(len(bytes.fromhex(span[name])), size)
                    span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        # Unknown names and wrong types are errors.
        read = json_format.ParseDict(line, trace_pb2.TracesData())
        found = read.resource_spans[0].scope_spans[0].spans
        self.assertEqual(len(found), len(spans))
        step = next(span for span in found if span.name == "step 1")
        self.assertEqual((step.start_time_unix_nano, step.end_time_unix_nano), (BEGAN_NS + 10000, BEGAN_NS + 110000))
        self.assertEqual(step.kind, trace_pb2.Span.SPAN_KIND_INTERNAL)
        self.assertEqual(next(span for span in found if span.name == "push shard 7").kind, trace_pb2.Span.SPAN_KIND_CLIENT)
        self.assertEqual(step.attributes[0].value.string_value, "trainer")
        self.assertEqual(read.resource_spans[0].resource.attributes[2].value.int_value, 3)
        self.assertEqual(read.resource_spans[0].scope_spans[0].scope.name, "slackline.worker.trace")

    def test_mistakes_are_named_and_change_nothing(self):
        old = copy.deepcopy(TRACE)
        del old["otherData"]["began_unix_ns"]
        no_end = copy.deepcopy(TRACE)
        no_end["traceEvents"][5]["ts"] = "x"
        for path, message in ((self.write("a.json", "{"), "found no trace; allowed is a file that worker.trace has written"),
                              (self.write("b.json", []), "found no trace"), (self.write("c.json", no_end), "found no trace"),
                              (self.write("d.json", old), "found no began_unix_ns in otherData"),
                              (str(self.root / "nowhere"), "cannot read ")):
            with self.subTest(path):
                self.assertIn(message, self.export(self.write("good.json", TRACE), path, code=1))
                self.assertFalse((self.root / "spans.jsonl").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
