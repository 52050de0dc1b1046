"""The grid: axes, their points, and the cells of their product."""

import hashlib
import itertools
import json
import re
from dataclasses import dataclass, replace
from typing import Any, Mapping, Optional, Sequence

import yaml

from slackline_experiment.document import Mistakes, as_text, describe, entries, items, value_of

ID_LENGTH_MAX = 100
DEVICES_MAX = 1_000_000
# What an axis may set beside the fields of the job.
RUN_KEY = "run"


@dataclass(frozen=True)
class Point:
    """One place on an axis: a value of a setting, or a name for several settings."""

    name: str
    sets: Mapping[str, Any]
    # Of an axis of numbers: where it stands in a plot.
    number: Optional[float] = None
    # On how many devices it trains, for the efficiency; None: on as many as there are workers.
    devices: Optional[int] = None
    # For the script, behind those of the experiment.
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Axis:
    key: str
    points: tuple[Point, ...]

    @property
    def numeric(self) -> bool:
        return all(point.number is not None for point in self.points)

    def find(self, name: str) -> Optional[Point]:
        return next((point for point in self.points if point.name == name), None)


@dataclass(frozen=True)
class Cell:
    """One combination. `points` has no entry for an axis that an included cell leaves to the job."""

    id: str
    points: Mapping[str, Point]
    sets: Mapping[str, Any]
    # What an included cell sets beside its points, for people.
    note: str = ""
    # simulate or train, where the grid says so; else the experiment's.
    run: str = ""

    @property
    def devices(self) -> Optional[int]:
        return next((point.devices for point in self.points.values() if point.devices is not None), None)

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(argument for point in self.points.values() for argument in point.arguments)

    def value(self, axis: str) -> str:
        return self.points[axis].name if axis in self.points else ""


def point_of_value(key: str, value: Any) -> Point:
    number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    return Point(as_text(value), {key: value}, number)


def read_sets(node: yaml.Node, what: str, mistakes: Mistakes) -> dict[str, Any]:
    sets = {}
    for key, key_node, value in entries(node, what, mistakes):
        if not re.fullmatch(r"\w+(\.\w+)*", key):
            mistakes.add(key_node, f"{what}: found the key '{key}'; allowed is a field of the job, as training.epochs")
        sets[key] = value_of(value)
    return sets


def _is_named(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode) and any(key.value == "name" for key, _ in node.value)


def _read_named_point(axis: str, node: yaml.Node, mistakes: Mistakes) -> Point:
    name, sets, devices, arguments = "", {}, None, ()
    for key, key_node, value in entries(node, f"grid.{axis}", mistakes):
        if key == "name":
            name = as_text(value_of(value))
        elif key == "devices":
            devices = value_of(value)
            if isinstance(devices, bool) or not isinstance(devices, int) or not 1 <= devices <= DEVICES_MAX:
                mistakes.add(value, f"grid.{axis}.devices: found {describe(value)}; allowed is a whole number from 1 to {DEVICES_MAX}")
                devices = None
        elif key == "arguments":
            arguments = read_arguments(value, f"grid.{axis}.arguments", mistakes)
        elif key == "set":
            sets = read_sets(value, f"grid.{axis}.set", mistakes)
        else:
            mistakes.add(key_node, f"grid.{axis}: found the unknown key '{key}'; allowed are name, set, devices, arguments")
    return Point(name, sets, devices=devices, arguments=arguments)


def read_arguments(node: yaml.Node, what: str, mistakes: Mistakes) -> tuple[str, ...]:
    value = value_of(node)
    if isinstance(value, list) and all(isinstance(one, (str, int, float)) and not isinstance(one, bool) for one in value):
        return tuple(map(str, value))
    mistakes.add(node, f"{what}: found {describe(node)}; allowed is a list of texts and numbers")
    return ()


def read_axes(node: yaml.Node, taken: Sequence[str], mistakes: Mistakes) -> tuple[Axis, ...]:
    """`taken`: names that an axis may not have."""
    axes = []
    for key, key_node, value in entries(node, "grid", mistakes):
        if key in taken:
            mistakes.add(
                key_node, f"grid: found the axis '{key}', which is a column of the results; choose another name")
        nodes = items(value, f"grid.{key}", mistakes)
        named = [_is_named(one) for one in nodes]
        if any(named) and not all(named):
            mistakes.add(value, f"grid.{key}: found values and named points; allowed is one of the two")
            continue
        points = [_read_named_point(key, one, mistakes) if any(named) else point_of_value(key, value_of(one))
                  for one in nodes]
        for one, point in zip(nodes, points):
            if not point.name or [other.name for other in points].count(point.name) > 1:
                mistakes.add(
                    one, f"grid.{key}: found the point '{point.name}' {'twice' if point.name else 'without a name'}")
        axes.append(Axis(key, tuple(points)))
    _check_overlap(node, axes, mistakes)
    return tuple(axes)


def _check_overlap(node: yaml.Node, axes: Sequence[Axis], mistakes: Mistakes) -> None:
    for one, other in itertools.combinations(axes, 2):
        keys = [{key for point in axis.points for key in point.sets} for axis in (one, other)]
        for key in sorted(keys[0] & keys[1]):
            mistakes.add(node, f"grid: found {key} set by two axes, {one.key} and {other.key}; allowed is one")
        if all(any(point.devices is not None for point in axis.points) for axis in (one, other)):
            mistakes.add(node, f"grid: found devices in two axes, {one.key} and {other.key}; allowed is one")


def _read_place(node: yaml.Node, what: str, axes: Sequence[Axis], fresh: bool, mistakes: Mistakes
                ) -> tuple[dict[str, Point], dict[str, Any]]:
    """A point on some axes, and the key `set`. `fresh`: plain axes may have a value that is not in the grid."""
    points, sets = {}, {}
    known = {axis.key: axis for axis in axes}
    for key, key_node, value in entries(node, what, mistakes):
        if key == "set" and fresh:
            sets = read_sets(value, f"{what}.set", mistakes)
            continue
        if key not in known:
            mistakes.add(key_node, f"{what}: found '{key}'; allowed are the axes {', '.join(known)}"
                         + (" and set" if fresh else ""))
            continue
        axis, wanted = known[key], value_of(value)
        point = axis.find(as_text(wanted))
        plain = all(list(one.sets) == [key] for one in axis.points)
        if point is None and fresh and plain:
            point = point_of_value(key, wanted)
        if point is None:
            mistakes.add(value, f"{what}.{key}: found {describe(value)}; allowed are "
                         f"{', '.join(one.name for one in axis.points)}")
            continue
        points[key] = point
    return points, sets


def cell_id(points: Mapping[str, Point], extra: Mapping[str, Any]) -> str:
    """A folder's name: the same for the same cell, wherever it stands in the grid."""
    parts = [f"{key.split('.')[-1]}-{point.name}" for key, point in points.items()]
    parts += [f"{key.split('.')[-1]}-{as_text(value)}" for key, value in extra.items()]
    text = re.sub(r"[^A-Za-z0-9._=+-]+", "-", "_".join(parts)).strip("-.") or "job"
    if len(text) <= ID_LENGTH_MAX:
        return text
    return f"{text[:ID_LENGTH_MAX]}-{_digest(points, extra)}"


def _digest(points: Mapping[str, Point], extra: Mapping[str, Any]) -> str:
    whole = json.dumps([[(key, point.name) for key, point in points.items()], list(extra.items())], default=str)
    return hashlib.sha256(whole.encode()).hexdigest()[:8]


def _make_cell(points: Mapping[str, Point], fixed: Mapping[str, Any], extra: Mapping[str, Any]) -> Cell:
    sets = dict(fixed)
    for point in points.values():
        sets.update(point.sets)
    sets.update(extra)
    note = ", ".join(f"{key.split('.')[-1]} {as_text(value)}" for key, value in extra.items())
    run = as_text(sets.pop(RUN_KEY, ""))
    return Cell(cell_id(points, extra), dict(points), sets, note, run)


def expand(axes: Sequence[Axis], fixed: Mapping[str, Any], exclude: Optional[yaml.Node], include: Optional[yaml.Node],
           mistakes: Mistakes) -> tuple[Cell, ...]:
    """The product, less the excluded combinations, and then the included ones, as GitHub's matrix has it."""
    combinations = [{axis.key: point for axis, point in zip(axes, points)}
                    for points in itertools.product(*(axis.points for axis in axes))]
    for node in items(exclude, "exclude", mistakes) if exclude else []:
        place, _ = _read_place(node, "exclude", axes, False, mistakes)
        kept = [one for one in combinations if not (place and place.items() <= one.items())]
        if place and len(kept) == len(combinations):
            mistakes.add(node, "exclude: found a combination that is not in the grid")
        combinations = kept
    cells = [_make_cell(points, fixed, {}) for points in combinations]
    for node in items(include, "include", mistakes) if include else []:
        cell = _make_cell(*_ordered(_read_place(node, "include", axes, True, mistakes), axes, fixed))
        if any((cell.sets, cell.run) == (other.sets, other.run) for other in cells):
            mistakes.add(node, "include: found a combination that is in the grid already")
        cells.append(cell)
    return _with_unique_ids(cells)


def read_comparisons(node: yaml.Node, axes: Sequence[Axis], cells: Sequence[Cell], mistakes: Mistakes
                     ) -> tuple[tuple[Cell, Cell], ...]:
    """Pairs of cells: those of `of`, each with the cell that differs from it by the points of `with` alone."""
    pairs = []
    for one in items(node, "compare", mistakes):
        places: dict[str, dict[str, Point]] = {}
        for key, key_node, value in entries(one, "compare", mistakes):
            if key not in ("of", "with"):
                mistakes.add(key_node, f"compare: found the unknown key '{key}'; allowed are of, with")
                continue
            places[key], _ = _read_place(value, f"compare.{key}", axes, False, mistakes)
        if not places.get("with"):
            mistakes.add(one, "compare: found no with; it names at least one axis")
            continue
        found = _pairs(places.get("of", {}), places["with"], cells)
        if not found:
            mistakes.add(one, "compare: found no two cells that differ so")
        pairs += found
    return tuple({(cell.id, other.id): (cell, other) for cell, other in pairs}.values())


def read_baseline(node: yaml.Node, axes: Sequence[Axis], cells: Sequence[Cell], mistakes: Mistakes) -> dict[str, Point]:
    """The points that a cell has in place of its own to be the one that it is measured by."""
    points, _ = _read_place(node, "baseline", axes, False, mistakes)
    if not mistakes.found and not any(baseline_of(cell, points, cells) for cell in cells):
        mistakes.add(node, "baseline: found no cell of the grid; allowed is a point on at least one axis")
    return points


def baseline_of(cell: Cell, baseline: Mapping[str, Point], cells: Sequence[Cell]) -> Optional[Cell]:
    """The cell that `cell` is measured by: itself for one that has these points."""
    if not baseline:
        return None
    wanted = {**cell.points, **baseline}
    return next((one for one in cells if not one.note and one.points == wanted), None)


def default_comparisons(axes: Sequence[Axis], cells: Sequence[Cell], baseline: Mapping[str, Point]) -> tuple[tuple[Cell, Cell], ...]:
    """All cells with the baseline, else with the first point of the first axis that varies."""
    if baseline:
        return tuple(_pairs({}, baseline, cells))
    axis = next((one for one in axes if len(one.points) > 1), None)
    return tuple(_pairs({}, {axis.key: axis.points[0]}, cells)) if axis else ()


def _pairs(of: Mapping[str, Point], against: Mapping[str, Point], cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    # Included cells with settings of their own differ by more than points.
    plain = {tuple(sorted((key, point.name) for key, point in cell.points.items())): cell for cell in cells if not cell.note}
    found = []
    for cell in plain.values():
        if not of.items() <= cell.points.items():
            continue
        wanted = {**cell.points, **against}
        other = plain.get(tuple(sorted((key, point.name) for key, point in wanted.items())))
        if other is not None and other is not cell:
            found.append((cell, other))
    return found


def with_included(axes: Sequence[Axis], cells: Sequence[Cell]) -> tuple[Axis, ...]:
    """The axes, with the points that only an included cell has."""
    extended = []
    for axis in axes:
        points = {point.name: point for point in axis.points}
        points |= {cell.points[axis.key].name: cell.points[axis.key] for cell in cells if axis.key in cell.points}
        extended.append(Axis(axis.key, tuple(points.values())))
    return tuple(extended)


def _ordered(place: tuple[dict[str, Point], dict[str, Any]], axes: Sequence[Axis], fixed: Mapping[str, Any]
             ) -> tuple[dict[str, Point], Mapping[str, Any], dict[str, Any]]:
    points, extra = place
    return {axis.key: points[axis.key] for axis in axes if axis.key in points}, fixed, extra


def _with_unique_ids(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    ids = [cell.id.lower() for cell in cells]
    return tuple(cell if ids.count(cell.id.lower()) == 1 else
                 replace(cell, id=f"{cell.id}-{_digest(cell.points, cell.sets)}") for cell in cells)
