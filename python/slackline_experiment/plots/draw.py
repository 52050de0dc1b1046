"""Draws every plot of an experiment."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional, Sequence

import matplotlib
from matplotlib.axes import Axes

from slackline_experiment import schema, tables
from slackline_experiment.grid import Cell
from slackline_experiment.plot_specs import PlotSpec
from slackline_experiment.plots import confusion, curves, figures, power, style
from slackline_experiment.plots.series import Layout
from slackline_experiment.results import Results, not_reached
from slackline_experiment.run_folder import RunData

BAND = "Mean over the repeats; the band is one standard deviation."
BARS = "Mean over the repeats; the bars are one standard deviation, and each dot is a run."
TITLES = {"accuracy-epochs": "Test accuracy over epochs", "accuracy-time": "Test accuracy over time",
          "loss-time": "Training loss over time",
          "time-to-target": "Time to target accuracy", "staleness": "Staleness of the answers",
          "scaling": "Throughput and scaling", "confusion": "Confusion of classes", "power": "Power over time"}
# Of more cells only the first are drawn.
CELLS_MAX = 12


@dataclass(frozen=True)
class Plot:
    name: str
    title: str
    caption: str
    svg: str


@dataclass
class Drawing:
    plots: list[Plot] = field(default_factory=list)
    # Title, and why there is no plot.
    left_out: list[tuple[str, str]] = field(default_factory=list)


def draw_all(results: Results, folder: Path) -> Drawing:
    """Writes NAME.png and NAME.svg for every plot that has data; older ones are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.png"), *folder.glob("*.svg")]:
        old.unlink()
    drawing = Drawing()
    used: set[str] = set()
    with matplotlib.rc_context(dict(style.SETTINGS)):
        for spec in results.experiment.plots:
            name = next(name for name in (spec.name, *(f"{spec.name}-{number}" for number in range(2, 1000)))
                        if name not in used)
            used.add(name)
            draw_one = {"confusion": _draw_confusion, "power": _draw_power}.get(spec.kind, _draw_one)
            draw_one(spec, name, results, folder, drawing)
    return drawing


def title_of(spec: PlotSpec, results: Results) -> str:
    column = schema.figure(spec.y)
    if spec.title or column is None:
        named = results.of_curves if spec.kind in ("accuracy-epochs", "accuracy-time") else results.named
        return spec.title or named(TITLES[spec.kind])
    along = f" against {style.axis_title(spec.x).split(' (')[0]}" if spec.x else ""
    label = results.named(column.label)
    return f"{label[0].upper()}{label[1:]}{along}"


def _draw_one(spec: PlotSpec, name: str, results: Results, folder: Path, drawing: Drawing) -> None:
    # The three plots of scaling stand where panels would.
    layout = Layout(results, spec if spec.kind != "scaling" else _all_in_series(spec))
    labels = layout.labels
    panels = 3 if spec.kind == "scaling" else len(layout.panels)
    width = style.SINGLE_WIDTH if panels == 1 else min(panels, style.COLUMNS_MAX) * style.PANEL_WIDTH
    columns = style.legend_columns(labels, width) if labels else 1
    figure, axes = style.new_figure(panels, -(-len(labels) // columns))
    handles = _fill(spec, results, layout, axes)
    if not handles:
        drawing.left_out.append((title_of(spec, results), "no run that is done has these figures"))
        return
    _align(axes)
    shown = [label for label in labels if label in handles]
    style.add_legend(figure, [handles[label] for label in shown], shown, layout.legend_title, columns)
    svg = style.save(figure, folder, name)
    drawing.plots.append(Plot(name, title_of(spec, results), _caption(spec, results, layout), svg))


def _draw_confusion(spec: PlotSpec, name: str, results: Results, folder: Path, drawing: Drawing) -> None:
    """A panel for each cell."""
    found = [(cell, matrix) for cell in results.experiment.cells
             if (matrix := confusion.of_cell(results, cell)) is not None]
    if not found:
        drawing.left_out.append((title_of(spec, results), "no run that is done has confusion.csv"))
        return
    shown = found[:CELLS_MAX]
    figure, axes = style.new_figure(len(shown), 0)
    for (cell, matrix), one in zip(shown, axes):
        confusion.draw(one, matrix)
        if len(found) > 1:
            one.set_title(_cell_title(cell, results))
    parts = ["Test images of the last evaluation, summed over the repeats; colours are shares of a label's images."]
    if len(found) > len(shown):
        parts.append(f"{len(found) - len(shown)} more cells are not drawn.")
    drawing.plots.append(Plot(name, title_of(spec, results), " ".join(parts), style.save(figure, folder, name)))


def _cell_title(cell: Cell, results: Results) -> str:
    names = [style.axis_title(axis.key) for axis in results.axes]
    return ", ".join(map(" ".join, zip(names, tables.places_of(cell, results))))


def _draw_power(spec: PlotSpec, name: str, results: Results, folder: Path, drawing: Drawing) -> None:
    """A panel for each cell, with a line for each device of each repeat."""
    found = [cell for cell in results.experiment.cells if power.has_trace(results, cell)]
    if not found:
        drawing.left_out.append((title_of(spec, results), "no run that is done has power.csv"))
        return
    shown = found[:CELLS_MAX]
    traces = {cell.id: power.traces_of(results, cell) for cell in shown}
    labels = list(dict.fromkeys(device for runs in traces.values() for run in runs for device in run))[:power.DEVICES_MAX]
    columns = style.legend_columns(labels, style.SINGLE_WIDTH)
    figure, axes = style.new_figure(len(shown), -(-len(labels) // columns))
    handles: dict = {}
    for cell, one in zip(shown, axes):
        handles |= power.draw(one, traces[cell.id], labels)
        if len(found) > 1:
            one.set_title(_cell_title(cell, results))
    _align(axes)
    style.add_legend(figure, [handles[label] for label in labels], labels, "", columns)
    parts = [power.CAPTION]
    if len(found) > len(shown):
        parts.append(f"{len(found) - len(shown)} more cells are not drawn.")
    drawing.plots.append(Plot(name, title_of(spec, results), " ".join(parts), style.save(figure, folder, name)))


def _all_in_series(spec: PlotSpec) -> PlotSpec:
    return PlotSpec(spec.kind, (*spec.series, *spec.panels), (), spec.x, spec.y, spec.title, spec.x_scale)


def _fill(spec: PlotSpec, results: Results, layout: Layout, axes: list[Axes]) -> dict:
    along = next((axis for axis in results.axes if axis.key == spec.x), None)
    if spec.kind == "scaling" and along is not None:
        return figures.draw_scaling(axes, layout.panels[0], along, results, spec.x_scale)
    handles: dict = {}
    for panel, one in zip(layout.panels, axes):
        if along is not None:
            figure = spec.y or "time_to_target_s"
            drawn = figures.draw_panel(one, panel, along, lambda cell: results.values(cell, figure), spec.x_scale)
            _finish_figure(one, figure, results)
        else:
            drawn = _curve(spec, results)(one, panel)
        handles |= drawn
        if not drawn:
            style.mark_empty(one)
        if panel.title:
            one.set_title(panel.title)
    return handles


def _finish_figure(axes: Axes, name: str, results: Results) -> None:
    column = schema.figure(name)
    axes.set_ylabel(results.named(column.axis_label()) if column else name)
    if schema.is_share(name):
        style.as_percent(axes)
        return
    low, high = axes.get_ylim()
    if 0 < low < 0.5 * high:
        axes.set_ylim(bottom=0)
    style.with_thousands(axes)


def _curve(spec: PlotSpec, results: Results) -> Callable:
    time = "time (s)" if "train" in results.experiment.runs else "virtual time (s)"
    curve, x, y = {
        "accuracy-epochs": (curves.over_epochs, "epochs (samples applied / training images)", "test accuracy"),
        "accuracy-time": (curves.over_time, time, "test accuracy"),
        "loss-time": (curves.loss_over_time, time, "training loss"),
        "staleness": (curves.over_staleness, "staleness (versions)", "share of the answers"),
    }[spec.kind]

    def comparable(runs: Sequence[RunData]) -> Optional[curves.Curve]:
        """The curve of those that go by the same figure: runs that have not ended do not say which."""
        own = [one for one in runs if one.own_metric] if spec.kind.startswith("accuracy") and results.own_metric() else runs
        return curve(own) if own else None

    def draw(axes: Axes, panel: object) -> dict:
        handles = curves.draw_panel(axes, panel, results, comparable)
        axes.set_xlabel(x)
        axes.set_ylabel(results.of_curves(y))
        if spec.kind == "staleness":
            curves.finish_staleness(axes)
        elif spec.kind != "loss-time" and not results.own_metric():
            curves.finish_accuracy(axes, results.experiment.target_accuracy)
        if spec.kind == "accuracy-epochs":
            style.whole_numbers(axes)
        return handles

    return draw


def _align(axes: list[Axes]) -> None:
    """Panels of the same figure that show something have the same scale."""
    axes = [one for one in axes if one.axison]
    if len({one.get_ylabel() for one in axes}) != 1:
        return
    low, high = min(one.get_ylim()[0] for one in axes), max(one.get_ylim()[1] for one in axes)
    for one in axes:
        one.set_ylim(low, high)


def _caption(spec: PlotSpec, results: Results, layout: Layout) -> str:
    experiment = results.experiment
    along_names = any(axis.key == spec.x and not axis.numeric for axis in results.axes)
    parts = [BARS if along_names else BAND] if experiment.repeats > 1 else ["One run each."]
    if spec.kind.startswith("accuracy") and experiment.target_accuracy is not None and not results.own_metric():
        parts.append(f"The dotted line is the target, {experiment.target_accuracy:.1%}.")
    if spec.kind.startswith(("accuracy", "loss")) and experiment.repeats > 1:
        parts.append("A curve ends where the first of its runs ends.")
    if spec.kind == "scaling" and experiment.baseline:
        parts.append("S is the throughput over the baseline's, and E is S over (devices / devices of the baseline); the dotted line is ideal.")
    elif spec.kind == "scaling":
        parts.append("S is the throughput over that at the smallest x, and E is S over (x / smallest x); "
                     "the dotted lines are ideal.")
    if spec.kind == "time-to-target" or spec.y == "time_to_target_s":
        missed, done = not_reached(results, experiment.cells)
        if missed:
            parts.append(f"{missed} of {done} runs did not reach {experiment.target_accuracy:.1%}; "
                         "they do not count here.")
    if layout.left_out:
        parts.append(f"{layout.left_out} more combinations are not drawn; name series and panels in plots to choose.")
    return " ".join(parts)
