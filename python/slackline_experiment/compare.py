"""`slackline compare`: the tables, plots and page of an experiment, from run folders that are there already.

Each label is a cell. Runs of one label are its repeats.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional, Sequence

from slackline_experiment import plot_specs, results, run_folder
from slackline_experiment.command import DONE, command_text, guarded, write_report
from slackline_experiment.definition import Experiment
from slackline_experiment.document import Wrong, flattened, load
from slackline_experiment.grid import Axis, Cell, Point
from slackline_options import CommandParser

AXIS = "run"
RUNS_MAX = 100
# Settings in which the repeats of a cell may differ.
OF_ONE_RUN = ("seed", "name", "output.folder")
# Files of an earlier comparison: a folder that has them all, or nothing, may be written to.
OUTPUT = ("index.html", "results.csv", "results.md")


@dataclass(frozen=True)
class FoundRun:
    """A run folder that was read."""

    label: str
    folder: Path
    # Settings of its job.yaml, by dotted key.
    settings: Mapping[str, Any]
    data: run_folder.RunData

    @property
    def command(self) -> str:
        """The command that made it. Only a real run has processes, and a scheduler with an address."""
        return "train" if (self.folder / "scheduler.address").exists() else "simulate"


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(
        "slackline compare", about="Write tables, plots and one page that compare runs, finished or running.",
        example="slackline compare runs/bsp-* runs/ssp-*", usage="RUN... [OPTIONS]",
        text="The page is that of `slackline experiment`, without an experiment file. Each run is a row and a curve. Runs with the same "
             "LABEL count as repeats: their mean and deviation are shown. A running run shows what it has reported so far; call the "
             "command again for more. More: slackline help experiments.",
        examples=["slackline compare sync=runs/a sync=runs/b async=runs/c async=runs/d",
                  "slackline compare runs/first runs/second --target-accuracy 0.9 --out first-second"])
    parser.argument("runs", nargs="+", metavar="RUN", help="Run folder, or LABEL=FOLDER. Default label: the folder's name.")
    most_used = parser.add_argument_group("Most used options")
    most_used.add_argument("--out", type=Path, default=Path("comparison"), metavar="FOLDER",
                           help="Folder for the results. Default: comparison.")
    most_used.add_argument("--target-accuracy", type=float, metavar="N", help="Accuracy for the time to target, 0 to 1.")
    parser.finish()
    options = parser.parse_args(arguments)
    options.slackline = Path(options.slackline)
    return options


def named(words: Sequence[str]) -> list[tuple[str, Path]]:
    """Label and folder of each RUN. Equal names of different folders become their paths."""
    given: list[tuple[str, Path]] = []
    for word in words:
        label, separator, folder = word.partition("=")
        given.append((label, Path(folder)) if separator and not Path(word).exists() else ("", Path(word)))
    names = [folder.resolve().name for label, folder in given if not label]
    return [(label or (folder.resolve().name if names.count(folder.resolve().name) == 1 else str(folder)), folder)
            for label, folder in given]


def read_run(label: str, folder: Path) -> FoundRun:
    """Raises Wrong where `folder` holds no run, or none that has reported yet."""
    allowed = "allowed is a run folder with job.yaml and summary.json, or with metrics.csv while the run goes on"
    if not folder.is_dir():
        raise Wrong(f"found no folder {folder}; {allowed}")
    if not (folder / "job.yaml").is_file():
        below = sorted(str(one.parent) for one in [*folder.glob("*/job.yaml"), *folder.glob("cells/*/*/job.yaml")])
        hint = f". {len(below)} runs are below it: name them, for example {below[0]}" if below else ""
        raise Wrong(f"found no job.yaml in {folder}; {allowed}{hint}")
    try:
        data = run_folder.read(folder)
        job = load((folder / "job.yaml").read_text(encoding="utf-8"), str(folder / "job.yaml"))
    except (run_folder.BadRunFolder, OSError, UnicodeDecodeError) as error:
        raise Wrong(str(error)) from error
    settings = dict(flattened(job))
    if not data.state:
        if not data.reports:
            raise Wrong(f"found no summary.json in {folder}, and no report in metrics.csv; {allowed}. A run that has just "
                        "begun has reports after output.report_every_ms")
        _take_reports(data, settings)
    return FoundRun(label, folder, settings, data)


def _take_reports(data: run_folder.RunData, settings: Mapping[str, Any]) -> None:
    """The figures of a run without a summary: those of its job, and of its reports so far."""
    data.state, data.reason = "running", "it runs or was lost: it has no summary.json; its figures are those of its reports so far"
    data.mode = str(settings.get("consistency.mode", ""))
    last = data.reports[-1]
    accuracies = [one.accuracy for one in data.evaluations if one.accuracy is not None]
    found = {"workers": settings.get("cluster.workers"), "servers": settings.get("cluster.servers"), "time_s": last["time_s"],
             "samples": last["samples"], "steps": last["step"], "loss": last["loss"],
             "test_accuracy": accuracies[-1] if accuracies else None, "best_test_accuracy": max(accuracies, default=None)}
    if last["samples"] is not None and last["time_s"]:
        found["samples_per_second"] = last["samples"] / last["time_s"]
    data.figures |= {name: value for name, value in found.items() if isinstance(value, (int, float))}


def read_all(words: Sequence[str]) -> list[FoundRun]:
    """Raises Wrong with all that is wrong with any of them."""
    if len(words) > RUNS_MAX:
        raise Wrong(f"found {len(words)} runs; allowed are {RUNS_MAX}")
    runs, mistakes, seen = [], [], set()
    for label, folder in named(words):
        if folder.resolve() in seen:
            mistakes.append(f"found {folder} twice; allowed is each run once")
            continue
        seen.add(folder.resolve())
        try:
            runs.append(read_run(label, folder))
        except Wrong as wrong:
            mistakes.append(str(wrong))
    mistakes += _uneven(runs)
    if mistakes:
        raise Wrong("\n".join(mistakes) + ("\nNothing was written." if len(mistakes) > 1 else "; nothing was written"))
    return runs


def _differing(runs: Sequence[FoundRun]) -> list[str]:
    """Settings that are not the same in all runs."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    return [key for key in keys if any(run.settings.get(key) != runs[0].settings.get(key) for run in runs)]


def _uneven(runs: Sequence[FoundRun]) -> Iterator[str]:
    for label in dict.fromkeys(run.label for run in runs):
        keys = [key for key in _differing([run for run in runs if run.label == label]) if key not in OF_ONE_RUN]
        if keys:
            yield (f"label {label}: found runs that differ in {', '.join(keys[:5])}{' and more' if len(keys) > 5 else ''}; "
                   f"allowed are runs of equal settings, but for {', '.join(OF_ONE_RUN)}. Give them different labels")


def as_results(runs: Sequence[FoundRun], name: str, target_accuracy: Optional[float]) -> results.Results:
    """An experiment with one axis, the labels, whose points show the settings that differ."""
    shown = [key for key in _differing(runs) if key not in OF_ONE_RUN]
    by_label = {label: [run for run in runs if run.label == label] for label in dict.fromkeys(run.label for run in runs)}
    points = {label: Point(label, {key: of[0].settings[key] for key in shown if key in of[0].settings})
              for label, of in by_label.items()}
    axis = Axis(AXIS, tuple(points.values()))
    cells = {label: Cell(label, {AXIS: points[label]}, points[label].sets, run=of[0].command)
             for label, of in by_label.items()}
    first, *others = cells.values()
    # Repeats are pairs only if they have the same seeds, in the same order.
    seeds = {label: [run.settings.get("seed") for run in of] for label, of in by_label.items()}
    comparisons = tuple((cell, first) for cell in others if seeds[cell.id] == seeds[first.id])
    plots = plot_specs.defaults((axis,), target_accuracy is not None)
    if any(run.data.power is not None for run in runs):
        plots = (*plots, plot_specs.complete(plot_specs.PlotSpec("power"), (axis,)))
    loss = plot_specs.complete(plot_specs.PlotSpec("loss-time"), (axis,))
    experiment = Experiment(
        file=Path(), name=name, about="", job=Path(), run=first.run, fixed={}, axes=(axis,), cells=tuple(cells.values()),
        repeats=max(map(len, by_label.values())), folds=(), cool_down_s=0, target_accuracy=target_accuracy,
        comparisons=comparisons, plots=(*plots[:2], loss, *plots[2:]))
    return results.Results(experiment, tuple(
        results.Result(cells[label], repeat, int(run.settings.get("seed", 1)), None, run.data.state, run.data.reason,
                       str(run.folder), run.data, results.figures_of(experiment, run.data))
        for label, of in by_label.items() for repeat, run in enumerate(of, 1)))


def check_output(folder: Path) -> None:
    """Plots of an earlier comparison are removed: so nothing else may be there."""
    if folder.exists() and not folder.is_dir():
        raise Wrong(f"found the file {folder}; allowed is a folder. Name one with --out")
    if folder.is_dir() and any(folder.iterdir()) and (
            not all((folder / name).exists() for name in OUTPUT) or (folder / "experiment.lock.json").exists()):
        raise Wrong(f"found other files in {folder}; allowed is a new or empty folder, or that of an earlier comparison. "
                    "Name one with --out")


def compare_command(options: argparse.Namespace, command: str) -> int:
    if options.target_accuracy is not None and not 0 <= options.target_accuracy <= 1:
        raise Wrong(f"found --target-accuracy {options.target_accuracy:g}; allowed is 0 to 1")
    runs = read_all(options.runs)
    check_output(options.out)
    options.out.mkdir(parents=True, exist_ok=True)
    found = as_results(runs, options.out.resolve().name, options.target_accuracy)
    write_report(found, options.out, command, options.slackline)
    return DONE


def main(arguments: Sequence[str]) -> int:
    options = parse_options(arguments)
    return guarded("compare", lambda: compare_command(options, command_text("compare", arguments)))
