"""The command line, and the table."""

import argparse
import json
import re
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Sequence

from slackline_plan import programs
from slackline_plan.energy import Meter
from slackline_plan.programs import Measured, PlanError, WrongUse

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Cell:
    batch: int
    nodes: int
    samples_per_second: float
    hours: float
    epochs_within_limit: float
    fits: bool
    kwh: Optional[float]


@dataclass(frozen=True)
class Shape:
    nodes: int
    epochs: int  # of the job


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


def bandwidth(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"found '{text}'; allowed is a number above 0, of gigabits a second")
    return value


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="slackline plan", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures a job on this machine, plays it for each batch size on each number of nodes like this one,\n"
                    "and says how long it takes. See docs/plan.md for what each figure is.")
    parser.add_argument("job", metavar="JOB.yaml")
    parser.add_argument("--slackline", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=numbers, required=True, metavar="N,...", help="images a worker takes a step")
    parser.add_argument("--nodes", type=numbers, required=True, metavar="N,...", help="nodes with a worker each")
    parser.add_argument("--limit", type=duration, default=duration("48h"), metavar="TIME", help="default: 48h")
    parser.add_argument("--measure", type=duration, default=duration("60s"), metavar="TIME",
                        help="for all batch sizes together; default: 60s")
    parser.add_argument("--gbit-per-s", type=bandwidth, metavar="N",
                        help="of each node's link; without it the network between the nodes costs nothing")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
                        help="override a setting of the job file; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    return parser.parse_args(arguments)


def plan(options: argparse.Namespace) -> tuple[list[Measured], list[Cell]]:
    measured, cells = [], []
    epochs = programs.job_epochs(options.slackline, options.job, options.settings)
    with tempfile.TemporaryDirectory(prefix="slackline-plan-") as root:
        for batch in options.batch:
            _say(options, f"measures batch {batch} for {options.measure / len(options.batch):.0f} s")
            measured.append(programs.measure(options.slackline, options.job, options.settings, batch,
                                             options.measure / len(options.batch), Path(root)))
        for one in measured:
            for nodes in options.nodes:
                _say(options, f"plays batch {one.batch} on {nodes} nodes")
                cells.append(_cell(options, one, Shape(nodes, epochs), Path(root)))
    return measured, cells


def _cell(options: argparse.Namespace, measured: Measured, shape: Shape, root: Path) -> Cell:
    played = programs.simulate(options.slackline, options.job, options.settings, measured, shape.nodes,
                               shape.epochs, options.gbit_per_s, root)
    seconds = shape.epochs * played.epoch_samples / played.samples_per_second
    joules = None if measured.watts is None else measured.watts * shape.nodes * seconds
    return Cell(batch=measured.batch, nodes=shape.nodes, samples_per_second=played.samples_per_second, hours=seconds / 3600,
                epochs_within_limit=options.limit * played.samples_per_second / played.epoch_samples,
                fits=seconds <= options.limit, kwh=None if joules is None else joules / JOULES_PER_KWH)


def notes(options: argparse.Namespace) -> list[str]:
    lines = ["compute and exchange: of a step, measured here with one worker and one server, over loopback TCP",
             "samples/s, time, epochs: played by `slackline simulate --no-gradients` with these, evaluations included; all "
             "nodes are taken to be like this one, checkpoints to take no time"]
    if options.gbit_per_s is None:
        lines.append("the network between nodes costs nothing here: say what it is by --gbit-per-s")
    else:
        lines.append(f"links of {options.gbit_per_s:g} Gbit/s each way, with simulation.latency_us of the job")
    missing = Meter().missing
    lines.append(f"no energy: {missing}" if missing else
                 "energy: mean power of this machine's processors while measuring, times nodes and time")
    return lines


def table(options: argparse.Namespace, measured: Sequence[Measured], cells: Sequence[Cell]) -> str:
    rows = [["batch", "nodes", "compute", "exchange", "samples/s", "time", "epochs in limit", "fits", "energy"]]
    by_batch = {one.batch: one for one in measured}
    for cell in cells:
        one = by_batch[cell.batch]
        rows.append([str(cell.batch), str(cell.nodes), f"{one.compute_s * 1e3:.1f} ms", f"{one.exchange_s * 1e3:.2f} ms",
                     f"{cell.samples_per_second:,.0f}", _hours(cell.hours), f"{cell.epochs_within_limit:,.1f}",
                     "yes" if cell.fits else "no", "-" if cell.kwh is None else f"{cell.kwh:.3g} kWh"])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths)) for row in rows]
    return "\n".join([*lines, "", *(f"* {line}" for line in [f"limit: {_hours(options.limit / 3600)}", *notes(options)])])


def document(options: argparse.Namespace, measured: Sequence[Measured], cells: Sequence[Cell]) -> dict[str, Any]:
    return {"job": options.job, "limit_s": options.limit, "gbit_per_s": options.gbit_per_s,
            "measured": [vars(one) for one in measured], "plan": [vars(cell) for cell in cells], "notes": notes(options)}


def _hours(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{hours * 60:.1f} min" if hours * 60 >= 1 else f"{hours * 3600:.1f} s"


def _say(options: argparse.Namespace, line: str) -> None:
    if not options.json:
        print(f"slackline plan: {line}", file=sys.stderr)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    # As Ctrl-C does: what it has started ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        measured, cells = plan(options)
    except PlanError as error:
        print(f"slackline plan: {error}", file=sys.stderr)
        return 2 if isinstance(error, WrongUse) else 1
    except KeyboardInterrupt:
        return 1
    print(json.dumps(document(options, measured, cells), indent=2) if options.json else table(options, measured, cells))
    return 0
