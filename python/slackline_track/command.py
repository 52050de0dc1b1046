"""The command line. Exit codes: 0 done, 1 failed or stopped, 2 wrong use."""

import argparse
import importlib.util
import sys
import threading
import time
from pathlib import Path
from typing import Sequence

from slackline_options import CommandParser

# Module as it is imported, and as pip names it.
PACKAGES = {"yaml": "PyYAML", "wandb": "wandb", "mlflow": "mlflow"}
LIBRARIES = ("wandb", "mlflow", "sqlalchemy", "requests")
LOOK_EVERY_S = 2.0
# A run that is followed is given up after so long without a report, or after three times its own distance of reports.
SILENCE_S = 600.0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(
        "slackline track", about="Write the figures of a run for Weights & Biases and MLflow, as files.",
        example="slackline track runs/first --wandb --mlflow", usage="RUN [OPTIONS]",
        text="The trackers get the curves that TensorBoard gets, all settings of the job, the numbers of summary.json, and run, mode and "
             "model as tags. The command reads the run folder only, so it works beside a run and after it. A repeated call adds what "
             "is missing. More: slackline help trackers.",
        examples=["slackline track runs/first --wandb --follow", "slackline track runs/first --mlflow --mlflow-uri http://127.0.0.1:5000"])
    parser.argument("run", type=Path, nargs="?", metavar="RUN", help="Run folder.")
    most_used = parser.add_argument_group("Most used options")
    most_used.add_argument("--wandb", action="store_true", help="Write an offline run of wandb below --folder.")
    most_used.add_argument("--mlflow", action="store_true", help="Write a run of MLflow into mlflow.db below --folder.")
    most_used.add_argument("--follow", action="store_true", help="Wait for new figures until the run has ended.")
    others = parser.add_argument_group("Options")
    others.add_argument("--folder", type=Path, default=Path("."), metavar="FOLDER",
                        help="Folder that gets wandb/ and mlflow.db. Default: the working directory.")
    others.add_argument("--project", default="slackline", metavar="NAME",
                        help="Project of wandb, and experiment of MLflow. Default: slackline.")
    others.add_argument("--mlflow-uri", metavar="URI", help="Tracking server or store of MLflow. Default: mlflow.db below --folder.")
    # For `slackline train`, before a run: looks for the packages only.
    others.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    parser.finish()
    options = parser.parse_args(arguments)
    if options.run is None and not options.check:
        parser.error("the following arguments are required: RUN")
    return options


def missing(options: argparse.Namespace) -> str:
    """What this interpreter lacks, with the command that installs it; empty if it has all."""
    wanted = ["yaml", *(name for name in ("wandb", "mlflow") if getattr(options, name))]
    lacking = [name for name in wanted if importlib.util.find_spec(name) is None]
    if not lacking:
        return ""
    return (f"the Python interpreter {sys.executable} has no module {', '.join(lacking)}.\n"
            f"Install with: {sys.executable} -m pip install {' '.join(PACKAGES[name] for name in lacking)}\n"
            + ("or leave it out of output.trackers." if options.check else "or name another interpreter with --python."))


def track(options: argparse.Namespace) -> int:
    from slackline_track.run import TrackedRun
    from slackline_track.trackers import Mlflow, Tracker, Wandb

    run = TrackedRun(options.run)
    options.folder.mkdir(parents=True, exist_ok=True)
    trackers: list[Tracker] = []
    if options.wandb:
        trackers.append(Wandb(run, options.project, options.folder.resolve()))
    if options.mlflow:
        uri = options.mlflow_uri or f"sqlite:///{options.folder.resolve() / 'mlflow.db'}"
        trackers.append(Mlflow(run, options.project, uri))
    patience_s, last, pause = max(SILENCE_S, 3 * run.report_every_s), time.monotonic(), threading.Event()
    failure = ""
    while True:
        # The summary is read first: points behind it are none.
        summary = run.summary()
        points = run.new_points()
        for tracker in trackers:
            tracker.log(points)
        if points:
            last = time.monotonic()
        if summary is not None or not options.follow:
            break
        if time.monotonic() - last > patience_s:
            failure = (f"{options.run} has had no report for {patience_s:.0f} s and no summary.json: its scheduler hangs or is "
                       f"gone. See: slackline status {options.run}")
            break
        try:
            pause.wait(LOOK_EVERY_S)
        except KeyboardInterrupt:
            failure = "stopped; call the command again for the rest"
            break
    for tracker in trackers:
        tracker.end(summary or run.end() or {})
        print(tracker.advice(), flush=True)
    if failure:
        print(f"slackline track: {failure}", file=sys.stderr)
    return 1 if failure else 0


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if not options.wandb and not options.mlflow:
        print("slackline track: found no tracker; name one: --wandb, --mlflow or both", file=sys.stderr)
        return 2
    if options.mlflow_uri and not options.mlflow:
        print("slackline track: found --mlflow-uri without --mlflow; allowed is both or neither", file=sys.stderr)
        return 2
    lacking = missing(options)
    if options.check:
        print(lacking, end="")
        return 1 if lacking else 0
    if lacking:
        print(f"slackline track: {lacking}", file=sys.stderr)
        return 2
    from slackline_experiment.document import Wrong
    from slackline_track.events import EventError
    try:
        return track(options)
    except Wrong as wrong:
        print(f"slackline track: {wrong}", file=sys.stderr)
        return 2
    except (EventError, OSError) as error:
        print(f"slackline track: {error}", file=sys.stderr)
    except Exception as error:
        # The trackers' own errors are of many classes; any other one is a bug.
        if type(error).__module__.split(".")[0] not in LIBRARIES:
            raise
        print(f"slackline track: {type(error).__module__.split('.')[0]}: {error}", file=sys.stderr)
    return 1
