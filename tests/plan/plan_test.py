"""The package of `slackline plan`, with a stand-in for the programs: what it asks of them, and what it makes of it."""
import argparse
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from slackline_plan import command, energy  # noqa: E402

# Trains one image in 1 ms and exchanges 2 MB in 4 ms; plays as if computing were all, spread over the nodes.
FAKE = """#!/usr/bin/env python3
import json, os, pathlib, signal, sys
settings = {}
for at, word in enumerate(sys.argv):
    if word == "--set":
        key, value = sys.argv[at + 1].split("=", 1)
        settings[key] = value
with open(os.path.dirname(os.path.abspath(__file__)) + "/calls", "a") as calls:
    calls.write(json.dumps([sys.argv[1], settings]) + "\\n")
if sys.argv[1] == "check":
    print("training:\\n  epochs: 30\\nlocal:\\n  epochs: 0")
    sys.exit()
run = pathlib.Path(sys.argv[sys.argv.index("--run-folder") + 1])
run.mkdir(parents=True)
batch = int(settings["training.batch_size"])
if sys.argv[1] == "train":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    (run / "metrics.csv").write_text("time_s,samples\\n1,64\\n")
    signal.sigwait({signal.SIGTERM})
    steps = STEPS
    (run / "summary.json").write_text(json.dumps({"worker_list": [
        {"steps": steps, "compute_seconds": steps * batch * 1e-3, "wait_seconds": steps * 4e-3,
         "pushed_bytes": steps * 1e6, "pulled_bytes": steps * 1e6}]}))
    sys.exit(1)
samples = 60000 * int(settings["training.epochs"])
per_sample = float(settings["simulation.compute_us_per_sample"]) * 1e-6
nodes = int(settings["cluster.workers"])
(run / "summary.json").write_text(json.dumps(
    {"samples": samples, "steps": samples / batch, "time_s": samples * per_sample / nodes}))
"""


class Plan(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-plan-test-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.install()

    def install(self, steps=100, text=FAKE):
        self.program = self.root / "slackline"
        self.program.write_text(text.replace("STEPS", str(steps)))
        self.program.chmod(0o755)

    def run_plan(self, *arguments, code=0):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            found = command.main(["job.yaml", "--slackline", str(self.program), "--measure", "0.2s", *arguments])
        self.assertEqual(found, code, err.getvalue())
        return out.getvalue() if code == 0 else err.getvalue()

    def calls(self, kind):
        lines = (self.root / "calls").read_text().splitlines()
        return [settings for name, settings in map(json.loads, lines) if name == kind]

    def test_each_batch_is_measured_once_and_played_on_each_number_of_nodes(self):
        found = json.loads(self.run_plan("--json", "--batch", "100,200", "--nodes", "1,4", "--limit", "2h"))
        self.assertEqual([(cell["batch"], cell["nodes"]) for cell in found["plan"]],
                         [(100, 1), (100, 4), (200, 1), (200, 4)])
        self.assertEqual(len(self.calls("train")), 2)
        one, four = found["plan"][:2]
        # 30 epochs of 60,000 images of 1 ms each.
        self.assertAlmostEqual(one["samples_per_second"], 1000)
        self.assertAlmostEqual(one["hours"], 0.5)
        self.assertAlmostEqual(four["hours"], 0.125)
        self.assertAlmostEqual(one["epochs_within_limit"], 120)
        self.assertTrue(one["fits"])

    def test_what_was_measured_is_what_is_played(self):
        self.run_plan("--batch", "100", "--nodes", "4", "--set", "optimizer.lr=1")
        played = self.calls("simulate")[0]
        self.assertAlmostEqual(float(played["simulation.compute_us_per_sample"]), 1000)
        self.assertAlmostEqual(float(played["simulation.server_gbyte_per_s"]), 2e6 / 4e-3 / 1e9)
        self.assertEqual(played["cluster.workers"], "4")
        self.assertEqual(played["optimizer.lr"], "1")
        self.assertEqual((played["simulation.worker_gbit_per_s"], played["simulation.latency_us"]), ("0", "0"))
        self.assertEqual(self.calls("train")[0]["optimizer.lr"], "1")

    def test_a_link_has_the_latency_of_the_job(self):
        self.run_plan("--batch", "100", "--nodes", "4", "--gbit-per-s", "10")
        played = self.calls("simulate")[0]
        self.assertEqual(played["simulation.server_gbit_per_s"], "10.0")
        self.assertNotIn("simulation.latency_us", played)

    def test_epochs_of_few_steps_are_played_several_times(self):
        self.run_plan("--batch", "6000", "--nodes", "1")
        self.assertEqual([call["training.epochs"] for call in self.calls("simulate")], ["1", "6"])

    def test_the_table_says_what_fits_and_where_figures_are_from(self):
        text = self.run_plan("--batch", "100", "--nodes", "1,4", "--limit", "10m")
        rows = [line.split("  ") for line in text.splitlines()]
        self.assertRegex(text, r"100 +1 +100.0 ms +4.00 ms +1,000 +30.0 min +10.0 +no")
        self.assertRegex(text, r"100 +4 +100.0 ms +4.00 ms +4,000 +7.5 min +40.0 +yes")
        self.assertIn("* limit: 10.0 min", text)
        self.assertIn("simulate --no-gradients", text)
        self.assertIn("the network between nodes costs nothing here", text)
        self.assertTrue(rows)

    def test_too_few_steps_are_no_measurement(self):
        self.install(steps=2)
        self.assertIn("batch 100: found 2 steps in 0 s; allowed are at least 5",
                      self.run_plan("--batch", "100", "--nodes", "1", code=1))

    def test_a_job_that_cannot_be_trained_says_why(self):
        refusal = "echo 'slackline: job.yaml:1: found x' >&2; exit 2"
        self.install(text=f"#!/bin/sh\n{refusal}\n")
        self.assertIn("slackline plan: slackline: job.yaml:1: found x",
                      self.run_plan("--batch", "100", "--nodes", "1", code=2))
        self.install(text="#!/bin/sh\n[ $1 = check ] && printf 'training:\\n  epochs: 3\\n' && exit\n" + refusal + "\n")
        self.assertIn("the measuring run has failed: slackline: job.yaml:1: found x",
                      self.run_plan("--batch", "100", "--nodes", "1", code=1))


class Arguments(unittest.TestCase):
    def test_times(self):
        for text, seconds in {"90": 90, "90s": 90, "30m": 1800, "48h": 172800, "1.5d": 129600}.items():
            self.assertEqual(command.duration(text), seconds)
        for text in ("", "h", "-1h", "0s", "1w", "1 h"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "found .* allowed is a time"):
                command.duration(text)

    def test_lists(self):
        self.assertEqual(command.numbers("1,20,300"), [1, 20, 300])
        for text in ("", "0", "1,", "1,1", "-1", "1.5", "a"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "found .* allowed are whole numbers"):
                command.numbers(text)

    def test_bandwidths(self):
        self.assertEqual(command.bandwidth("0.5"), 0.5)
        for text in ("0", "-1", "x", "nan", "inf"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "found .* allowed is a number"):
                command.bandwidth(text)


class Energy(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-energy-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)

    def write(self, zone, micro):
        (self.root / zone).mkdir(exist_ok=True)
        (self.root / zone / "energy_uj").write_text(f"{micro}\n")
        (self.root / zone / "max_energy_range_uj").write_text("10000000\n")

    def test_packages_count_and_their_parts_do_not(self):
        for zone in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"):
            self.write(zone, 1000000)
        meter = energy.Meter(self.root)
        for zone in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"):
            self.write(zone, 3000000)
        self.assertEqual(meter.missing, "")
        self.assertEqual(meter.joules(), 4)

    def test_a_meter_that_begins_again(self):
        self.write("intel-rapl:0", 9000000)
        meter = energy.Meter(self.root)
        self.write("intel-rapl:0", 1000000)
        self.assertEqual(meter.joules(), 2)

    def test_where_there_is_none_it_is_said(self):
        meter = energy.Meter(self.root)
        self.assertIn("no meter", meter.missing)
        self.assertIsNone(meter.joules())
        (self.root / "intel-rapl:0").mkdir()
        self.assertIn("root only", energy.Meter(self.root).missing)


if __name__ == "__main__":
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    unittest.main(verbosity=2)
