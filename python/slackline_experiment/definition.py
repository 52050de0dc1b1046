"""The experiment file, read and checked: all that can be known without running anything."""

import re
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Union

import yaml

from slackline_experiment import grid, plot_specs, schema
from slackline_experiment.document import Mistakes, Wrong, compose, describe, entries, items, value_of

KEYS = ("name", "about", "job", "run", "set", "grid", "exclude", "include", "repeats", "folds", "cool_down_s",
        "target_accuracy", "compare", "baseline", "profiled", "plots", "plain", "script", "python", "arguments")
RUNS = ("simulate", "train", "plain")
REPEATS_MAX = 1000
CELLS_MAX = 10000
COOL_DOWN_S_MAX = 3600


@dataclass(frozen=True)
class InlineJob:
    """A job that stands in the experiment file: its text, on the same lines as there, and its values."""

    text: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Script:
    """A Python script whose processes are the workers, as `slackline launch` starts them."""

    path: Path
    # Path or name of the interpreter.
    python: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Experiment:
    file: Path
    name: str
    about: str
    job: Union[Path, InlineJob]
    run: str
    fixed: Mapping[str, Any]
    axes: tuple[grid.Axis, ...]
    cells: tuple[grid.Cell, ...]
    repeats: int
    # Prepared images in which another part is test, each; the repeats go through them in turns. Empty: all are on the job's.
    folds: tuple[Path, ...]
    cool_down_s: float
    target_accuracy: Optional[float]
    # Pairs of cells whose differences are shown.
    comparisons: tuple[tuple[grid.Cell, grid.Cell], ...]
    plots: tuple[plot_specs.PlotSpec, ...]
    # None: the workers are the program of Slackline.
    script: Optional[Script] = None
    # The script that trains the cells with `run: plain`, without Slackline.
    plain: Optional[Script] = None
    # Points of the cells that speed-up, efficiency and EDP are measured by; empty: there are none.
    baseline: Mapping[str, grid.Point] = field(default_factory=dict)
    # Repeats of each cell, from the first on, whose workers record a trace.
    profiled: int = 0

    @property
    def runs(self) -> set[str]:
        """How its cells run: simulate, train or both."""
        return {cell.run for cell in self.cells}

    @property
    def commands(self) -> list[str]:
        """The commands that run its cells."""
        names = {"train": "slackline launch" if self.script else "slackline train", "simulate": "slackline simulate",
                 "plain": self.plain.path.name if self.plain else "plain"}
        return [names[run] for run in sorted(self.runs)]


class _Fields:
    """Reads the values at the top of the file."""

    def __init__(self, nodes: Mapping[str, yaml.Node], mistakes: Mistakes):
        self._nodes = nodes
        self._mistakes = mistakes

    def get(self, key: str, default: Any, allowed: str, fits: Callable[[Any], bool]) -> Any:
        node = self._nodes.get(key)
        if node is None:
            return default
        value = value_of(node)
        if fits(value):
            return value
        self._mistakes.add(node, f"{key}: found {describe(node)}; allowed is {allowed}")
        return default

    def number(self, key: str, default: Optional[float], least: float, most: float, whole: bool = False) -> Any:
        kinds = (int,) if whole else (int, float)

        def fits(value: Any) -> bool:
            return isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= most

        return self.get(key, default, f"a {'whole ' if whole else ''}number from {least:g} to {most:g}", fits)

    def text(self, key: str, default: str) -> str:
        return str(self.get(key, default, "text", lambda value: isinstance(value, str)))


def read(path: Path) -> Experiment:
    """Raises Wrong with every mistake of the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Wrong(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    return parse(text, path)


def parse(text: str, path: Path) -> Experiment:
    mistakes = Mistakes(str(path))
    root = compose(text, str(path))
    if root is None:
        raise Wrong(f"{path}: found an empty file; needed are at least job and run")
    nodes = {}
    for key, key_node, value in entries(root, "the experiment", mistakes):
        if key not in KEYS:
            mistakes.add(key_node, f"found the unknown key '{key}'; allowed are {', '.join(KEYS)}")
        nodes[key] = value
    for key in ("job", "run"):
        if key not in nodes:
            mistakes.add(root, f"found no {key}; it has no default")
    experiment = _read_fields(path, text, nodes, mistakes)
    mistakes.raise_if_any()
    return experiment


def _read_fields(path: Path, text: str, nodes: Mapping[str, yaml.Node], mistakes: Mistakes) -> Experiment:
    fields = _Fields(nodes, mistakes)
    fixed = grid.read_sets(nodes["set"], "set", mistakes) if "set" in nodes else {}
    axes = grid.read_axes(nodes["grid"], schema.names_taken(), mistakes) if "grid" in nodes else ()
    _check_settings(nodes, fixed, axes, mistakes)
    cells = _read_cells(nodes, axes, fixed, mistakes)
    axes = grid.with_included(axes, cells)
    target = fields.number("target_accuracy", None, 0, 1)
    folds = _read_folds(path, nodes, mistakes)
    run = fields.get("run", "train", " or ".join(RUNS), lambda value: value in RUNS)
    cells = tuple(cell if cell.run else replace(cell, run=run) for cell in cells)
    baseline = grid.read_baseline(nodes["baseline"], axes, cells, mistakes) if "baseline" in nodes else {}
    repeats = _read_repeats(fields, len(folds))
    return Experiment(
        file=path,
        name=fields.get("name", path.stem, "a name of letters, digits, '-', '_' and '.'",
                        lambda value: isinstance(value, str) and re.fullmatch(r"\w[\w.-]*", value) is not None),
        about=" ".join(fields.text("about", "").split()),
        job=_read_job(path, text, nodes, mistakes),
        run=run,
        fixed=fixed,
        axes=axes,
        cells=cells,
        repeats=repeats,
        folds=folds,
        cool_down_s=fields.number("cool_down_s", 0, 0, COOL_DOWN_S_MAX),
        target_accuracy=target,
        comparisons=grid.read_comparisons(nodes["compare"], axes, cells, mistakes) if "compare" in nodes
        else grid.default_comparisons(axes, cells, baseline),
        plots=plot_specs.read(nodes["plots"], axes, plot_specs.Given(target is not None, bool(baseline)), mistakes) if "plots" in nodes
        else plot_specs.defaults(axes, target is not None),
        script=_read_script(path, nodes, {cell.run for cell in cells}, mistakes),
        plain=_read_plain(path, nodes, {cell.run for cell in cells}, mistakes),
        baseline=baseline,
        profiled=_read_profiled(fields, nodes, repeats, {cell.run for cell in cells}, mistakes))


def _read_script(path: Path, nodes: Mapping[str, yaml.Node], runs: set[str], mistakes: Mistakes) -> Optional[Script]:
    if "script" not in nodes:
        for key in ("python", "arguments"):
            if key in nodes and not (key == "python" and "plain" in nodes):
                mistakes.add(nodes[key], f"{key}: found without script; allowed is both or neither")
        return None
    if "simulate" in runs:
        mistakes.add(nodes["script"], "script: found a cell with run: simulate; allowed is train: a simulation computes the models "
                                      "of Slackline")
    arguments = grid.read_arguments(nodes["arguments"], "arguments", mistakes) if "arguments" in nodes else ()
    return _script(path, "script", nodes, mistakes, arguments)


def _script(path: Path, key: str, nodes: Mapping[str, yaml.Node], mistakes: Mistakes, arguments: tuple[str, ...] = ()) -> Script:
    """The script that `key` names, with the interpreter of the file."""
    fields = _Fields(nodes, mistakes)
    script = path.parent / fields.text(key, "")
    if not script.is_file():
        mistakes.add(nodes[key], f"{key}: found no file {script}; allowed is the path of a Python script")
    # A name is looked for in $PATH; a path counts from this file.
    python = fields.text("python", "python3")
    found = shutil.which(str(path.parent / python) if "/" in python else python)
    if found is None:
        mistakes.add(nodes.get("python", nodes[key]), f"python: found no program {python}; allowed is a Python interpreter, by "
                                                      "path or by its name in PATH")
    return Script(script.resolve(), str(Path(found).absolute()) if found else python, arguments)


def _read_plain(path: Path, nodes: Mapping[str, yaml.Node], runs: set[str], mistakes: Mistakes) -> Optional[Script]:
    if "plain" not in nodes:
        if "plain" in runs and not mistakes.found:
            mistakes.add(nodes.get("grid", nodes["run"]), "found a cell with run: plain and no key plain; it names the script that trains "
                                                          "the job without Slackline")
        return None
    if "plain" not in runs:
        mistakes.add(nodes["plain"], "plain: found no cell with run: plain; allowed is the script of at least one")
    return _script(path, "plain", nodes, mistakes)


def _read_profiled(fields: _Fields, nodes: Mapping[str, yaml.Node], repeats: int, runs: set[str], mistakes: Mistakes) -> int:
    profiled = int(fields.number("profiled", 0, 0, repeats, whole=True))
    if profiled > 0 and ("train" not in runs or "script" in nodes):
        mistakes.add(nodes["profiled"], "profiled: found no cell whose workers record a trace; allowed are cells with run: train, without "
                                        "a script")
    return profiled


def _check_settings(nodes: Mapping[str, yaml.Node], fixed: Mapping[str, Any], axes: tuple[grid.Axis, ...],
                    mistakes: Mistakes) -> None:
    if grid.RUN_KEY in fixed:
        mistakes.add(nodes["set"], "set: found run, which is a key of the experiment itself")
    for axis in axes:
        keys = {key for point in axis.points for key in point.sets}
        if "script" not in nodes and any(point.arguments for point in axis.points):
            mistakes.add(nodes["grid"], f"grid.{axis.key}: found arguments without script; allowed is both or neither")
        for point in axis.points:
            if point.sets.get(grid.RUN_KEY, RUNS[0]) not in RUNS:
                mistakes.add(nodes["grid"], f"grid.{axis.key}: found run {point.sets[grid.RUN_KEY]}; allowed is "
                             + " or ".join(RUNS))
        if "seed" in keys:
            mistakes.add(nodes["grid"], f"grid.{axis.key}: found the setting seed; repeats choose the seeds")
        for key in sorted(keys & set(fixed)):
            mistakes.add(nodes["set"], f"set: found {key}, which the axis {axis.key} sets too; allowed is one of them")


def _read_folds(path: Path, nodes: Mapping[str, yaml.Node], mistakes: Mistakes) -> tuple[Path, ...]:
    if "folds" not in nodes:
        return ()
    folds = []
    for node in items(nodes["folds"], "folds", mistakes):
        value = value_of(node)
        folder = path.parent / str(value)
        if not isinstance(value, str) or not (folder / "index.json").is_file():
            mistakes.add(node, f"folds: found {describe(node)}; allowed are folders that `slackline prepare` has written")
        elif folder.resolve() in folds:
            mistakes.add(node, f"folds: found {describe(node)} twice")
        else:
            folds.append(folder.resolve())
    if len(folds) == 1:
        mistakes.add(nodes["folds"], "folds: found one folder; allowed are at least two")
    if "data.path" in str([value_of(nodes[key]) for key in ("set", "grid", "include") if key in nodes]):
        mistakes.add(nodes["folds"], "folds: found data.path set too; allowed is one of the two")
    return tuple(folds)


def _read_repeats(fields: "_Fields", folds: int) -> int:
    """A repeat is on one fold, so that all folds count alike only where there is a multiple of them."""
    if folds == 0:
        return int(fields.number("repeats", 1, 1, REPEATS_MAX, whole=True))
    repeats: int = fields.get("repeats", folds, f"a multiple of the {folds} folds, up to {REPEATS_MAX}",
                              lambda value: isinstance(value, int) and not isinstance(value, bool)
                              and 1 <= value <= REPEATS_MAX and value % folds == 0)
    return repeats


def _read_job(path: Path, text: str, nodes: Mapping[str, yaml.Node], mistakes: Mistakes) -> Union[Path, InlineJob]:
    node = nodes.get("job")
    if node is None:
        return path
    value = value_of(node)
    if isinstance(node, yaml.MappingNode):
        start = node.start_mark
        source = "\n" * start.line + " " * start.column + text[start.index:node.end_mark.index] + "\n"
        return InlineJob(source, value)
    if not isinstance(value, str):
        mistakes.add(node, f"job: found {describe(node)}; allowed is the path of a job file or a job")
        return path
    job = path.parent / value
    if not job.is_file():
        mistakes.add(node, f"job: found no file {job}")
    return job


def _read_cells(nodes: Mapping[str, yaml.Node], axes: tuple[grid.Axis, ...], fixed: Mapping[str, Any],
                mistakes: Mistakes) -> tuple[grid.Cell, ...]:
    size = 1
    for axis in axes:
        size *= len(axis.points)
    if size > CELLS_MAX:
        mistakes.add(nodes["grid"], f"grid: found {size} cells; allowed are {CELLS_MAX}")
        return ()
    cells = grid.expand(axes, fixed, nodes.get("exclude"), nodes.get("include"), mistakes)
    if not cells and not mistakes.found:
        mistakes.add(nodes["exclude"], "exclude: found nothing left of the grid")
    return cells
