"""Which plots an experiment has: read from its file, or what follows from its grid."""

import re
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Optional, Sequence

import yaml

from slackline_experiment import schema
from slackline_experiment.document import Mistakes, describe, entries, items, value_of
from slackline_experiment.grid import Axis

WORKERS = "cluster.workers"
# Kind, and whether it has a figure or an axis along x.
KINDS = {"accuracy-epochs": False, "accuracy-time": False, "loss-time": False, "time-to-target": True, "staleness": False, "scaling": True,
         "figure": True, "confusion": False, "power": False}
SERIES_MAX = 6
DEFAULT_FIGURES = ("test_accuracy", "samples_per_second", "wait_fraction")


@dataclass(frozen=True)
class Given:
    """Keys of the experiment that some plots need."""

    target: bool
    baseline: bool


@dataclass(frozen=True)
class PlotSpec:
    """`series` are the axes told apart by colour and marker, `panels` those that have a plot each."""

    kind: str
    series: tuple[str, ...] = ()
    panels: tuple[str, ...] = ()
    x: Optional[str] = None
    y: str = ""
    title: str = ""
    x_scale: str = "linear"

    @property
    def name(self) -> str:
        """Of its files."""
        name = self.y if self.kind == "figure" else self.kind
        return re.sub(r"[^A-Za-z0-9]+", "-", f"{name} by {self.x.split('.')[-1]}" if self.x else name)


def split_axes(axes: Sequence[Axis]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Series and panels: as many axes in one plot as stay legible, at least one."""
    chosen: list[Axis] = []
    for axis in axes:
        if not chosen or (len(chosen) < 2 and prod(len(one.points) for one in [*chosen, axis]) <= SERIES_MAX):
            chosen.append(axis)
    return tuple(axis.key for axis in chosen), tuple(axis.key for axis in axes if axis not in chosen)


def complete(spec: PlotSpec, axes: Sequence[Axis]) -> PlotSpec:
    """Every axis has a place: what the file leaves open is decided here."""
    left = [axis for axis in axes if axis.key not in (spec.x, *spec.series, *spec.panels)]
    if spec.series:
        return replace(spec, panels=(*spec.panels, *(axis.key for axis in left)))
    series, panels = split_axes(left)
    return replace(spec, series=series, panels=(*spec.panels, *panels))


def defaults(axes: Sequence[Axis], has_target: bool) -> tuple[PlotSpec, ...]:
    varied = [axis for axis in axes if len(axis.points) > 1]
    specs = [PlotSpec("accuracy-epochs"), PlotSpec("accuracy-time")]
    # Along x goes an axis of numbers, if there is one.
    along = next((axis.key for axis in varied if axis.numeric), varied[0].key if varied else None)
    if has_target and along:
        specs.append(PlotSpec("time-to-target", x=along))
    specs.append(PlotSpec("staleness"))
    workers = next((axis for axis in varied if axis.key == WORKERS and axis.numeric), None)
    if workers:
        specs.append(PlotSpec("scaling", x=WORKERS))
    if along:
        specs += [PlotSpec("figure", x=along, y=name) for name in DEFAULT_FIGURES
                  if not (name == "samples_per_second" and workers)]
    return tuple(complete(spec, axes) for spec in specs)


def read(node: yaml.Node, axes: Sequence[Axis], given: Given, mistakes: Mistakes) -> tuple[PlotSpec, ...]:
    specs = []
    for one in items(node, "plots", mistakes):
        spec = _read_one(one, axes, given, mistakes)
        if spec is None:
            continue
        if spec.kind == "time-to-target" and not given.target:
            mistakes.add(one, "plots: found time-to-target without target_accuracy; set it")
        specs.append(complete(spec, axes))
    return tuple(specs)


def _read_one(node: yaml.Node, axes: Sequence[Axis], given: Given, mistakes: Mistakes) -> Optional[PlotSpec]:
    if isinstance(node, yaml.ScalarNode):
        found: dict[str, Any] = {"kind": node.value}
    else:
        found = {}
        for key, key_node, value in entries(node, "plots", mistakes):
            if key not in ("kind", "x", "y", "series", "panels", "title", "x_scale"):
                mistakes.add(key_node, f"plots: found the unknown key '{key}'; "
                             "allowed are kind, x, y, series, panels, title, x_scale")
                continue
            found[key] = _read_field(key, value, axes, mistakes)
    if found.get("kind") not in KINDS:
        mistakes.add(node, f"plots: found the kind '{found.get('kind', '')}'; allowed are {', '.join(KINDS)}")
        return None
    return _checked(node, PlotSpec(**{key: value for key, value in found.items() if value is not None}), axes, given, mistakes)


def _read_field(key: str, node: yaml.Node, axes: Sequence[Axis], mistakes: Mistakes) -> Any:
    keys = [axis.key for axis in axes]
    value = value_of(node)
    if key in ("series", "panels"):
        wanted = value if isinstance(value, list) else [value]
        for one in wanted:
            if one not in keys:
                mistakes.add(node, f"plots.{key}: found '{one}'; allowed are the axes {', '.join(keys)}")
        return tuple(wanted)
    allowed = {"x": keys, "y": [column.name for column in schema.FIGURES], "x_scale": ["linear", "log"]}.get(key)
    if not isinstance(value, str) or (allowed is not None and value not in allowed):
        mistakes.add(node, f"plots.{key}: found {describe(node)}; allowed "
                     + (f"are {', '.join(allowed)}" if allowed is not None else "is text"))
        return None
    return value


def _checked(node: yaml.Node, spec: PlotSpec, axes: Sequence[Axis], given: Given, mistakes: Mistakes) -> PlotSpec:
    if not KINDS[spec.kind] and spec.x:
        mistakes.add(node, f"plots: found x in {spec.kind}; allowed is x in time-to-target, scaling and figure")
    if (spec.kind == "figure") != bool(spec.y):
        mistakes.add(
            node, f"plots: found {spec.kind} with{'' if spec.y else 'out'} y; figure needs y, the others have none")
    if spec.kind == "scaling" and not spec.x:
        spec = replace(spec, x=WORKERS)
        if all(axis.key != WORKERS for axis in axes):
            mistakes.add(node, f"plots: found scaling without x and no axis {WORKERS}; name an axis of numbers as x")
    along = next((axis for axis in axes if axis.key == spec.x), None)
    if spec.kind == "scaling" and along is not None and not along.numeric and not given.baseline:
        mistakes.add(node, f"plots: found scaling along {spec.x} without baseline; allowed is an axis of numbers, or any with the key baseline")
    if KINDS[spec.kind] and not spec.x:
        if not axes:
            mistakes.add(node, f"plots: found {spec.kind} without a grid; allowed is a grid with an axis")
        else:
            spec = replace(spec, x=next((axis.key for axis in axes if axis.numeric), axes[0].key))
    used = [key for key in (spec.x, *spec.series, *spec.panels) if key]
    for key in dict.fromkeys(key for key in used if used.count(key) > 1):
        mistakes.add(node, f"plots: found the axis '{key}' twice; allowed is one of x, series and panels")
    return spec
