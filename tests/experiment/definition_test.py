"""The experiment file: what the grid expands to, and what is said of mistakes."""
import pathlib
import re
import tempfile
import unittest

import support  # noqa: F401, puts the package on the path
from slackline_experiment import definition
from slackline_experiment.document import Wrong, as_flow, load
from slackline_experiment.progress import duration_text, time_left_s
from slackline_experiment.resolve import ResolvedCell, on_fold
from slackline_experiment.store import Run

HEAD = "job: {model: {kind: mlp}}\nrun: simulate\n"


def parse(text):
    return definition.parse(text, pathlib.Path("trial.yaml"))


class Grid(unittest.TestCase):
    def test_is_the_product_of_its_axes_with_the_fixed_settings(self):
        experiment = parse(HEAD + "set: {training.epochs: 3}\ngrid:\n  optimizer.lr: [0.1, 1e-3]\n  who:\n"
                           "    - {name: all}\n    - {name: one 12x, set: {worker.slowdown: {1: 12}}}\n")
        self.assertEqual([dict(cell.sets) for cell in experiment.cells], [
            {"training.epochs": 3, "optimizer.lr": 0.1},
            {"training.epochs": 3, "optimizer.lr": 0.1, "worker.slowdown": {1: 12}},
            {"training.epochs": 3, "optimizer.lr": 0.001},
            {"training.epochs": 3, "optimizer.lr": 0.001, "worker.slowdown": {1: 12}}])
        self.assertEqual([cell.id for cell in experiment.cells],
                         ["lr-0.1_who-all", "lr-0.1_who-one-12x", "lr-0.001_who-all", "lr-0.001_who-one-12x"])

    def test_may_say_how_a_cell_is_run(self):
        experiment = parse(HEAD + "grid:\n  who:\n    - {name: real, set: {run: train}}\n    - {name: other}\n")
        self.assertEqual([(cell.run, dict(cell.sets)) for cell in experiment.cells], [("train", {}), ("simulate", {})])
        with self.assertRaisesRegex(Wrong, "trial.yaml:3: grid.run: found run fly; allowed is simulate or train or plain"):
            parse(HEAD + "grid: {run: [fly]}\n")

    def test_without_one_is_a_single_cell(self):
        self.assertEqual([cell.id for cell in parse(HEAD).cells], ["job"])

    def test_excluded_combinations_are_left_out(self):
        experiment = parse(HEAD + "grid: {a.x: [1, 2], a.y: [p, q], a.z: [5, 6]}\n"
                           "exclude:\n  - {a.x: 1, a.y: p}\n  - {a.x: 2, a.y: q, a.z: 6}\n")
        self.assertEqual([cell.id for cell in experiment.cells],
                         ["x-1_y-q_z-5", "x-1_y-q_z-6", "x-2_y-p_z-5", "x-2_y-p_z-6", "x-2_y-q_z-5"])

    def test_included_combinations_come_last_and_may_set_more(self):
        experiment = parse(HEAD + "grid: {a.x: [1, 2], a.y: [p]}\ninclude:\n  - {a.x: 7, a.y: p}\n"
                           "  - {a.y: p, set: {a.w: 3}}\n")
        self.assertEqual([dict(cell.sets) for cell in experiment.cells[2:]],
                         [{"a.x": 7, "a.y": "p"}, {"a.y": "p", "a.w": 3}])
        self.assertEqual([point.name for point in experiment.axes[0].points], ["1", "2", "7"])

    def test_folds_are_repeats_on_other_images(self):
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root).resolve()
            for name in ("a", "b"):
                (folder / name).mkdir()
                (folder / name / "index.json").touch()

            def read(text):
                return definition.parse(HEAD + text, folder / "trial.yaml")

            self.assertEqual(read("folds: [a, b]\n").repeats, 2)
            experiment = read("folds: [a, b]\nrepeats: 4\n")
            self.assertEqual(experiment.folds, (folder / "a", folder / "b"))
            cell = ResolvedCell(experiment.cells[0], 7, (), "f", experiment.folds)
            self.assertEqual([(Run(cell, repeat).fold, Run(cell, repeat).seed) for repeat in range(1, 5)],
                             [(1, 7), (2, 7), (1, 8), (2, 8)])
            self.assertEqual(on_fold(experiment.folds, 4), ["--set", f"data.path={folder / 'b'}"])
            for text, message in (
                    ("folds: [a, c]\n", "folds: found 'c'; allowed are folders that `slackline prepare` has written"),
                    ("folds: [a, ./a]\n", "folds: found './a' twice"),
                    ("folds: [a]\n", "folds: found one folder; allowed are at least two"),
                    ("folds: [a, b]\nrepeats: 3\n", "repeats: found '3'; allowed is a multiple of the 2 folds, up to 1000"),
                    ("folds: [a, b]\nset: {data.path: a}\n", "folds: found data.path set too; allowed is one of the two")):
                with self.assertRaisesRegex(Wrong, re.escape(message)):
                    read(text)

    def test_cells_are_compared_with_the_first_point_or_as_the_file_says(self):
        text = HEAD + "grid: {a.x: [1, 2, 3], b.y: [p, q]}\nexclude: [{a.x: 1, b.y: q}]\n"

        def pairs(more):
            return [(cell.id, other.id) for cell, other in parse(text + more).comparisons]

        self.assertEqual(pairs(""), [("x-2_y-p", "x-1_y-p"), ("x-3_y-p", "x-1_y-p")])
        self.assertEqual(pairs("compare: [{of: {a.x: 3}, with: {a.x: 2}}, {with: {b.y: p}}, {of: {a.x: 3}, with: {b.y: p}}]\n"),
                         [("x-3_y-p", "x-2_y-p"), ("x-3_y-q", "x-2_y-q"), ("x-2_y-q", "x-2_y-p"), ("x-3_y-q", "x-3_y-p")])

    def test_ids_do_not_depend_on_the_rest_of_the_grid(self):
        one, other = parse(HEAD + "grid: {a.x: [2]}\n"), parse(HEAD + "grid: {a.x: [1, 2, 3]}\n")
        self.assertEqual(one.cells[0].id, other.cells[1].id)

    def test_ids_that_would_be_one_folder_differ(self):
        ids = [cell.id.lower() for cell in parse(HEAD + "grid: {a.x: ['p q', p-q, P-Q]}\n").cells]
        self.assertEqual(len(set(ids)), 3, ids)

    def test_plots_follow_from_it(self):
        def kinds(text):
            return [(spec.kind, spec.x) for spec in parse(HEAD + text).plots]
        self.assertEqual(kinds(""), [("accuracy-epochs", None), ("accuracy-time", None), ("staleness", None)])
        self.assertIn(("scaling", "cluster.workers"), kinds("grid: {cluster.workers: [1, 2]}\n"))
        self.assertIn(("time-to-target", "a.x"), kinds("target_accuracy: 0.9\ngrid: {a.x: [1, 2]}\n"))


class Values(unittest.TestCase):
    def test_are_read_as_the_job_file_reads_them(self):
        found = load("[1e-3, 0.5, 3, on, true, null, '7']", "f")
        self.assertEqual(found, [0.001, 0.5, 3, "on", True, None, "7"])

    def test_are_given_as_one_line_of_yaml(self):
        for value in ([64, 32], {1: 12}, True, 0.001, 3, "ssp", ["a: b", "7"]):
            self.assertEqual(load(as_flow(value), "f"), value)
        self.assertEqual(as_flow("a: b"), "a: b", "of text, all is text")


class MistakesOfTheFile(unittest.TestCase):
    # The file's lines after HEAD, which has two; and what is said.
    TABLE = (
        ("repeat: 3\n", "trial.yaml:3: found the unknown key 'repeat'; allowed are name, about, job, run, set, grid"),
        ("repeats: 0\n", "trial.yaml:3: repeats: found '0'; allowed is a whole number from 1 to 1000"),
        ("repeats: 1.5\n", "trial.yaml:3: repeats: found '1.5'; allowed is a whole number"),
        ("target_accuracy: 85\n", "trial.yaml:3: target_accuracy: found '85'; allowed is a number from 0 to 1"),
        ("name: a/b\n", "trial.yaml:3: name: found 'a/b'; allowed is a name of letters"),
        ("name: a\nname: b\n", "trial.yaml:4: the experiment: found the key 'name' twice"),
        ("about: [x]\n", "trial.yaml:3: about: found a list; allowed is text"),
        ("grid:\n  a.x: 4\n", "trial.yaml:4: grid.a.x: found '4'; allowed is a list with at least one item"),
        ("grid:\n  a.x: []\n", "trial.yaml:4: grid.a.x: found an empty list"),
        ("grid:\n  a.x: [1, 1]\n", "trial.yaml:4: grid.a.x: found the point '1' twice"),
        ("grid:\n  a:\n    - {name: p}\n    - {name: q, sets: {}}\n",
         "trial.yaml:6: grid.a: found the unknown key 'sets'"),
        ("grid:\n  a: [{name: p}, 4]\n", "trial.yaml:4: grid.a: found values and named points"),
        ("grid:\n  seed: [1, 2]\n", "found the setting seed; repeats choose the seeds"),
        ("grid:\n  loss: [{name: p}]\n", "trial.yaml:4: grid: found the axis 'loss', which is a column"),
        ("grid:\n  a.x: [1]\n  b: [{name: p, set: {a.x: 3}}]\n", "found a.x set by two axes, a.x and b"),
        ("set: {a.x: 1}\ngrid: {a.x: [1]}\n", "trial.yaml:3: set: found a.x, which the axis a.x sets too"),
        ("grid: {a.x: [1, 2]}\nexclude:\n  - {a.x: 3}\n", "trial.yaml:5: exclude.a.x: found '3'; allowed are 1, 2"),
        ("grid: {a.x: [1, 2]}\nexclude:\n  - {a.z: 1}\n",
         "trial.yaml:5: exclude: found 'a.z'; allowed are the axes a.x"),
        ("grid: {a.x: [1]}\nexclude: [{a.x: 1}]\n", "trial.yaml:4: exclude: found nothing left of the grid"),
        ("grid: {a.x: [1]}\ninclude: [{a.x: 1}]\n",
         "trial.yaml:4: include: found a combination that is in the grid already"),
        ("plots:\n  - {kind: pie}\n", "trial.yaml:4: plots: found the kind 'pie'; allowed are accuracy-epochs"),
        ("plots:\n  - {kind: figure, y: beauty}\n", "trial.yaml:4: plots.y: found 'beauty'; allowed are workers"),
        ("grid: {a.x: [1, 2]}\nplots:\n  - {kind: figure, x: a.x}\n", "trial.yaml:5: plots: found figure without y"),
        ("plots: [time-to-target]\ngrid: {a.x: [1, 2]}\n",
         "trial.yaml:3: plots: found time-to-target without target_accuracy"),
        ("grid: {a.x: [1, 2]}\ncompare:\n  - {of: {a.x: 1}}\n", "trial.yaml:5: compare: found no with; it names at least one axis"),
        ("grid: {a.x: [1, 2]}\ncompare: [{with: {a.x: 3}}]\n", "trial.yaml:4: compare.with.a.x: found '3'; allowed are 1, 2"),
        ("grid: {a.x: [1, 2]}\ncompare: [{of: {a.x: 2}, with: {a.x: 2}}]\n",
         "trial.yaml:4: compare: found no two cells that differ so"),
        ("script: work.py\n", "trial.yaml:3: script: found no file work.py; allowed is the path of a Python script"),
        ("script: work.py\n", "trial.yaml:3: script: found a cell with run: simulate; allowed is train"),
        ("script: work.py\npython: no-such-python\n", "trial.yaml:4: python: found no program no-such-python; allowed is"),
        ("script: work.py\narguments: --depth\n", "trial.yaml:4: arguments: found '--depth'; allowed is a list of texts and numbers"),
        ("python: python3\n", "trial.yaml:3: python: found without script; allowed is both or neither"),
        ("grid:\n  a:\n    - {name: p, devices: 0}\n", "trial.yaml:5: grid.a.devices: found '0'; allowed is a whole number from 1"),
        ("grid:\n  a:\n    - {name: p, arguments: [--gloo]}\n", "grid.a: found arguments without script; allowed is both or neither"),
        ("grid:\n  a:\n    - {name: p, arguments: gloo}\n",
         "trial.yaml:5: grid.a.arguments: found 'gloo'; allowed is a list of texts and numbers"),
        ("grid:\n  a: [{name: p, devices: 1}]\n  b: [{name: q, devices: 2}]\n", "found devices in two axes, a and b; allowed is one"),
        ("grid: {a.x: [1, 2]}\nbaseline: {a.x: 3}\n", "trial.yaml:4: baseline.a.x: found '3'; allowed are 1, 2"),
        ("grid: {a.x: [1, 2]}\nbaseline: {a.y: 1}\n", "trial.yaml:4: baseline: found 'a.y'; allowed are the axes a.x"),
        ("grid: {a.x: [1, 2]}\nbaseline: {}\n", "trial.yaml:4: baseline: found no cell of the grid; allowed is a point"),
        ("grid: {a: [{name: p}, {name: q}]}\nplots: [{kind: scaling, x: a}]\n",
         "trial.yaml:4: plots: found scaling along a without baseline; allowed is an axis of numbers, or any with the key baseline"),
        ("grid: {run: [plain, train]}\n", "found a cell with run: plain and no key plain"),
        ("plain: loop.py\n", "trial.yaml:3: plain: found no cell with run: plain"),
        ("plain: loop.py\n", "trial.yaml:3: plain: found no file loop.py; allowed is the path of a Python script"),
        ("profiled: 1\n", "trial.yaml:3: profiled: found no cell whose workers record a trace"),
        ("profiled: 2\n", "trial.yaml:3: profiled: found '2'; allowed is a whole number from 0 to 1"),
        ("grid: [\n", "not YAML"),
    )

    def test_are_told_with_their_line(self):
        for lines, said in self.TABLE:
            with self.subTest(lines):
                with self.assertRaises(Wrong) as raised:
                    parse(HEAD + lines)
                self.assertIn(said, str(raised.exception))

    def test_are_told_all_at_once(self):
        with self.assertRaises(Wrong) as raised:
            parse("runs: train\nrepeats: many\n")
        self.assertEqual(len(str(raised.exception).splitlines()), 4, raised.exception)
        self.assertIn("found no job", str(raised.exception))

    def test_a_job_file_that_is_not_there(self):
        with self.assertRaises(Wrong) as raised:
            parse("run: train\njob: nowhere.yaml\n")
        self.assertIn("trial.yaml:2: job: found no file nowhere.yaml", str(raised.exception))


class TimeLeft(unittest.TestCase):
    def test_is_that_of_the_same_cell_where_it_is_known(self):
        cells = parse(HEAD + "grid: {a.x: [1, 2]}\n").cells
        slow, quick = (ResolvedCell(cell, 1, (), "") for cell in cells)
        finished = [(Run(slow, 1), 30.0), (Run(quick, 1), 2.0)]
        self.assertEqual(time_left_s([Run(slow, 2), Run(quick, 2), Run(quick, 3)], finished, 1), 34.0)
        self.assertEqual(time_left_s([Run(slow, 2), Run(quick, 2)], finished[:1], 2), 30.0)
        self.assertIsNone(time_left_s([Run(slow, 1)], [], 1))

    def test_is_told_in_words(self):
        self.assertEqual([duration_text(seconds) for seconds in (2.34, 45, 125, 7300)],
                         ["2.3 s", "45 s", "2 min 5 s", "2 h 1 min"])


if __name__ == "__main__":
    unittest.main()
