"""Plots of one figure a run against an axis of the grid: any figure, and how throughput scales."""

import textwrap
from typing import Callable, Optional, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from slackline_experiment.grid import Axis, Cell
from slackline_experiment.plots import style
from slackline_experiment.plots.series import Panel, Series
from slackline_experiment.results import Results, Statistic, statistic

LABEL_WIDTH = 14
TICKS_MAX = 10
# Of the distance between two places of an axis of names: how far its series spread.
DODGE_WIDTH = 0.5
# The runs stand beside the bar of their deviation.
DOT_SHIFT = 0.05

ValuesOf = Callable[[Cell], Sequence[float]]


def positions(axis: Axis) -> dict[str, float]:
    """Where each point stands along x: an axis of numbers by value, one of names side by side."""
    if axis.numeric:
        return {point.name: float(point.number or 0) for point in axis.points}
    return {point.name: float(index) for index, point in enumerate(axis.points)}


def position(axis: Axis, cell: Cell, places: dict[str, float]) -> Optional[float]:
    if axis.key not in cell.points:
        return None
    point = cell.points[axis.key]
    return point.number if axis.numeric else places[point.name]


def set_ticks(axes: Axes, axis: Axis, scale: str) -> None:
    places = positions(axis)
    if scale == "log":
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
    if not axis.numeric:
        axes.set_xticks(list(places.values()), [textwrap.fill(name, LABEL_WIDTH) for name in places])
        axes.set_xlim(-0.6, len(places) - 0.4)
        axes.grid(False, axis="x")
    elif len(places) <= TICKS_MAX:
        axes.xaxis.set_major_locator(FixedLocator(list(places.values())))
        axes.set_xticks(list(places.values()), list(places))
    axes.set_xlabel(style.axis_title(axis.key))


def draw_panel(axes: Axes, panel: Panel, axis: Axis, values_of: ValuesOf, scale: str) -> dict:
    """Means with one deviation, and each run as a faint dot. Returns a handle for each label that was drawn."""
    handles = {}
    for index, series in enumerate(panel.series):
        shift = 0.0
        if not axis.numeric and len(panel.series) > 1:
            shift = DODGE_WIDTH * (index / (len(panel.series) - 1) - 0.5)
        handle = _draw(axes, series, axis, values_of, shift)
        if handle is not None:
            handles[series.label] = handle
    set_ticks(axes, axis, scale)
    return handles


def _draw(axes: Axes, series: Series, axis: Axis, values_of: ValuesOf, shift: float) -> Optional[object]:
    places = positions(axis)
    found: list[tuple[float, Statistic]] = []
    for cell in series.cells:
        x, values = position(axis, cell, places), values_of(cell)
        summary = statistic(values)
        if x is None or summary is None:
            continue
        found.append((x + shift, summary))
        if len(values) > 1:
            beside = 0.0 if axis.numeric else DOT_SHIFT
            axes.plot([x + shift + beside] * len(values), values, ".",
                      color=series.look["color"], alpha=0.4, markersize=6)
    if not found:
        return None
    found.sort(key=lambda one: one[0])
    x = np.array([place for place, _ in found])
    mean = np.array([one.mean for _, one in found])
    deviation = np.array([one.deviation or 0.0 for _, one in found])
    look = dict(series.look) if axis.numeric else {**series.look, "linestyle": "none"}
    line, = axes.plot(x, mean, **look)
    if axis.numeric:
        if np.any(deviation > 0):
            axes.fill_between(x, mean - deviation, mean + deviation, color=look["color"], alpha=0.18, linewidth=0)
    else:
        shown = deviation > 0
        axes.errorbar(x[shown], mean[shown], yerr=deviation[shown], fmt="none", color=look["color"], capsize=4)
    return line


def scaling_values(results: Results, axis: Axis, series: Series) -> tuple[ValuesOf, ValuesOf]:
    """Speed-up S = throughput over its mean at the smallest x of the axis, and efficiency E = S / (x / smallest x).

    A series without a run at the smallest x has neither.
    """
    least = min(point.number or 0 for point in axis.points)
    at_least = [cell for cell in series.cells if axis.key in cell.points and cell.points[axis.key].number == least]
    summary = statistic([value for cell in at_least for value in results.values(cell, "samples_per_second")])
    base = summary.mean if summary else 0.0

    def speed_up(cell: Cell) -> list[float]:
        return [value / base for value in results.values(cell, "samples_per_second")] if base > 0 else []

    def efficiency(cell: Cell) -> list[float]:
        x = cell.points[axis.key].number if axis.key in cell.points else None
        return [value * least / x for value in speed_up(cell)] if x and least else []

    return speed_up, efficiency


def _draw_along_numbers(speed_up_axes: Axes, efficiency_axes: Axes, panel: Panel, axis: Axis, results: Results) -> None:
    for series in panel.series:
        speed_up, efficiency = scaling_values(results, axis, series)
        _draw(speed_up_axes, series, axis, speed_up, 0.0)
        _draw(efficiency_axes, series, axis, efficiency, 0.0)


def draw_scaling(panels: Sequence[Axes], panel: Panel, axis: Axis, results: Results, scale: str) -> dict:
    """Throughput, speed-up and efficiency, side by side."""
    throughput, speed_up_axes, efficiency_axes = panels
    handles = draw_panel(throughput, panel, axis, lambda cell: results.values(cell, "samples_per_second"), scale)
    ideal = {"color": "#777777", "linewidth": 1, "linestyle": (0, (2, 3)), "zorder": 1}
    if results.experiment.baseline:
        draw_panel(speed_up_axes, panel, axis, lambda cell: results.values(cell, "speed_up"), scale)
        draw_panel(efficiency_axes, panel, axis, lambda cell: results.values(cell, "efficiency"), scale)
    else:
        _draw_along_numbers(speed_up_axes, efficiency_axes, panel, axis, results)
        x = sorted(positions(axis).values())
        if x[0] > 0:
            speed_up_axes.plot(x, [one / x[0] for one in x], **ideal)
    efficiency_axes.axhline(1.0, **ideal)
    titles = (("Throughput", "samples/s"), ("Speed-up S", "times"), ("Efficiency E", ""))
    for axes, (title, unit) in zip(panels, titles):
        set_ticks(axes, axis, scale)
        axes.set_title(title)
        axes.set_ylabel(unit)
        axes.set_ylim(bottom=0)
    style.with_thousands(throughput)
    style.as_percent(efficiency_axes)
    return handles
