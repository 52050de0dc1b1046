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

from slackline_plan import command, kinds, windows  # noqa: E402
from slackline_plan.windows import Look  # noqa: E402

# Trains one image in 1 ms and exchanges 2 MB in 4 ms; plays as if computing were all, spread over the nodes. Each time that it is
# asked for its metrics, the steps since took as LOOKS says.
FAKE = """#!/usr/bin/env python3
import http.server, json, os, pathlib, signal, socketserver, sys, threading
settings = {}
for at, word in enumerate(sys.argv):
    if word == "--set":
        key, value = sys.argv[at + 1].split("=", 1)
        settings[key] = value
with open(os.path.dirname(os.path.abspath(__file__)) + "/calls", "a") as calls:
    calls.write(json.dumps(["check" if "--check" in sys.argv else sys.argv[1], settings]) + "\\n")
if "--check" in sys.argv:
    sys.exit("there is no program slackline-simulator" if settings.get("name") == "no-simulator" else 0)
if sys.argv[1] == "check":
    print("training:\\n  epochs: 30\\nlocal:\\n  epochs: 0")
    sys.exit()
run = pathlib.Path(sys.argv[sys.argv.index("--run-folder") + 1])
run.mkdir(parents=True)
batch = int(settings["training.batch_size"])
step = min(batch, IMAGES)
if sys.argv[1] == "train":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    looks = iter(LOOKS)
    sums = [0, 0.0]
    class Metrics(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            factor = next(looks, None)
            if factor is not None:
                sums[0] += 10
                sums[1] += 10 * factor
            self.send_response(200)
            self.end_headers()
            for name, one in (("compute", batch * 1e-3), ("wait", 4e-3)):
                text = f'slackline_worker_{name}_seconds_count{{job="x"}} {sums[0]}\\nslackline_worker_{name}_seconds_sum{{job="x"}} {sums[1] * one}\\n'
                self.wfile.write(text.encode())
        def log_message(self, *arguments):
            pass
    server = socketserver.TCPServer(("127.0.0.1", 0), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (run / "prometheus").mkdir()
    (run / "prometheus/targets.json").write_text(json.dumps(
        [{"targets": ["127.0.0.1:1"], "labels": {"role": "scheduler"}},
         {"targets": [f"127.0.0.1:{server.server_address[1]}"], "labels": {"role": "worker"}}]))
    (run / "metrics.csv").write_text("time_s,step,samples\\n1,STEPS,64\\n")
    signal.sigwait({signal.SIGTERM})
    steps = STEPS
    energy = {"training": 500.0, "joules": 900.0} if settings.get("power.meter") == "true" else None
    (run / "summary.json").write_text(json.dumps({"train_s": TRAINED_S, "energy": energy, "worker_list": [
        {"steps": steps, "samples": steps * step, "compute_seconds": steps * step * 1e-3, "wait_seconds": steps * 4e-3,
         "pushed_bytes": steps * 1e6, "pulled_bytes": steps * 1e6}]}))
    sys.exit(1)
samples = min(int(settings.get("data.train_images_max", 60000)), 60000) * int(settings["training.epochs"])
per_sample = float(settings["simulation.compute_us_per_sample"]) * 1e-6
nodes = int(settings["cluster.workers"])
if settings["simulation.classes"] != "[]":
    # [{workers: 1, slowdown: 1}, {workers: 2, slowdown: 4}]
    words = settings["simulation.classes"].replace("}", "").replace(",", " ").replace("]", "").split()
    nodes = sum(int(words[i + 1]) / float(words[i + 3]) for i in range(0, len(words), 4))
(run / "summary.json").write_text(json.dumps(
    {"samples": samples, "steps": samples / batch, "time_s": samples * per_sample / nodes}))
"""


class Plan(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-plan-test-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.install()

    def install(self, steps=100, text=FAKE, looks=(), images=60000, trained_s=2.5):
        self.program = self.root / "slackline"
        self.program.write_text(text.replace("STEPS", str(steps)).replace("LOOKS", repr(list(looks))).replace("IMAGES", str(images)).replace("TRAINED_S", str(trained_s)))
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

    def test_a_step_has_no_more_samples_than_the_data(self):
        self.install(images=50)
        self.run_plan("--batch", "200", "--nodes", "4")
        self.assertAlmostEqual(float(self.calls("simulate")[0]["simulation.compute_us_per_sample"]), 1000)

    def test_what_is_between_steps_counts(self):
        # 100 steps of 50 images take 5.4 s: the worker waits for 10 s more.
        self.install(images=50, trained_s=15.4)
        self.run_plan("--batch", "200", "--nodes", "4")
        self.assertAlmostEqual(float(self.calls("simulate")[0]["simulation.compute_us_per_sample"]), 3000)

    def test_what_older_programs_have_measured_is_of_the_batch(self):
        found = self.measured_file("old", 1)
        path = pathlib.Path(found.split("=")[1])
        text = json.loads(path.read_text())
        del text["measured"][0]["step_samples"]
        path.write_text(json.dumps(text))
        self.run_plan("--batch", "100", "--kind", found, "--nodes", "1")
        self.assertAlmostEqual(float(self.calls("simulate")[0]["simulation.compute_us_per_sample"]), 1000)

    def test_images_and_epochs_are_axes(self):
        found = json.loads(self.run_plan("--json", "--batch", "100", "--nodes", "1", "--images", "6000,60000,600000", "--epochs", "10,30"))
        self.assertEqual(len(self.calls("train")), 1)
        self.assertEqual([(cell["images"], cell["epochs"]) for cell in found["plan"]],
                         [(images, epochs) for images in (6000, 60000, 600000) for epochs in (10, 30)])
        # 1 ms an image. The job has 60,000 of them: with more, epochs take longer in proportion.
        for cell in found["plan"]:
            self.assertAlmostEqual(cell["hours"], cell["images"] * cell["epochs"] * 1e-3 / 3600)
            self.assertAlmostEqual(cell["samples_per_second"], 1000)
        text = self.run_plan("--batch", "100", "--nodes", "1", "--images", "6000,600000", "--epochs", "30")
        self.assertRegex(text, r"batch +images +epochs +nodes +compute")
        self.assertRegex(text, r"100 +600000 +30 +1 +100.0 ms")

    def test_each_number_of_gpus_is_measured(self):
        found = json.loads(self.run_plan("--json", "--batch", "100,200", "--gpus", "1,4", "--nodes", "2"))
        self.assertEqual([(call["training.batch_size"], call["worker.devices"]) for call in self.calls("train")],
                         [("100", "[cuda:0]"), ("100", "[cuda:0, cuda:1, cuda:2, cuda:3]"), ("200", "[cuda:0]"),
                          ("200", "[cuda:0, cuda:1, cuda:2, cuda:3]")])
        self.assertEqual([(cell["batch"], cell["gpus"]) for cell in found["plan"]], [(100, 1), (100, 4), (200, 1), (200, 4)])
        path = self.root / "node.json"
        path.write_text(self.run_plan("--measure-only", "--batch", "100", "--gpus", "1,4"))
        self.assertRegex(self.run_plan("--batch", "100", "--gpus", "4", "--kind", f"a={path}", "--nodes", "2"), r"100 +4 +2 +100.0 ms")
        self.assertIn("--kind a: found no batch 100 with 2 GPUs; allowed are batch 100 with 1 GPU, batch 100 with 4 GPUs",
                      self.run_plan("--batch", "100", "--gpus", "2", "--kind", f"a={path}", "--nodes", "2", code=2))

    def test_a_plan_says_where_steps_are_smaller_than_the_batch(self):
        self.assertNotIn("smaller than the batch", self.run_plan("--batch", "100", "--nodes", "1"))
        self.install(text=FAKE.replace('"steps": samples / batch', '"steps": samples / 40'))
        self.assertIn("* steps are smaller than the batch: with batch 100 on 4 nodes, they have 40 images in the mean, because an "
                      "epoch has only 60000", self.run_plan("--batch", "100", "--nodes", "4"))

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

    def test_nothing_is_measured_without_a_simulator(self):
        said = self.run_plan("--batch", "100", "--nodes", "1", "--set", "name=no-simulator", code=1)
        self.assertIn("there is no program slackline-simulator", said)
        self.assertEqual(self.calls("train"), [])

    def test_energy_is_the_power_of_training_times_nodes_and_time(self):
        arguments = ["--batch", "100", "--nodes", "1,4", "--set", "power.meter=true"]
        found = json.loads(self.run_plan("--json", *arguments))
        # 500 J in 2.5 s, for half an hour on one node, and an eighth of an hour on four.
        self.assertAlmostEqual(found["measured"][0]["watts"], 200)
        for cell in found["plan"]:
            self.assertAlmostEqual(cell["kwh"], 0.1)
        text = self.run_plan("--batch", "200", *arguments[2:])
        self.assertRegex(text, r"200 +4 .* 0.1 kWh\n")
        self.assertIn("* energy: mean power of this node's metered devices", text)

    def test_where_nothing_is_metered_there_is_no_energy(self):
        found = json.loads(self.run_plan("--json", "--batch", "100", "--nodes", "1"))
        self.assertIsNone(found["plan"][0]["kwh"])
        text = self.run_plan("--batch", "200", "--nodes", "1")
        self.assertRegex(text, r"200 +1 .* -\n")
        self.assertIn("* no energy: nothing is metered here", text)

    def test_without_windows_there_is_no_interval(self):
        cell = json.loads(self.run_plan("--json", "--batch", "100", "--nodes", "1"))["plan"][0]
        self.assertIsNone(cell["hours_low"])
        self.assertIsNone(cell["hours_high"])
        self.assertIn("* no low and high: fewer than 3 of 6 windows had steps", self.run_plan("--batch", "100", "--nodes", "1"))

    def test_the_fastest_and_the_slowest_window_are_the_interval(self):
        # The first look begins the first window. Of the others, two are 25 % slower and one is 20 % faster: 1.05 in the mean.
        self.install(looks=(1, 1, 1.25, 0.8, 1, 1.25, 1))
        found = json.loads(self.run_plan("--json", "--batch", "100", "--nodes", "1"))
        spread = found["measured"][0]["spread"]
        self.assertAlmostEqual(spread["fast"], 0.8 / 1.05)
        self.assertAlmostEqual(spread["slow"], 1.25 / 1.05)
        cell = found["plan"][0]
        self.assertAlmostEqual(cell["hours_low"], 0.5 * 0.8 / 1.05)
        self.assertAlmostEqual(cell["hours_high"], 0.5 * 1.25 / 1.05)
        text = self.run_plan("--batch", "100", "--nodes", "1", "--limit", "33m")
        self.assertRegex(text, r"30.0 min \(22.9 - 35.7 min\) +33.0 +maybe")
        self.assertIn("* time: and with the fastest and the slowest of the 6 windows", text)
        for limit, fits in (("36m", "yes"), ("22m", "no")):
            self.assertRegex(self.run_plan("--batch", "100", "--nodes", "1", "--limit", limit), rf" {fits} +-\n")

    def test_the_encodings_of_the_job_are_measured_and_played(self):
        self.run_plan("--batch", "100", "--nodes", "2", "--set", "wire.encoding=int8")
        self.assertEqual([self.calls(kind)[0]["wire.encoding"] for kind in ("train", "simulate")], ["int8", "int8"])

    def measured_file(self, name, factor):
        """As it would be on a machine that computes so many times slower."""
        found = json.loads(self.run_plan("--measure-only", "--batch", "100"))
        self.assertEqual(sorted(found), ["job", "measured"])
        for one in found["measured"]:
            one["compute_s"] *= factor
        path = self.root / f"{name}.json"
        path.write_text(json.dumps(found))
        return f"{name}={path}"

    def test_kinds_that_were_measured_elsewhere_are_played_together(self):
        fast, slow = self.measured_file("fast", 1), self.measured_file("slow", 4)
        self.assertEqual(len(self.calls("train")), 2)
        found = json.loads(self.run_plan("--json", "--batch", "100", "--kind", fast, "--kind", slow, "--nodes", "1+0,0+1,1+4"))
        self.assertEqual(len(self.calls("train")), 2, "nothing is measured again")
        self.assertEqual([(cell["nodes"], cell["nodes_by_kind"]) for cell in found["plan"]], [(1, [1, 0]), (1, [0, 1]), (5, [1, 4])])
        self.assertEqual([round(cell["samples_per_second"]) for cell in found["plan"]], [1000, 250, 2000])
        self.assertEqual([kind["name"] for kind in found["kinds"]], ["fast", "slow"])
        text = self.run_plan("--batch", "100", "--kind", fast, "--kind", slow, "--nodes", "1+4")
        self.assertRegex(text, r"100 +1\+4 +100.0/400.0 ms +4.00/4.00 ms +2,000")
        self.assertIn("* nodes: fast + slow;", text)

    def test_mistakes_of_kinds_are_named(self):
        fast, slow = self.measured_file("fast", 1), self.measured_file("slow", 4)
        both = ("--batch", "100", "--kind", fast, "--kind", slow)
        self.assertIn("--nodes: found 3; allowed is a number of nodes of each kind, such as 1+1: fast + slow",
                      self.run_plan(*both, "--nodes", "3", code=2))
        self.assertIn("--nodes: found 1+2; allowed is a number of nodes", self.run_plan("--batch", "100", "--nodes", "1+2", code=2))
        self.assertIn("--kind fast: found no batch 7; allowed are batch 100",
                      self.run_plan("--batch", "7", "--kind", fast, "--nodes", "1", code=2))
        self.assertIn("--kind: found 'x'; allowed is NAME=FILE", self.run_plan("--batch", "7", "--kind", "x", "--nodes", "1", code=2))
        self.assertIn("--kind x: cannot read /nowhere: ",
                      self.run_plan("--batch", "7", "--kind", "x=/nowhere", "--nodes", "1", code=2))
        (self.root / "wrong").write_text("{}")
        self.assertIn("found what `slackline plan --measure-only` does not write",
                      self.run_plan("--batch", "7", "--kind", f"x={self.root}/wrong", "--nodes", "1", code=1))

    def test_in_an_allocation_one_node_of_each_kind_is_measured(self):
        (self.root / "bin").mkdir()
        tools = {"scontrol": "printf 'NodeName=a1 CPUTot=64 Gres=gpu:4 ActiveFeatures=h200\\nNodeName=c1 CPUTot=64 Gres=(null) "
                             "ActiveFeatures=(null)\\nNodeName=c2 CPUTot=64 Gres=(null) ActiveFeatures=(null)\\n'",
                 "srun": f'echo "$1" >>{self.root}/nodes; while [ "${{1#/}}" = "$1" ]; do shift; done; exec "$@"'}
        for name, text in tools.items():
            (self.root / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.root / "bin" / name).chmod(0o755)
        # What `slackline plan` starts there is the fake, which then has to plan.
        plan = f"import sys; sys.path.insert(0, {str(pathlib.Path(command.__file__).parents[1])!r}); " \
               "from slackline_plan import command; sys.exit(command.main([*sys.argv[2:], '--slackline', sys.argv[0]]))"
        self.install(text=FAKE.replace("settings = {}", f"if sys.argv[1] == 'plan':\n    {plan}\nsettings = {{}}", 1))
        kept = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(kept)))
        os.environ.update(SLURM_JOB_ID="7", SLURM_JOB_NODELIST="a1,c[1-2]", PATH=f"{self.root}/bin:{kept['PATH']}")
        os.environ.pop("SLURM_STEP_ID", None)
        found = json.loads(self.run_plan("--json", "--batch", "100", "--nodes", "1+2"))
        self.assertEqual([(kind["name"], kind["nodes"]) for kind in found["kinds"]],
                         [("64 CPUs, gpu:4, h200", ["a1"]), ("64 CPUs", ["c1", "c2"])])
        self.assertEqual((self.root / "nodes").read_text().split(), ["--nodelist=a1", "--nodelist=c1"])
        self.assertEqual(found["plan"][0]["nodes_by_kind"], [1, 2])
        self.run_plan("--batch", "100", "--nodes", "1", "--here")
        self.assertEqual(len((self.root / "nodes").read_text().split()), 2, "--here asks nobody")

    def test_too_few_steps_are_no_measurement(self):
        self.install(steps=2)
        self.assertIn("batch 100: found 2 steps in 2 s; allowed are at least 5",
                      self.run_plan("--batch", "100", "--nodes", "1", code=1))

    def test_a_job_that_cannot_be_trained_says_why(self):
        refusal = "echo 'slackline: job.yaml:1: found x' >&2; exit 2"
        self.install(text=f"#!/bin/sh\n{refusal}\n")
        self.assertIn("slackline plan: slackline: job.yaml:1: found x",
                      self.run_plan("--batch", "100", "--nodes", "1", code=2))
        self.install(text="#!/bin/sh\ncase \" $* \" in *' check '*|*--check' '*) printf 'training:\\n  epochs: 3\\n'; exit;; esac\n" + refusal + "\n")
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

    def test_shapes(self):
        self.assertEqual(command.shapes("1,2+0,3+4"), ["1", "2+0", "3+4"])
        for text in ("", "0", "0+0", "1,", "1,1", "-1", "1+", "+1", "a"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "found .* allowed are whole numbers"):
                command.shapes(text)

    def test_tasks_of_a_step_measure_where_they_are(self):
        self.assertTrue(kinds.in_allocation({"SLURM_JOB_ID": "1"}))
        self.assertTrue(kinds.in_allocation({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "4294967290"}))
        self.assertFalse(kinds.in_allocation({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"}))
        self.assertFalse(kinds.in_allocation({}))

    def test_bandwidths(self):
        self.assertEqual(command.bandwidth("0.5"), 0.5)
        for text in ("0", "-1", "x", "nan", "inf"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "found .* allowed is a number"):
                command.bandwidth(text)


class Windows(unittest.TestCase):
    def test_the_spread_is_that_of_windows_with_steps(self):
        looks = [Look(5, 1.0), Look(15, 2.0), Look(15, 2.5), Look(25, 4.0), Look(35, 5.0)]
        found = windows.spread(looks)
        # 0.1 s, 0.2 s and 0.1 s a step, where one window had none; 4 s and 30 steps in all.
        self.assertAlmostEqual(found.fast, 0.75)
        self.assertAlmostEqual(found.slow, 1.5)
        for few in ([], looks[:1], looks[:4], [Look(0, 0.0)] * 7):
            self.assertIsNone(windows.spread(few))

    def test_what_is_no_exposition_of_a_worker_is_none(self):
        self.assertIsNone(windows.read("slackline_ps_streams 2\n"))
        text = "".join(f"slackline_worker_{name}_seconds_{part}{{a=\"b\"}} {value}\n" for name, part, value in
                       (("compute", "sum", "1.5"), ("compute", "count", "3"), ("wait", "sum", "0.5"), ("wait", "count", "3")))
        self.assertEqual(windows.read(text), Look(steps=3, seconds=2.0))
        self.assertIsNone(windows.look(""))
        self.assertIsNone(windows.look("127.0.0.1:1"))


if __name__ == "__main__":
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    unittest.main(verbosity=2)
