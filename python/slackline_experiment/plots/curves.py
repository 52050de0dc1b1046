"""Plots of runs over something: accuracy over epochs or time, and how often each staleness was met."""

from typing import Callable, Optional, Sequence

import numpy as np
from matplotlib.axes import Axes

from slackline_experiment.plots import style
from slackline_experiment.plots.series import Panel, Series
from slackline_experiment.results import Results
from slackline_experiment.run_folder import Evaluation, RunData

# x, mean, deviation (0 where there is one run).
Curve = tuple[np.ndarray, np.ndarray, np.ndarray]
CurveOf = Callable[[Sequence[RunData]], Optional[Curve]]
POINTS_WITH_MARKERS_MAX = 16
POINTS = 200
# Of all answers; what is beyond is a thin tail.
HISTOGRAM_SHARE = 0.999


def _statistics(x: np.ndarray, rows: np.ndarray) -> Curve:
    """`rows`: one a run, NaN where it has no value."""
    counts = (~np.isnan(rows)).sum(axis=0)
    mean = np.nansum(rows, axis=0) / counts
    squares = np.nansum((rows - mean) ** 2, axis=0)
    return x, mean, np.sqrt(squares / np.maximum(counts - 1, 1))


def over_epochs(runs: Sequence[RunData]) -> Optional[Curve]:
    """An epoch is as many samples applied as there are, whoever trained them."""
    if all(one.epochs is not None for run in runs for one in run.evaluations):
        return _over(runs, lambda one: one.epochs or 0.0)
    # Runs of an earlier version tell whole epochs only.
    tables = [dict(found) for run in runs if (found := run.accuracies(lambda one: round(one.epoch, 6)))]
    if not tables:
        return None
    x = sorted({epoch for table in tables for epoch in table})
    return _statistics(np.array(x), np.array([[table.get(epoch, np.nan) for epoch in x] for table in tables]))


def over_time(runs: Sequence[RunData]) -> Optional[Curve]:
    return _over(runs, lambda one: one.time_s)


def loss_over_time(runs: Sequence[RunData]) -> Optional[Curve]:
    return _mean_curve([run.losses() for run in runs])


def _over(runs: Sequence[RunData], place: Callable[[Evaluation], float]) -> Optional[Curve]:
    return _mean_curve([run.accuracies(place) for run in runs])


def _mean_curve(points: Sequence[Sequence[tuple[float, float]]]) -> Optional[Curve]:
    """Between its points a run is taken to be on a straight line; only what all runs cover counts."""
    # An array for each run that has points: a row of places, and one of values.
    measured = [np.array(found).T for found in points if found]
    if not measured:
        return None
    places, accuracies = [one[0] for one in measured], [one[1] for one in measured]
    if len(measured) == 1:
        return _statistics(places[0], accuracies[0][None, :])
    begin, end = max(one[0] for one in places), min(one[-1] for one in places)
    if begin >= end:
        counts = min(len(one) for one in places)
        x = np.mean([one[:counts] for one in places], axis=0)
        return _statistics(x, np.array([one[:counts] for one in accuracies]))
    # Marks stand where the evaluations are, if those of all runs are close together.
    counts = {len(one) for one in places}
    x = np.mean(places, axis=0) if len(counts) == 1 and _aligned(places) else np.linspace(begin, end, POINTS)
    return _statistics(x, np.array([np.interp(x, one, accuracy) for one, accuracy in zip(places, accuracies)]))


def _aligned(places: Sequence[np.ndarray]) -> bool:
    """Evaluations of one grid differ by less than a twentieth of the distance between two of them."""
    spread = np.max(places, axis=0) - np.min(places, axis=0)
    return bool(np.all(spread < 0.05 * np.min(np.diff(np.mean(places, axis=0)))))


def over_staleness(runs: Sequence[RunData]) -> Optional[Curve]:
    """Shares of the answers of each run."""
    tables = [dict(run.histogram) for run in runs if sum(count for _, count in run.histogram) > 0]
    if not tables:
        return None
    x = np.arange(max(max(table) for table in tables) + 1)
    shares = np.array([[table.get(value, 0.0) for value in x] for table in tables])
    curve = _statistics(x, shares / shares.sum(axis=1, keepdims=True))
    kept = int(np.searchsorted(np.cumsum(curve[1]), HISTOGRAM_SHARE * curve[1].sum())) + 1
    return curve[0][:kept], curve[1][:kept], curve[2][:kept]


def draw_panel(axes: Axes, panel: Panel, results: Results, curve_of: CurveOf) -> dict:
    """Returns a handle for each label that was drawn."""
    handles = {}
    for series in panel.series:
        curve = curve_of([one.data for cell in series.cells for one in results.of(cell)])
        if curve is not None:
            handles[series.label] = _draw(axes, series, curve)
    return handles


def _draw(axes: Axes, series: Series, curve: Curve) -> object:
    x, mean, deviation = curve
    look = dict(series.look)
    if len(x) > POINTS_WITH_MARKERS_MAX:
        look["markevery"] = max(1, len(x) // 8)
    line, = axes.plot(x, mean, **look)
    if np.any(deviation > 0):
        axes.fill_between(x, mean - deviation, mean + deviation, color=look["color"], alpha=0.18, linewidth=0)
    return line


def finish_accuracy(axes: Axes, target: Optional[float]) -> None:
    if target is not None:
        axes.axhline(target, color="#777777", linewidth=1, linestyle=(0, (2, 3)), zorder=1)
    style.as_percent(axes)


def finish_staleness(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    style.whole_numbers(axes)
    style.as_percent(axes)
