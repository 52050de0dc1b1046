"""All runs of an experiment, read back, and their statistics."""

from dataclasses import dataclass, field
from math import sqrt
from typing import Callable, Optional, Sequence

from slackline_experiment import run_folder
from slackline_experiment.definition import Experiment
from slackline_experiment.grid import Axis, Cell, baseline_of
from slackline_experiment.resolve import ResolvedCell
from slackline_experiment.store import Run, Store


@dataclass
class Result:
    cell: Cell
    repeat: int
    seed: int
    # From 1; None without folds.
    fold: Optional[int]
    # done, failed or missing; in a comparison also running or stopped.
    state: str
    reason: str = ""
    log: str = ""
    # Empty in an experiment unless done; in a comparison what the run has so far.
    data: run_folder.RunData = field(default_factory=run_folder.RunData)
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """True if tables and plots show its figures."""
        return self.state == "done" or bool(self.figures)


@dataclass(frozen=True)
class Statistic:
    mean: float
    # Of the sample; None for a single value.
    deviation: Optional[float]
    n: int


@dataclass(frozen=True)
class Results:
    experiment: Experiment
    results: tuple[Result, ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.experiment.axes

    def of(self, cell: Cell) -> list[Result]:
        """Its runs that count."""
        return [one for one in self.results if one.cell.id == cell.id and one.counts]

    def values(self, cell: Cell, figure: str) -> list[float]:
        return [one.figures[figure] for one in self.of(cell) if figure in one.figures]

    def statistic(self, cell: Cell, figure: str) -> Optional[Statistic]:
        return statistic(self.values(cell, figure))

    def failed(self) -> list[Result]:
        return [one for one in self.results if one.state == "failed"]

    def named(self, text: str) -> str:
        """A text that speaks of the accuracy or the job's metric, with the name of what these runs measured in its place."""
        text = text.replace("the job's metric", self.own_metric() or "the job's metric")
        measured = sorted({one.data.metric for one in self.results if one.counts} or {"accuracy"})
        return text.replace("accuracy", " or ".join(measured))

    def own_metric(self) -> str:
        """The name of what these runs compare evaluations by, if it is not the accuracy; else empty."""
        return " or ".join(sorted({one.data.own_metric for one in self.results if one.counts and one.data.own_metric}))

    def of_curves(self, text: str) -> str:
        """A text that speaks of the accuracy, with the name of what curves show in its place."""
        return text.replace("accuracy", self.own_metric()) if self.own_metric() else self.named(text)

    def has(self, figure: str) -> bool:
        return any(figure in one.figures for one in self.results)


def statistic(values: Sequence[float]) -> Optional[Statistic]:
    if not values:
        return None
    mean = sum(values) / len(values)
    if len(values) == 1:
        return Statistic(mean, None, 1)
    return Statistic(mean, sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1)), len(values))


def runs_of(cells: Sequence[ResolvedCell], repeats: int) -> list[Run]:
    """All cells once, then all once more: an experiment that is stopped early has something of everything."""
    return [Run(cell, repeat) for repeat in range(1, repeats + 1) for cell in cells]


def collect(experiment: Experiment, cells: Sequence[ResolvedCell], store: Store) -> Results:
    found = [_collect_one(experiment, Run(cell, repeat), store)
             for cell in cells for repeat in range(1, experiment.repeats + 1)]
    collected = Results(experiment, tuple(found))
    add_relative(collected)
    return collected


# Figures over the mean of the baseline's, by what they are called.
RELATIVE = {"speed_up": "samples_per_second", "edp_ratio": "edp"}


def add_relative(results: Results) -> None:
    """Gives each run of an experiment with a baseline its figures beside those of the baseline."""
    experiment = results.experiment
    for cell in experiment.cells:
        baseline = baseline_of(cell, experiment.baseline, experiment.cells)
        if baseline is None:
            continue
        devices = results.statistic(baseline, "device_count")
        for name, figure in RELATIVE.items():
            base = results.statistic(baseline, figure)
            for one in results.of(cell) if base is not None and base.mean > 0 else ():
                if figure in one.figures:
                    one.figures[name] = one.figures[figure] / base.mean
        for one in results.of(cell):
            if devices is not None and one.figures.get("device_count") and "speed_up" in one.figures:
                one.figures["efficiency"] = one.figures["speed_up"] * devices.mean / one.figures["device_count"]


def _collect_one(experiment: Experiment, run: Run, store: Store) -> Result:
    result = Result(run.cell.cell, run.repeat, run.seed, run.fold, "missing", "it was not run, or not to its end",
                    str(store.last_log(run).relative_to(store.root)))
    failure, job = store.failure(run), store.slurm_job(run)
    if job is not None:
        result.reason = f"SLURM job {job} has left no result yet"
    if failure is not None:
        result.state, result.reason = "failed", failure
    elif store.is_complete(run):
        try:
            result.data = run_folder.read(store.run_folder(run))
            result.state, result.reason = "done", ""
            result.figures = figures_of(experiment, result.data, store.wall_s(run))
            devices = run.cell.cell.devices or result.figures.get("workers")
            if devices and experiment.baseline:
                result.figures["device_count"] = devices
        except run_folder.BadRunFolder as error:
            result.state, result.reason = "failed", str(error)
    return result


def figures_of(experiment: Experiment, data: run_folder.RunData, wall_s: Optional[float] = None) -> dict[str, float]:
    figures = dict(data.figures)
    if wall_s is not None:
        figures["wall_s"] = wall_s
    if experiment.target_accuracy is not None:
        reached = run_folder.first_at(data, experiment.target_accuracy)
        if reached:
            figures["time_to_target_s"] = reached.time_s
            if reached.samples is not None:
                figures["samples_to_target"] = reached.samples
            if reached.epochs is not None:
                figures["epochs_to_target"] = reached.epochs
    return figures


def not_reached(results: Results, cells: Sequence[Cell]) -> tuple[int, int]:
    """Runs that are done and did not reach the target, and runs that are done."""
    done = [one for cell in cells for one in results.of(cell)]
    return sum("time_to_target_s" not in one.figures for one in done), len(done)


def group_by(cells: Sequence[Cell], key: Callable[[Cell], tuple[str, ...]]) -> dict[tuple[str, ...], list[Cell]]:
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return groups
