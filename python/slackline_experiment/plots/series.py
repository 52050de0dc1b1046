"""Which cells stand in which panel and series, and how a series looks."""

from dataclasses import dataclass
from typing import Any, Sequence

from slackline_experiment.grid import Axis, Cell
from slackline_experiment.plot_specs import PlotSpec
from slackline_experiment.plots import style
from slackline_experiment.results import Results

PANELS_MAX = 12


@dataclass(frozen=True)
class Series:
    label: str
    # For matplotlib's plot().
    look: dict[str, Any]
    # More than one only along x.
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Panel:
    title: str
    series: tuple[Series, ...]


def _place(cell: Cell, axes: Sequence[str]) -> tuple[str, ...]:
    return tuple(cell.value(axis) for axis in axes)


def _label(place: Sequence[str], note: str) -> str:
    text = ", ".join(value or "as the job" for value in place)
    return ", ".join(part for part in (text, note) if part)


class Layout:
    """Panels and series of one plot of all cells."""

    def __init__(self, results: Results, spec: PlotSpec):
        self._axes = {axis.key: axis for axis in results.axes}
        self._cells = results.experiment.cells
        # Only axes that vary are worth a word.
        self.series_axes = [key for key in spec.series if len(self._axes[key].points) > 1] or list(spec.series)
        self._panel_axes = [key for key in spec.panels if len(self._axes[key].points) > 1]
        self._keys = list(dict.fromkeys(self._key(cell) for cell in self._cells))
        self.panels = self._make_panels()

    @property
    def legend_title(self) -> str:
        return ", ".join(style.axis_title(key) for key in self.series_axes)

    @property
    def left_out(self) -> int:
        places = {_place(cell, self._panel_axes) for cell in self._cells}
        return max(0, len(places) - PANELS_MAX)

    @property
    def labels(self) -> list[str]:
        """Of the legend; empty where there is nothing to tell apart."""
        return [_label(place, note) for place, note in self._keys] if len(self._keys) > 1 else []

    def _key(self, cell: Cell) -> tuple[tuple[str, ...], str]:
        return _place(cell, self.series_axes), cell.note

    def _make_panels(self) -> list[Panel]:
        places = list(dict.fromkeys(_place(cell, self._panel_axes) for cell in self._cells))
        panels = []
        for place in places[:PANELS_MAX]:
            cells = [cell for cell in self._cells if _place(cell, self._panel_axes) == place]
            title = ", ".join(f"{style.axis_title(key)}: {value or 'as the job'}"
                              for key, value in zip(self._panel_axes, place))
            series = [Series(_label(*key), self._look(index, key), tuple(one for one in cells if self._key(one) == key))
                      for index, key in enumerate(self._keys)]
            panels.append(Panel(title, tuple(one for one in series if one.cells)))
        return panels

    def _look(self, index: int, key: tuple[tuple[str, ...], str]) -> dict[str, Any]:
        """Colour by the first axis, marker and dashes by the others; with one axis, colour and marker."""
        place, note = key
        if len(place) <= 1 and not note:
            # Indices of the axis, so that a series looks the same in every plot.
            axis = self._axes[self.series_axes[0]] if self.series_axes else None
            at = _index(axis, place[0]) if axis else index
            count = max(len(axis.points), at + 1) if axis else 1
            return self._make_look(axis, at, count, at, 0)
        axis = self._axes[self.series_axes[0]] if self.series_axes else None
        at = _index(axis, place[0]) if axis else 0
        others = list(dict.fromkeys((other[1:], other_note) for other, other_note in self._keys))
        rest = others.index((place[1:], note))
        return self._make_look(axis, at, max(len(axis.points), at + 1) if axis else 1, rest, rest)

    @staticmethod
    def _make_look(axis: Any, at: int, count: int, marker: int, dash: int) -> dict[str, Any]:
        palette = style.colours(count, axis is not None and axis.numeric)
        return {"color": palette[at], "marker": style.MARKERS[marker % len(style.MARKERS)],
                "linestyle": style.DASHES[dash % len(style.DASHES)]}


def _index(axis: Axis, value: str) -> int:
    """A cell that leaves the axis to the job comes last."""
    return next((index for index, point in enumerate(axis.points) if point.name == value), len(axis.points))
