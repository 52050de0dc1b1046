"""What an experiment leaves: tables that keep their schema, plots that show something, a page that stands alone."""
import html.parser
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

import support
from PIL import Image
from slackline_experiment import definition, differences, results, run_folder, schema, tables
from slackline_experiment.plots import curves, power

SVG = "{http://www.w3.org/2000/svg}"
WHOLE = """
about: How far may a worker run ahead? Say <so>.
set: {training.epochs: 3}
grid:
  cluster.workers: [1, 2, 4]
  stragglers:
    - {name: none}
    - {name: broken, set: {fake.fail: the disk is full}}
  consistency.staleness_max: [1, 3]
include:
  - {cluster.workers: 2, stragglers: none, consistency.staleness_max: 3, set: {optimizer.lr: 0.5}}
repeats: 2
target_accuracy: 0.88
"""
HEAD = "job: job.yaml\nrun: simulate\n"
KINDS = {"text": lambda text: True, "number": lambda text: float(text) is not None,
         "whole number": lambda text: int(text) is not None}


def parse(text):
    return definition.parse("job: {name: x}\nrun: simulate\n" + text, pathlib.Path("trial.yaml"))


class Maker(support.ExperimentTest):
    """Runs one experiment, for the tests that read what it left."""

    def runTest(self):
        self.write(WHOLE, HEAD)
        self.run_experiment("--keep-going", code=1)


class Output(support.ExperimentTest):
    made = None

    @classmethod
    def setUpClass(cls):
        cls.made = Maker()
        cls.made.setUp()
        cls.addClassCleanup(cls.made.doCleanups)
        cls.made.runTest()

    def setUp(self):
        self.root, self.out = self.made.root, self.made.out


class Tables(Output):
    def check_columns(self, name, columns):
        rows = support.read_csv(self.out / name)
        names = [column.name for column in columns]
        axes = ["cluster.workers", "stragglers", "consistency.staleness_max"]
        self.assertEqual(list(rows[0]), [names[0], *axes, *names[1:]])
        for row in rows:
            for column in columns:
                if row[column.name]:
                    self.assertTrue(KINDS[column.kind](row[column.name]), (column, row[column.name]))
        return rows

    def test_results_have_a_row_a_run_and_keep_the_schema(self):
        rows = self.check_columns("results.csv", schema.RESULTS)
        self.assertEqual(len(rows), (3 * 2 * 2 + 1) * 2)
        wanted = ("workers-2_stragglers-none_staleness_max-3", "2")
        row = next(row for row in rows if (row["cell"], row["repeat"]) == wanted)
        self.assertEqual((row["state"], row["seed"], row["workers"], row["staleness_mean"], row["pushes_discarded"]),
                         ("done", "2", "2", "1.5", "2"))
        self.assertAlmostEqual(float(row["wait_fraction"]), 0.5 / 8.5)
        self.assertEqual(int(row["pushed_bytes"]), 281_000 * int(row["workers"]))
        for column in schema.RESULTS:
            if column.name not in ("reason", "precision_macro", "recall_macro", "fold", "f1_weighted", "metric", "best_metric",
                                   "device_count", "speed_up", "efficiency", "edp_ratio"):
                self.assertTrue(row[column.name], column.name)

    def test_time_to_target_is_that_of_the_first_evaluation_there(self):
        row = next(row for row in self.results() if row["state"] == "done")
        reports = [one for one in support.read_csv(self.out / "reports.csv")
                   if (one["cell"], one["repeat"]) == (row["cell"], row["repeat"]) and one["test_accuracy"]]
        reached = next(one for one in reports if float(one["test_accuracy"]) >= 0.88)
        self.assertAlmostEqual(float(row["time_to_target_s"]), float(reached["time_s"]), 2)
        self.assertEqual(row["samples_to_target"], reached["samples"])

    def test_reports_have_a_row_a_report_and_keep_the_schema(self):
        rows = self.check_columns("reports.csv", schema.REPORTS)
        done = sum(row["state"] == "done" for row in self.results())
        self.assertEqual(len(rows), done * 7)

    def test_epochs_have_a_row_an_epoch_and_keep_the_schema(self):
        rows = self.check_columns("epochs.csv", schema.EPOCHS)
        done = sum(row["state"] == "done" for row in self.results())
        self.assertEqual(len(rows), done * 6)
        self.assertEqual((rows[0]["epoch"], rows[0]["validation_s"], rows[0]["joules"]), ("1", "0.5", "150"))

    def test_evaluations_stand_where_their_weights_were(self):
        rows = self.check_columns("evaluations.csv", schema.EVALUATIONS)
        done = sum(row["state"] == "done" for row in self.results())
        self.assertEqual(len(rows), done * 6)
        self.assertEqual([(row["samples"], row["samples_applied"], row["epochs"]) for row in rows[:2]],
                         [("6000", "5700", "0.95"), ("12000", "11400", "1.9")])

    def test_differences_are_of_equal_seeds(self):
        rows = support.read_csv(self.out / "differences.csv")
        self.assertEqual(list(rows[0]), [column.name for column in schema.DIFFERENCES])
        name = "workers-{}_stragglers-none_staleness_max-3"
        row = next(row for row in rows if (row["cell"], row["figure"]) == (name.format(4), "test_accuracy"))
        self.assertEqual((row["against"], row["n"]), (name.format(1), "2"))
        accuracy = {(one["cell"], one["repeat"]): float(one["test_accuracy"]) for one in self.results() if one["test_accuracy"]}
        pairs = [accuracy[name.format(4), repeat] - accuracy[name.format(1), repeat] for repeat in "12"]
        mean, half = sum(pairs) / 2, 12.706 * abs(pairs[0] - pairs[1]) / 2
        self.assertAlmostEqual(float(row["difference"]), mean)
        self.assertAlmostEqual(float(row["low"]), mean - half)
        self.assertAlmostEqual(float(row["high"]), mean + half)
        self.assertEqual(row["verdict"], "none seen" if abs(mean) <= half else "less")
        # Failed cells and included ones with settings of their own are compared with nobody.
        self.assertEqual({(row["cell"], row["against"]) for row in rows},
                         {(f"workers-{workers}_stragglers-none_staleness_max-{bound}",
                           f"workers-1_stragglers-none_staleness_max-{bound}") for workers in (2, 4) for bound in (1, 3)})
        self.assertIn("\n## Differences\n", (self.out / "results.md").read_text())

    def test_energy_is_in_the_results_with_its_parts(self):
        row = next(row for row in self.results() if row["state"] == "done" and row["workers"] == "2")
        self.assertEqual([float(row[f"joules{part}"]) for part in ("", "_training", "_validation", "_test")],
                         [2000, 1800, 120, 80])
        self.assertAlmostEqual(float(row["edp"]), 2000 * float(row["time_s"]))
        text = (self.out / "results.md").read_text()
        self.assertIn("energy (J) | energy above idle (J) | energy x time (J s)", text)
        self.assertIn("Energy: metered in 14 of 14 runs.", text)

    def test_devices_have_their_power(self):
        rows = self.check_columns("devices.csv", schema.DEVICES)
        self.assertEqual(len(rows), 2 * 14)
        row = next(row for row in rows if row["cluster.workers"] == "2" and row["device"] == "package-0")
        self.assertEqual([float(row[name]) for name in ("mean_watts", "min_watts", "max_watts", "idle_watts")], [100, 45, 120, 20])
        text = (self.out / "results.md").read_text()
        self.assertIn("| 2 | none | 1 | n1 package-0 | 100.0 | 45.0 | 120.0 | 20.0 | 1,000.0 |", text)
        self.assertIn('<section id="power">', (self.out / "index.html").read_text())
        run = next(row for row in self.results() if row["workers"] == "2" and row["state"] == "done")
        self.assertEqual([float(run[name]) for name in ("joules_above_idle", "idle_watts", "mean_watts", "evaluation_ms_per_sample")],
                         [1200, 40, 200, 0.5])
        self.assertAlmostEqual(float(run["validation_s"]), 3)

    def test_the_document_has_the_schema(self):
        document = (support.HERE.parent.parent / "docs" / "experiment-results.md").read_text()
        for columns in (schema.RESULTS, schema.REPORTS, schema.EPOCHS, schema.EVALUATIONS, schema.DEVICES, schema.DIFFERENCES):
            self.assertIn(schema.as_markdown(columns), document)

    def test_means_deviations_and_counts_are_in_the_summary(self):
        text = (self.out / "results.md").read_text()
        rates = [float(row["samples_per_second"]) for row in self.results()
                 if row["cell"] == "workers-1_stragglers-none_staleness_max-1"]
        mean, deviation = sum(rates) / 2, abs(rates[0] - rates[1]) / 2 ** 0.5
        self.assertRegex(text, rf"\n\| 1 \| none \| 1 \| .*\| {mean:,.0f} ± {deviation:,.0f} \|.*\| 2 of 2 \|\n")
        self.assertIn("| 2 | none | 3 (lr 0.5) |", text)
        self.assertIn("* `workers-4_stragglers-broken_staleness_max-3`, repeat 2: exit code 1: fake: the disk is full", text)


class Plots(Output):
    NAMES = {"accuracy-epochs", "accuracy-time", "staleness", "scaling-by-workers", "time-to-target-by-workers",
             "test-accuracy-by-workers", "wait-fraction-by-workers"}

    def test_are_those_that_follow_from_the_grid(self):
        for ending in ("png", "svg"):
            self.assertEqual({path.stem for path in (self.out / "plots").glob(f"*.{ending}")}, self.NAMES)

    def test_are_not_empty(self):
        for path in (self.out / "plots").glob("*.png"):
            with self.subTest(path.name), Image.open(path) as image:
                self.assertGreater(min(image.size), 400)
                # The legend is below; axes, text and bands have little colour.
                curves_alone = image.convert("RGB").crop((0, 0, image.width, int(0.6 * image.height)))
                found = [(count, colour) for count, colour in curves_alone.getcolors(1 << 24)
                         if max(colour) - min(colour) > 90]
                self.assertGreater(len(image.convert("RGB").getcolors(1 << 24)), 50)
                self.assertGreater(sum(count for count, _ in found), 1000)

    def test_are_svg_with_paths(self):
        for path in (self.out / "plots").glob("*.svg"):
            with self.subTest(path.name):
                root = ElementTree.parse(path).getroot()
                self.assertEqual(root.tag, SVG + "svg")
                self.assertGreater(len(root.findall(f".//{SVG}path")), 20)


class Links(html.parser.HTMLParser):
    """All that a page would load or go to, and how its tags close."""

    def __init__(self):
        super().__init__()
        self.found, self.open, self.ids = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "br", "img", "link"):
            self.open.append(tag)
        for name, value in attributes:
            if name in ("href", "src", "xlink:href", "action", "data"):
                self.found.append(value)
            if name == "id" and tag == "section":
                self.ids.append(value)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


class Page(Output):
    def setUp(self):
        super().setUp()
        self.text = (self.out / "index.html").read_text()

    def test_needs_nothing_else(self):
        links = Links()
        links.feed(self.text)
        self.assertEqual(links.open, [])
        self.assertTrue(links.found)
        self.assertEqual([link for link in links.found if not link.startswith("#")], [])
        self.assertNotRegex(self.text, r"<(script|link|img|iframe)\b|@import|url\((?!#)")

    def test_has_all_sections(self):
        links = Links()
        links.feed(self.text)
        self.assertEqual(links.ids, ["results", "differences", "power", "plots", "failed", "classes", "grid", "origin"])
        self.assertEqual(self.text.count("<svg"), len(Plots.NAMES))
        for words in ("How far may a worker run ahead? Say &lt;so&gt;.", "the disk is full", "slackline 9.9.9 (fake)",
                      "$ slackline experiment trial.yaml --keep-going", "training.epochs=3", ">shoe<",
                      "fake.fail=the disk is full"):
            self.assertIn(words, self.text)

    def test_parts_of_its_plots_have_ids_of_their_own(self):
        for pattern in (r'<clipPath id="([^"]+)"', r'<path id="(m[0-9a-f]+)"'):
            found = re.findall(pattern, self.text)
            self.assertTrue(found)
            self.assertEqual(len(set(found)), len(found))

    def test_is_made_anew_without_running(self):
        before = len(self.calls())
        (self.out / "index.html").unlink()
        done = subprocess.run([sys.executable, str(support.PYTHON / "slackline_experiment"), "--slackline",
                               str(self.root / "slackline"), "trial.yaml", "--report"], cwd=self.root,
                              timeout=support.DEADLINE_S)
        self.assertEqual(done.returncode, 0)
        self.assertTrue((self.out / "index.html").exists())
        self.assertEqual(len(self.calls()), before)


class Confusions(support.ExperimentTest):
    def test_are_drawn_a_panel_a_cell_where_they_are_asked_for(self):
        self.write("plots: [confusion]\ngrid: {cluster.workers: [1, 2]}\nrepeats: 2\n", HEAD)
        self.run_experiment()
        self.assertEqual({path.name for path in (self.out / "plots").iterdir()}, {"confusion.png", "confusion.svg"})
        text = (self.out / "index.html").read_text()
        self.assertIn("Confusion of classes", text)
        # Two repeats of 80 and 10; numbers are drawn as paths, and the matrix as an image.
        found = run_folder.read(next((self.out / "cells").glob("*/1")))
        self.assertEqual(found.confusion.names, ["shirt", "shoe", "bag"])
        self.assertEqual(found.confusion.counts[1], [10, 80, 10])
        self.assertEqual(text.count("<image"), 2)

    def test_a_matrix_that_is_none_is_a_failure_that_names_it(self):
        with self.assertRaisesRegex(run_folder.BadRunFolder, "confusion.csv: found 1 rows for 2 predictions"):
            (self.root / "confusion.csv").write_text("label,a,b\na,1,2\n")
            run_folder.read(self.root)


class ManyClasses(support.ExperimentTest):
    def test_the_best_and_the_worst_are_shown(self):
        self.write("set: {fake.classes: 2847}\n")
        self.run_experiment()
        text = (self.out / "index.html").read_text()
        self.assertIn("the worst F1 over all runs: 40 of 2847 classes.", text)
        shown = re.findall(r">work-(\d+)<", text)[:40]
        self.assertEqual([int(one) for one in shown], [*range(2846, 2826, -1), *range(19, -1, -1)])
        self.assertLess(len(text), 2_000_000)


class Scaling(support.ExperimentTest):
    GRID = ("grid:\n  devices:\n    - {name: 1 CPU, set: {cluster.workers: 1}}\n    - {name: 1 GPU, devices: 1, set: {cluster.workers: 2}}\n"
            "    - {name: 2 GPUs, devices: 2, set: {cluster.workers: 4}}\n")

    def test_figures_are_over_those_of_the_baseline(self):
        self.write(self.GRID + "baseline: {devices: 1 GPU}\nrepeats: 2\n"
                   "plots: [{kind: scaling, x: devices}, power, {kind: figure, y: edp_ratio, x: devices}]\n", HEAD)
        self.run_experiment()
        rows = {(row["devices"], row["repeat"]): row for row in self.results()}
        base = [rows["1 GPU", repeat] for repeat in "12"]
        rate, edp = (sum(float(row[name]) for row in base) / 2 for name in ("samples_per_second", "edp"))
        for (name, _), row in rows.items():
            self.assertAlmostEqual(float(row["speed_up"]), float(row["samples_per_second"]) / rate)
            self.assertAlmostEqual(float(row["edp_ratio"]), float(row["edp"]) / edp)
            self.assertEqual(row["device_count"], "2" if name == "2 GPUs" else "1")
            self.assertAlmostEqual(float(row["efficiency"]), float(row["speed_up"]) / int(row["device_count"]))
        text = (self.out / "results.md").read_text()
        self.assertIn("speed-up | efficiency |", text)
        self.assertIn("over the baseline's: measured by devices 1 GPU.", text)
        self.assertIn("| 1 CPU | 1 GPU | throughput", text)
        self.assertEqual({path.name for path in (self.out / "plots").glob("*.svg")},
                         {"scaling-by-devices.svg", "power.svg", "edp-ratio-by-devices.svg"})

    def test_a_baseline_that_nobody_ran_gives_no_figures(self):
        self.write(self.GRID.replace("{cluster.workers: 2}", "{fake.fail: no GPU}") + "baseline: {devices: 1 GPU}\n")
        self.run_experiment("--keep-going", code=1)
        for row in self.results():
            self.assertEqual([row[name] for name in ("speed_up", "efficiency", "edp_ratio")], ["", "", ""])

    def test_the_trace_of_a_long_run_is_thinned(self):
        samples = [(step / 2, 100.0 if step < 3000 else 200.0) for step in range(6000)]
        times, watts = power.thinned(samples)
        self.assertEqual(len(times), power.POINTS_MAX)
        self.assertAlmostEqual(sum(watts) / len(watts), 150)
        self.assertAlmostEqual(times[0], 2.25)

    def test_a_trace_that_is_none_is_a_failure_that_names_it(self):
        path = self.root / "power.csv"
        path.write_text("time_s,node,device,watts\n1,n1,gpu,many\n")
        with self.assertRaisesRegex(run_folder.BadRunFolder, r"power.csv:2: found 1,n1,gpu,many; allowed is"):
            run_folder.read_power(path)


class NotMetered(support.ExperimentTest):
    def test_energy_is_empty_and_never_0(self):
        self.write("set: {fake.unmetered: 1}\n", HEAD + "plots: [power]\n")
        self.run_experiment()
        self.assertIn("Not drawn: Power over time (no run that is done has power.csv)", (self.out / "index.html").read_text())
        row = self.results()[0]
        self.assertEqual({row[name] for name in ("joules", "joules_training", "edp", "joules_above_idle", "mean_watts")}, {""})
        self.assertEqual({row["joules"] for row in support.read_csv(self.out / "epochs.csv")}, {""})
        text = (self.out / "results.md").read_text()
        self.assertIn("Energy: not metered.", text)
        self.assertNotIn("energy (J)", text)


class Objects(support.ExperimentTest):
    def test_what_was_measured_is_named(self):
        self.write("set: {fake.objects: true}\ntarget_accuracy: 0.5\n", HEAD)
        said = self.run_experiment().stdout
        self.assertIn("test mAP ", said)
        for name in ("results.md", "index.html"):
            text = (self.out / name).read_text()
            self.assertIn("best test mAP", text)
            self.assertNotIn("accuracy", re.sub(r"accuracy-\w+|target_accuracy|test_accuracy", "", re.sub(r"<svg.*?</svg>", "", text, flags=re.S)))


class NothingDone(support.ExperimentTest):
    def test_gives_a_page_without_plots(self):
        self.write("set: {fake.fail: no luck}\n", HEAD)
        self.run_experiment(code=1)
        text = (self.out / "index.html").read_text()
        self.assertIn("Not drawn: Test accuracy over epochs", text)
        self.assertNotIn("<svg", text)
        self.assertEqual(self.results()[0]["test_accuracy"], "")


class Figures(unittest.TestCase):
    """Against values made by hand."""

    def run_with(self, *evaluations, histogram=()):
        return run_folder.RunData(evaluations=[run_folder.Evaluation(*one) for one in evaluations],
                                  histogram=list(histogram))

    def test_statistics_are_those_of_the_sample(self):
        self.assertEqual(results.statistic([2.0, 4.0, 6.0]), results.Statistic(4.0, 2.0, 3))
        self.assertEqual(results.statistic([5.0]), results.Statistic(5.0, None, 1))
        self.assertIsNone(results.statistic([]))

    def test_accuracy_over_epochs_counts_the_runs_that_have_it(self):
        x, mean, deviation = curves.over_epochs(
            [self.run_with((1, 5, 9, 0.5), (2, 9, 9, 0.7)), self.run_with((1, 4, 9, 0.7))])
        self.assertEqual(list(x), [1, 2])
        self.assertAlmostEqual(mean[0], 0.6)
        self.assertAlmostEqual(mean[1], 0.7)
        self.assertAlmostEqual(deviation[0], 0.2 / 2 ** 0.5)

    def test_accuracy_over_epochs_is_where_samples_were_applied(self):
        """Whole epochs of the job say nothing: both runs have the same curve, evaluated elsewhere."""
        def run(*places):
            return run_folder.RunData(evaluations=[run_folder.Evaluation(1, 0, 9, place / 4, 9, place) for place in places])

        x, mean, deviation = curves.over_epochs([run(0.5, 1, 2), run(0.25, 1.5, 2.5)])
        self.assertEqual((x[0], x[-1]), (0.5, 2))
        for place, value in zip(x, mean):
            self.assertAlmostEqual(value, place / 4)
        self.assertAlmostEqual(max(deviation), 0)
        x, _, _ = curves.over_epochs([run(1.0, 2.0, 3.0), run(1.01, 2.02, 3.0)])
        self.assertEqual([round(one, 3) for one in x], [1.005, 2.01, 3.0])

    def test_evaluations_are_in_the_order_of_their_weights(self):
        with tempfile.TemporaryDirectory() as folder:
            evaluations = [{"epoch": 0, "time_s": at, "samples": 60, "samples_applied": 50, "accuracy": accuracy}
                           for at, accuracy in ((2, 0.5), (1, 0.9), (3, 0.6))]
            (pathlib.Path(folder) / "summary.json").write_text(json.dumps({"epoch_samples": 100, "evaluations": evaluations}))
            data = run_folder.read(pathlib.Path(folder))
        self.assertEqual([one.time_s for one in data.evaluations], [1, 2, 3])
        self.assertEqual(run_folder.first_at(data, 0.5).time_s, 1)
        self.assertEqual(data.evaluations[0].epochs, 0.5)

    def test_a_test_on_other_images_is_no_point_of_a_curve(self):
        with tempfile.TemporaryDirectory() as folder:
            evaluations = [{"epoch": at, "time_s": at, "accuracy": at / 10, "seconds_per_sample": 0.001 * at, "apart": at == 3} for at in (1, 2, 3)]
            path = pathlib.Path(folder) / "summary.json"
            for kept, found in ((evaluations, [0.1, 0.2]), (evaluations[2:], [0.3])):
                path.write_text(json.dumps({"evaluations": kept}))
                data = run_folder.read(pathlib.Path(folder))
                self.assertEqual([one.accuracy for one in data.evaluations], found)
                self.assertAlmostEqual(data.figures["evaluation_ms_per_sample"], 3)
            path.write_text(json.dumps({"evaluations": [{**evaluations[0], "apart": 1}]}))
            with self.assertRaisesRegex(run_folder.BadRunFolder, "apart: found 1; allowed is true or false"):
                run_folder.read(pathlib.Path(folder))

    def test_evaluations_may_have_no_accuracy(self):
        with tempfile.TemporaryDirectory() as folder:
            evaluations = [{"epoch": at, "time_s": at, "samples": 60, "samples_applied": 50, "accuracy": None, "loss": 1}
                           for at in (1, 2)]
            (pathlib.Path(folder) / "summary.json").write_text(
                json.dumps({"epoch_samples": 100, "test_accuracy": None, "evaluations": evaluations}))
            data = run_folder.read(pathlib.Path(folder))
        self.assertEqual([one.accuracy for one in data.evaluations], [None, None])
        self.assertNotIn("test_accuracy", data.figures)
        self.assertIsNone(run_folder.first_at(data, 0))
        older = self.run_with((1, 5, 9, None))
        for curve in (curves.over_epochs, curves.over_time):
            self.assertIsNone(curve([data]))
            self.assertIsNone(curve([older]))
            x, mean, _ = curve([data, older, self.run_with((1, 1, 9, 0.5), (2, 2, 9, None))])
            self.assertEqual((list(x), list(mean)), ([1], [0.5]))

    def test_curves_are_of_the_jobs_own_metric(self):
        with tempfile.TemporaryDirectory() as folder:
            evaluations = [{"epoch": at, "time_s": at, "samples": 60, "accuracy": None, "loss": 1, "values": {"perplexity": 20 / at}}
                           for at in (1, 2)]
            summary = {"metric": {"name": "perplexity", "better": "lower", "last": 10, "best": 9}, "evaluations": evaluations}
            (pathlib.Path(folder) / "summary.json").write_text(json.dumps(summary))
            data = run_folder.read(pathlib.Path(folder))
            self.assertEqual((data.figures["metric"], data.figures["best_metric"]), (10, 9))
            self.assertEqual(list(curves.over_time([data])[1]), [20, 10])
            made = results.Results(parse(""), (results.Result(parse("").cells[0], 1, 1, None, "done", data=data, figures=data.figures),))
            self.assertEqual([name for name in tables.summary_header(made) if "perplexity" in name], ["perplexity", "perplexity, best"])
            summary["metric"]["name"] = "loss"
            (pathlib.Path(folder) / "summary.json").write_text(json.dumps(summary))
            self.assertEqual(list(curves.over_time([run_folder.read(pathlib.Path(folder))])[1]), [1, 1])
            summary["metric"]["name"] = "accuracy"
            (pathlib.Path(folder) / "summary.json").write_text(json.dumps(summary))
            data = run_folder.read(pathlib.Path(folder))
            self.assertIsNone(data.own_metric)
            self.assertIsNone(curves.over_time([data]))

    def test_interval_is_students(self):
        self.assertEqual(differences.t_95(4), 2.776)
        self.assertAlmostEqual(differences.t_95(31), 2.0395, 3)
        self.assertAlmostEqual(differences.t_95(1000), 1.9623, 4)
        cells = parse("grid: {a.x: [1, 2]}\n").cells
        made = [results.Result(cell, repeat, repeat, None, "done", figures={"time_s": value})
                for cell, values in zip(cells, ((3.0, 5.0, 8.0), (1.0, 2.0, 3.0))) for repeat, value in enumerate(values)]
        one = differences.difference(results.Results(parse(""), tuple(made)), *cells, "time_s")
        # 2, 3 and 5: a mean of 10/3, a deviation of 1.5275.
        self.assertAlmostEqual(one.mean, 10 / 3)
        self.assertAlmostEqual(one.half_width, 4.303 * 1.527525 / 3 ** 0.5, 5)
        self.assertEqual((one.n, one.verdict), (3, "none seen"))
        self.assertIsNone(differences.difference(results.Results(parse(""), tuple(made)), *cells, "test_accuracy"))

    def test_the_jobs_own_metric_is_compared(self):
        experiment = parse("grid: {a.x: [1, 2]}\ncompare: [{of: {a.x: 2}, with: {a.x: 1}}]\n")
        made = [results.Result(cell, repeat, repeat, None, "done", figures={"metric": loss + repeat ** 2 * loss})
                for cell, loss in zip(experiment.cells, (1.0, 1.5)) for repeat in range(3)]
        (one,) = differences.differences(results.Results(experiment, tuple(made)))
        self.assertEqual((one.figure, one.verdict), ("metric", "none seen"))
        self.assertAlmostEqual(one.mean, 0.5 * (1 + 2 + 5) / 3)

    def test_what_no_seed_changes_has_no_interval(self):
        cells = parse("grid: {a.x: [1, 2]}\n").cells
        made = [results.Result(cell, repeat, repeat, None, "done", figures={"time_s": time_s + repeat})
                for cell, time_s in zip(cells, (0.1, 0.3)) for repeat in range(3)]
        one = differences.difference(results.Results(parse(""), tuple(made)), *cells, "time_s")
        self.assertAlmostEqual(one.mean, -0.2)
        self.assertEqual((one.half_width, one.n, one.verdict), (None, 3, "no spread"))

    def test_accuracy_over_time_covers_what_all_runs_cover(self):
        x, mean, _ = curves.over_time([self.run_with((1, 0, 9, 0.0), (2, 10, 9, 1.0)),
                                      self.run_with((1, 2, 9, 0.2), (2, 6, 9, 0.6))])
        self.assertEqual((x[0], x[-1]), (2, 6))
        self.assertAlmostEqual(mean[0], 0.2)
        self.assertAlmostEqual(mean[-1], 0.6)

    def test_staleness_is_in_shares_of_each_run(self):
        x, mean, _ = curves.over_staleness(
            [self.run_with(histogram=[(0, 1), (2, 3)]), self.run_with(histogram=[(0, 100)])])
        self.assertEqual(list(x), [0, 1, 2])
        self.assertEqual([round(value, 6) for value in mean], [0.625, 0, 0.375])

    def test_a_run_folder_without_optional_files_is_read(self):
        data = run_folder.read(support.HERE / "nowhere")
        self.assertEqual((data.figures, data.evaluations, data.reports, data.state), ({}, [], [], ""))


def load_tests(loader, tests, pattern):
    """All but Maker, which is no test."""
    del tests, pattern
    return unittest.TestSuite(loader.loadTestsFromTestCase(one) for one in (Tables, Plots, Page, Confusions, NotMetered, Objects,
                                                                                 NothingDone, Figures))


if __name__ == "__main__":
    unittest.main()
