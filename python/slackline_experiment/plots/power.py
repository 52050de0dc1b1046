"""Power of each metered device over time, from power.csv of the runs."""

from typing import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from slackline_experiment.grid import Cell
from slackline_experiment.plots import style
from slackline_experiment.results import Results
from slackline_experiment.run_folder import read_power

# Seconds and watts of each device of a run.
Trace = Mapping[str, Sequence[tuple[float, float]]]

# Points of a line; of more samples, as many means are drawn.
POINTS_MAX = 600
# Devices with a line of their own.
DEVICES_MAX = 16
CAPTION = ("A line for each device of each repeat, over the time since the training began: the idle machine is before 0. "
           f"Of more than {POINTS_MAX} samples, means of neighbours are drawn; power.csv of a run has all.")


def has_trace(results: Results, cell: Cell) -> bool:
    return any(one.data.power is not None for one in results.of(cell))


def traces_of(results: Results, cell: Cell) -> list[Trace]:
    """One for each run of the cell that has power.csv."""
    return [read_power(one.data.power) for one in results.of(cell) if one.data.power is not None]


def thinned(samples: Sequence[tuple[float, float]]) -> np.ndarray:
    """Times and watts, as two rows of at most POINTS_MAX means."""
    points = np.array(sorted(samples)).T
    if points.shape[1] <= POINTS_MAX:
        return points
    edges = np.linspace(0, points.shape[1], POINTS_MAX + 1).astype(int)
    return np.add.reduceat(points, edges[:-1], axis=1) / np.diff(edges)


def draw(axes: Axes, traces: Sequence[Trace], labels: Sequence[str]) -> dict:
    """Draws the devices in `labels`. Returns a handle for each that was drawn."""
    handles = {}
    for index, label in enumerate(labels):
        look = {"color": style.COLOURS[index % len(style.COLOURS)], "linestyle": style.DASHES[index // len(style.COLOURS) % 4]}
        for trace in traces:
            if label in trace:
                times, watts = thinned(trace[label])
                handles[label], = axes.plot(times, watts, linewidth=1, alpha=1 if len(traces) == 1 else 0.6, **look)
    axes.set_xlabel("time (s)")
    axes.set_ylabel("power (W)")
    axes.set_ylim(bottom=0)
    return handles
