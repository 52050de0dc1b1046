"""A run folder for the tests of `slackline track`, and the command."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = HERE.parent.parent / "python"
DEADLINE_S = 120
sys.path.insert(0, str(PYTHON))

JOB = """\
name: first
consistency: {mode: ssp, staleness_max: 4}
model: {kind: mlp, hidden: [16, 8]}
output: {tensorboard: true, report_every_ms: 1000}
"""
SUMMARY = {"name": "first", "state": "done", "reason": "training is complete", "steps": 20, "energy": None,
           "staleness": {"mean": 1.5, "histogram": [[0, 4]]}}


def _varint(value):
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def _bytes(number, data):
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def record(wall_time, step, scalars):
    """A record of an event file, with checksums that nobody looks at."""
    values = b"".join(_bytes(1, _bytes(1, tag.encode()) + b"\x15" + struct.pack("<f", value)) for tag, value in scalars.items())
    event = b"\x09" + struct.pack("<d", wall_time) + b"\x10" + _varint(step) + _bytes(5, values)
    return struct.pack("<Q", len(event)) + b"crc1" + event + b"crc2"


VERSION = struct.pack("<Q", 24) + b"crc1" + b"\x09" + struct.pack("<d", 0) + _bytes(3, b"brain.Event:2") + b"crc2"
FIRST = VERSION + record(1.7e9, 10, {"train/loss": 2.25, "train/learning_rate": 0.1})
SECOND = record(1.7e9 + 1, 20, {"train/loss": 1.5, "test/accuracy": 0.75})


class TrackTest(unittest.TestCase):
    # Folder of the trackers' packages; None: the interpreter's own.
    packages = HERE / "fakes"

    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-track-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name).resolve()
        self.run_folder = self.root / "runs" / "first-1"
        self.run_folder.mkdir(parents=True)
        (self.run_folder / "job.yaml").write_text(JOB)
        self.events = self.run_folder / "events.out.tfevents.1700000000.slackline"
        self.events.write_bytes(FIRST + SECOND)

    def happens(self, *events):
        with (self.run_folder / "events.log").open("a") as file:
            file.writelines(f"2026-11-27 10:00:00.000 {event}\n" for event in events)

    def end_run(self, **changes):
        summary = {**SUMMARY, **changes}
        (self.run_folder / "summary.json").write_text(json.dumps(summary))
        self.happens(f"the job is {summary['state']}: {summary['reason']}")

    def command(self, *options):
        return [sys.executable, "-B", str(PYTHON / "slackline_track"), "--slackline", "x", *map(str, options)]

    @property
    def environment(self):
        return {**os.environ, **({"PYTHONPATH": str(self.packages)} if self.packages else {})}

    def track(self, *options, code=0):
        done = subprocess.run(self.command(*options), cwd=self.root, env=self.environment, capture_output=True, text=True,
                              timeout=DEADLINE_S)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done
