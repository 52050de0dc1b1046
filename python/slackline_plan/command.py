"""The command line, and the table."""

import argparse
import itertools
import json
import re
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Sequence

from slackline_options import CommandParser
from slackline_plan import kinds, programs
from slackline_plan.kinds import Kind
from slackline_plan.programs import Group, Measured, PlanError, WrongUse
from slackline_plan.windows import WINDOWS

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
JOULES_PER_KWH = 3.6e6
# Share of a batch below which the table notes a small step. The last batches of an epoch are a little smaller, too.
SMALL_STEP = 0.75


@dataclass(frozen=True)
class Cell:
    batch: int
    gpus: Optional[int]  # None: the devices of the job
    images: int
    epochs: int
    nodes: int
    nodes_by_kind: tuple[int, ...]
    step_samples: float
    samples_per_second: float
    hours: float
    # With the fastest and with the slowest of the windows that were measured; None where there are too few.
    hours_low: Optional[float]
    hours_high: Optional[float]
    epochs_within_limit: float
    fits: bool
    kwh: Optional[float]


@dataclass(frozen=True)
class Shape:
    groups: tuple[Group, ...]
    images: Optional[int]  # None: those of the job
    epochs: tuple[int, ...]


@dataclass(frozen=True)
class MeasuredKind:
    kind: Kind
    measured: list[Measured]  # one for each batch size and number of GPUs

    def of(self, batch: int, gpus: Optional[int]) -> Optional[Measured]:
        return next((one for one in self.measured if (one.batch, one.gpus) == (batch, gpus)), None)


def duration(text: str) -> float:
    """Seconds of "90", "90s", "30m", "48h", "2d"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"found '{text}'; allowed is a time such as 90s, 30m, 48h or 2d")
    return float(match[1]) * UNITS[match[2]]


def numbers(text: str) -> list[int]:
    """"1,2,5": whole numbers above 0, each once."""
    found = [int(part) if re.fullmatch(r"\d{1,7}", part) else 0 for part in text.split(",")]
    if 0 in found or len(set(found)) != len(found):
        raise argparse.ArgumentTypeError(f"found '{text}'; allowed are whole numbers above 0, each once, such as 1,2,5")
    return found


def shapes(text: str) -> list[str]:
    """"1,2" or, with several kinds of nodes, "1+2,2+4", each once."""
    found = text.split(",")
    if len(set(found)) != len(found) or not all(re.fullmatch(r"\d{1,7}(\+\d{1,7})*", one) for one in found) or not all(
            any(int(part) for part in one.split("+")) for one in found):
        raise argparse.ArgumentTypeError(f"found '{text}'; allowed are whole numbers above 0, each once, such as 1,2,5, or with "
                                         "several kinds of nodes one of each, such as 1+4,2+8")
    return found


def bandwidth(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"found '{text}'; allowed is a number above 0, of gigabits a second")
    return value


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(
        "slackline plan", about="Estimate how long a job takes on N nodes, for each batch size.",
        example="slackline plan job.yaml --batch 32,64 --nodes 1,2,4", usage="JOB --batch N,... --nodes N,... [OPTIONS]",
        text="The command measures the job on this machine, then simulates it on each number of such nodes. More: slackline help plan.",
        examples=["slackline plan job.yaml --batch 64 --nodes 2,4 --gbit-per-s 10 --limit 24h",
                  "slackline plan job.yaml --batch 64 --measure-only > fast.json",
                  "slackline plan job.yaml --batch 64 --nodes 1+4,2+8 --kind fast=fast.json --kind slow=slow.json"])
    parser.argument("job", metavar="JOB", help="Job file (YAML).")
    most_used = parser.add_argument_group("Most used options")
    most_used.add_argument("--batch", type=numbers, required=True, metavar="N,...", help="Images per step of a worker. Required.")
    most_used.add_argument("--nodes", type=shapes, metavar="N,...",
                           help="Numbers of nodes, with one worker each. With several kinds of nodes N+M,...: numbers of each kind.")
    most_used.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
                           help="Change a setting of the job file. May be repeated.")
    estimate = parser.add_argument_group("Estimate")
    estimate.add_argument("--limit", type=duration, default=duration("48h"), metavar="TIME",
                          help="Time limit that the table compares with. Default: 48h.")
    estimate.add_argument("--images", type=numbers, metavar="N,...", help="Numbers of training images. Default: those of the job's data.")
    estimate.add_argument("--epochs", type=numbers, metavar="N,...", help="Numbers of epochs. Default: training.epochs.")
    estimate.add_argument("--gbit-per-s", type=bandwidth, metavar="N",
                          help="Bandwidth of each node's link. Default: the network between nodes costs no time.")
    estimate.add_argument("--json", action="store_true", help="Print one JSON object instead of the table.")
    measurement = parser.add_argument_group("Measurement")
    measurement.add_argument("--measure", type=duration, default=duration("60s"), metavar="TIME",
                             help="Time for the measurement of all batch sizes together. Default: 60s.")
    measurement.add_argument("--gpus", type=numbers, default=[None], metavar="N,...",
                             help="GPUs of each node, of which one worker uses all. Measured with the first N here. Default: worker.devices.")
    measurement.add_argument("--measure-only", action="store_true", help="Only measure this machine, and print the result for --kind.")
    measurement.add_argument("--kind", action="append", default=[], metavar="NAME=FILE", dest="kinds",
                             help="Kind of nodes, with a file that --measure-only has printed on one. May be repeated.")
    measurement.add_argument("--here", action="store_true",
                             help="In a SLURM allocation: measure this machine only, and not one node of each kind.")
    parser.finish()
    options = parser.parse_args(arguments)
    if options.nodes is None and not options.measure_only:
        parser.error("the following arguments are required: --nodes")
    if options.kinds and (options.measure_only or options.here):
        parser.error("--kind: found what measures, too; allowed is one of --kind, --measure-only and --here")
    return options


def measure_here(options: argparse.Namespace) -> list[Measured]:
    measured = []
    seconds = options.measure / len(options.batch) / len(options.gpus)
    with tempfile.TemporaryDirectory(prefix="slackline-plan-") as root:
        for batch in options.batch:
            for gpus in options.gpus:
                _say(options, f"measures batch {batch}{'' if gpus is None else f' on {gpus} of the GPUs'} for {seconds:.0f} s")
                measured.append(programs.measure(options.slackline, options.job, options.settings, batch, gpus, seconds, Path(root)))
    return measured


def measure(options: argparse.Namespace) -> list[MeasuredKind]:
    """Of files, of one node of each kind of the allocation, or of this machine."""
    if options.kinds:
        found = [MeasuredKind(kind, measured) for kind, measured in kinds.from_files(options.kinds)]
        for one in found:
            for batch in options.batch:
                for gpus in options.gpus:
                    if one.of(batch, gpus) is None:
                        raise WrongUse(f"--kind {one.kind.name}: found no {_named(batch, gpus)}; allowed are "
                                       f"{', '.join(_named(of.batch, of.gpus) for of in one.measured)}")
        _check_shapes(options, [one.kind for one in found])
        return found
    if options.here or not kinds.in_allocation():
        here = Kind("this machine", ())
        _check_shapes(options, [here])
        return [MeasuredKind(here, measure_here(options))]
    found = []
    there = kinds.of_allocation()
    _check_shapes(options, there)
    for kind in there:
        _say(options, f"measures {kind.nodes[0]}, one of {len(kind.nodes)} nodes with {kind.name}")
        command = [options.slackline, "plan", str(Path(options.job).absolute()), "--measure-only", "--here", "--batch",
                   ",".join(map(str, options.batch)), "--measure", f"{options.measure:g}s",
                   *(word for setting in options.settings for word in ("--set", setting))]
        if options.gpus != [None]:
            command += ["--gpus", ",".join(map(str, options.gpus))]
        found.append(MeasuredKind(kind, kinds.measure_there(kind, command, options.measure)))
    return found


def _named(batch: int, gpus: Optional[int]) -> str:
    return f"batch {batch}" if gpus is None else f"batch {batch} with {gpus} {'GPU' if gpus == 1 else 'GPUs'}"


def _check_shapes(options: argparse.Namespace, found: Sequence[Kind]) -> None:
    for one in options.nodes:
        if kinds.shape(one, len(found)) is None:
            raise WrongUse(f"--nodes: found {one}; allowed is a number of nodes" + (
                "" if len(found) == 1 else f" of each kind, such as {'+'.join('1' for _ in found)}: " +
                " + ".join(kind.name for kind in found)))


def plan(options: argparse.Namespace) -> tuple[list[MeasuredKind], list[Cell]]:
    epochs = programs.job_epochs(options.slackline, options.job, options.settings)
    # Nothing is measured for a simulation that cannot run.
    programs.check_simulation(options.slackline, options.job, options.settings)
    measured = measure(options)
    cells = []
    for batch, gpus, images, nodes in itertools.product(options.batch, options.gpus, options.images or [None], options.nodes):
        _say(options, f"simulates {_named(batch, gpus)} on {nodes} {'node' if nodes == '1' else 'nodes'}"
                      f"{'' if images is None else f', with {images} images'}")
        counts = kinds.shape(nodes, len(measured))
        groups = tuple(Group(found, count) for one, count in zip(measured, counts or ()) if (found := one.of(batch, gpus)) is not None)
        cells += _cells(options, Shape(groups, images, tuple(options.epochs or [epochs])))
    return measured, cells


def _play(options: argparse.Namespace, shape: Shape, groups: Sequence[Group]) -> programs.Simulated:
    with tempfile.TemporaryDirectory(prefix="slackline-plan-") as root:
        return programs.simulate(options.slackline, options.job, options.settings, groups, max(shape.epochs), options.gbit_per_s,
                                 shape.images, Path(root))


def _cells(options: argparse.Namespace, shape: Shape) -> list[Cell]:
    """One for each number of epochs."""
    groups = [group for group in shape.groups if group.nodes > 0]
    played = _play(options, shape, groups)
    fastest = slowest = None
    if all(group.measured.spread is not None for group in groups):
        fastest = _play(options, shape, [Group(group.measured.taking(group.measured.spread.fast), group.nodes) for group in groups])
        slowest = _play(options, shape, [Group(group.measured.taking(group.measured.spread.slow), group.nodes) for group in groups])
    metered = all(group.measured.watts is not None for group in groups)
    watts = sum(group.measured.watts * group.nodes for group in groups) if metered else None
    cells = []
    for epochs in shape.epochs:
        seconds = played.seconds(epochs)
        cells.append(Cell(
            batch=groups[0].measured.batch, gpus=groups[0].measured.gpus, images=round(played.epoch_samples), epochs=epochs,
            nodes=sum(group.nodes for group in groups), nodes_by_kind=tuple(group.nodes for group in shape.groups),
            step_samples=played.step_samples, samples_per_second=played.samples_per_second, hours=seconds / 3600,
            hours_low=None if fastest is None else min(seconds, fastest.seconds(epochs)) / 3600,
            hours_high=None if slowest is None else max(seconds, slowest.seconds(epochs)) / 3600,
            epochs_within_limit=max(0.0, options.limit - played.once_s) / played.epoch_s,
            fits=seconds <= options.limit, kwh=None if watts is None else watts * seconds / JOULES_PER_KWH))
    return cells


def notes(options: argparse.Namespace, measured: Sequence[MeasuredKind], cells: Sequence[Cell]) -> list[str]:
    lines = ["compute and exchange: of a step, measured with one worker and one server on one machine, over loopback TCP",
             "samples/s, time, epochs: played by `slackline simulate --no-gradients` with these, evaluations included; "
             f"{'all nodes are taken to be like this one' if len(measured) == 1 else 'nodes of a kind are taken to be alike'}, "
             "checkpoints to take no time"]
    if len(measured) > 1:
        lines.append("nodes: " + " + ".join(one.kind.name for one in measured) + "; servers are as slow as the slowest of them")
    smallest = min(cells, key=lambda cell: cell.step_samples / cell.batch)
    if smallest.step_samples < SMALL_STEP * smallest.batch:
        lines.append(f"steps are smaller than the batch: with batch {smallest.batch} on {'+'.join(map(str, smallest.nodes_by_kind))} nodes, they have "
                     f"{smallest.step_samples:.0f} images in the mean, because an epoch has only {smallest.images}")
    lines.append("time: and with the fastest and the slowest of the "
                 f"{WINDOWS} windows of the measurement" if any(cell.hours_low is not None for cell in cells) else
                 f"no low and high: fewer than 3 of {WINDOWS} windows had steps; measure for longer (--measure)")
    if options.gbit_per_s is None:
        lines.append("the network between nodes costs nothing here: say what it is by --gbit-per-s")
    else:
        lines.append(f"links of {options.gbit_per_s:g} Gbit/s each way, with simulation.latency_us of the job")
    metered = all(of.watts is not None for one in measured for of in one.measured)
    lines.append("energy: mean power of this node's metered devices while it trained here, times nodes and time" if metered and len(measured) == 1 else
                 "energy: mean power of a node of each kind while it trained, of its metered devices, times nodes and time" if metered else
                 "no energy: nothing is metered here, or only root may read it (docs/energy.md)")
    return lines


def table(options: argparse.Namespace, measured: Sequence[MeasuredKind], cells: Sequence[Cell]) -> str:
    # Axes that nobody asked for have one value, and no column.
    axes = [name for name in ("gpus", "images", "epochs") if getattr(options, name) not in (None, [None])]
    rows = [["batch", *axes, "nodes", "compute", "exchange", "samples/s", "time", "epochs in limit", "fits", "energy"]]
    for cell in cells:
        of_batch = [found for one in measured if (found := one.of(cell.batch, cell.gpus)) is not None]
        rows.append([str(cell.batch), *(str(getattr(cell, name)) for name in axes), "+".join(map(str, cell.nodes_by_kind)),
                     "/".join(f"{of.compute_s * 1e3:.1f}" for of in of_batch) + " ms",
                     "/".join(f"{of.exchange_s * 1e3:.2f}" for of in of_batch) + " ms",
                     f"{cell.samples_per_second:,.0f}", _interval(cell), f"{cell.epochs_within_limit:,.1f}",
                     _fits(cell, options.limit / 3600), "-" if cell.kwh is None else f"{cell.kwh:.3g} kWh"])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths)) for row in rows]
    return "\n".join([*lines, "", *(f"* {line}" for line in [f"limit: {_hours(options.limit / 3600)}", *notes(options, measured, cells)])])


def document(options: argparse.Namespace, measured: Sequence[MeasuredKind], cells: Sequence[Cell]) -> dict[str, Any]:
    return {"job": options.job, "limit_s": options.limit, "gbit_per_s": options.gbit_per_s,
            "kinds": [{"name": one.kind.name, "nodes": one.kind.nodes, "measured": kinds.to_json(one.measured)} for one in measured],
            "measured": kinds.to_json(measured[0].measured), "plan": [vars(cell) for cell in cells],
            "notes": notes(options, measured, cells)}


def _interval(cell: Cell) -> str:
    """With the interval in the same unit, where there is one."""
    if cell.hours_low is None or cell.hours_high is None:
        return _hours(cell.hours)
    low, high = _hours(cell.hours_low), _hours(cell.hours_high)
    low_figure, low_unit = low.split(" ")
    return f"{_hours(cell.hours)} ({low_figure if high.endswith(' ' + low_unit) else low} - {high})"


def _fits(cell: Cell, limit_hours: float) -> str:
    if cell.hours_low is None or cell.hours_high is None:
        return "yes" if cell.fits else "no"
    return "yes" if cell.hours_high <= limit_hours else "no" if cell.hours_low > limit_hours else "maybe"


def _hours(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{hours * 60:.1f} min" if hours * 60 >= 1 else f"{hours * 3600:.1f} s"


def _say(options: argparse.Namespace, line: str) -> None:
    if not options.json and not options.measure_only:
        print(f"slackline plan: {line}", file=sys.stderr)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    # As Ctrl-C does: what it has started ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.measure_only:
            programs.job_epochs(options.slackline, options.job, options.settings)
            print(json.dumps({"job": options.job, "measured": kinds.to_json(measure_here(options))}, indent=2))
            return 0
        measured, cells = plan(options)
    except PlanError as error:
        print(f"slackline plan: {error}", file=sys.stderr)
        return 2 if isinstance(error, WrongUse) else 1
    except KeyboardInterrupt:
        return 1
    print(json.dumps(document(options, measured, cells), indent=2) if options.json else table(options, measured, cells))
    return 0
