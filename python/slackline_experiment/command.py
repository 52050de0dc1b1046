"""The command: reads, checks, runs, and writes what came out. Exit codes: 0 done, 1 failed or stopped, 2 wrong use."""

import argparse
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Callable, Sequence

from slackline_experiment import definition, resolve, results, runner, slurm, store, tables
from slackline_experiment.definition import Experiment, InlineJob
from slackline_experiment.document import Wrong
from slackline_experiment.progress import cell_name
from slackline_options import CommandParser

DONE, FAILED, WRONG_USE = 0, 1, 2

def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(
        "slackline experiment", about="Run a grid of jobs with repeats, and write tables, plots and one page of the results.",
        example="slackline experiment bounds.yaml", usage="FILE [OPTIONS] [-- OPTIONS OF SBATCH]",
        text="The file names a base job, what varies, and how often each combination is repeated. All cells are checked before the "
             "first run. To continue a stopped experiment, start it again: complete runs are not repeated. If the file has "
             "changed, only changed cells run. More: slackline help experiments.",
        examples=["slackline experiment bounds.yaml --out results/bounds --keep-going", "slackline experiment bounds.yaml --report",
                  "slackline experiment bounds.yaml --slurm -- --nodes=4 --time=2:00:00"])
    parser.argument("file", type=Path, metavar="FILE", help="Experiment file (YAML).")
    most_used = parser.add_argument_group("Most used options")
    most_used.add_argument("--dry-run", action="store_true", help="Check everything and list the cells. Run nothing.")
    most_used.add_argument("--out", type=Path, metavar="FOLDER", help="Folder for the results. Default: experiments/NAME.")
    most_used.add_argument("--jobs", type=int, default=1, metavar="N", help="Number of simulated runs at a time. Default: 1.")
    others = parser.add_argument_group("Options")
    others.add_argument("--keep-going", action="store_true", help="Continue after a failed run.")
    others.add_argument("--report", action="store_true",
                        help="Run nothing. Write tables, plots and page of the runs that are there.")
    slurm.add_options(parser)
    parser.finish()
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:end])
    options.sbatch = words[end + 1:]
    options.slackline = Path(options.slackline)
    return options


def say(text: str) -> None:
    """A reader that is gone (Ctrl-C ends `tee`, too) ends nothing: runs still have to be stopped in good order."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_options(options: argparse.Namespace, experiment: Experiment) -> None:
    slurm.check_options(options, experiment.cells)
    if options.jobs < 1:
        raise Wrong(f"found --jobs {options.jobs}; allowed is at least 1")
    if options.jobs > 1 and experiment.runs != {"simulate"}:
        raise Wrong(f"found --jobs {options.jobs} with run: train; allowed is 1: real runs would slow each other down "
                    "and measure that")


def list_cells(experiment: Experiment, cells: Sequence[resolve.ResolvedCell], commands: Sequence[str]) -> None:
    for number, one in enumerate(cells, 1):
        last = store.Run(one, experiment.repeats).seed
        seeds = f"seed {one.seed}" if last == one.seed else f"seeds {one.seed} to {last}"
        say(f"{number:4}  {one.cell.id}  ({cell_name(one.cell)}; {seeds})")
    say(f"{len(cells)} cells x {experiment.repeats} repeats = {len(cells) * experiment.repeats} runs "
        f"of {' and '.join(f'`{command}`' for command in commands)}. All jobs are valid; nothing was run.")


def run_all(experiment: Experiment, cells: Sequence[resolve.ResolvedCell], options: argparse.Namespace,
            place: store.Store) -> runner.Outcome:
    slurm.check_idle(cells, place, submits=False)
    plan = plan_of(experiment, options, place.root)
    adopt(cells, place)
    return runner.Runner(plan, place, say).run(results.runs_of(cells, experiment.repeats))


def plan_of(experiment: Experiment, options: argparse.Namespace, folder: Path) -> runner.Plan:
    """`folder` gets the job, if it is written in the experiment file."""
    job = experiment.job
    if isinstance(job, InlineJob):
        job = resolve.write_inline_job(job, folder)
    return runner.Plan(options.slackline, job, options.jobs, options.keep_going, experiment.cool_down_s, experiment.script,
                       experiment.plain, experiment.profiled)


def adopt(cells: Sequence[resolve.ResolvedCell], place: store.Store) -> None:
    for name in place.adopt(cells):
        say(f"{name}: its job has changed; its runs are done anew.")


def submit_all(experiment: Experiment, cells: Sequence[resolve.ResolvedCell], options: argparse.Namespace,
               place: store.Store, command: str) -> int:
    slurm.check_idle(cells, place, submits=True)
    runs = results.runs_of(cells, experiment.repeats)
    submitter = slurm.Submitter(experiment.name, plan_of(experiment, options, place.root), options, place, say)
    submitter.batch_script(runs[0])
    adopt(cells, place)
    outcome = submitter.run(runs)
    if outcome.interrupted:
        say(f"Interrupted; the jobs in SLURM's queue go on. To collect their results: {command}")
        return FAILED
    write_report(results.collect(experiment, cells, place), place.root, command, options.slackline)
    if outcome.left:
        say(f"{len(outcome.left)} of {len(runs)} runs are in SLURM's queue. To collect their results: {command}")
    if outcome.failed:
        say(f"Ended without a result: {', '.join(run.id for run in outcome.failed)}."
            + (f" To submit them again: {command}" if options.wait else " They were submitted again."))
        return FAILED
    return DONE


def write_report(found: results.Results, root: Path, command: str, slackline: Path) -> None:
    """Writes tables, plots and page into the folder `root`. `command`: as the user typed it."""
    # Drawing takes a second to load: not for a dry run.
    from slackline_experiment import page
    from slackline_experiment.plots import draw

    tables.write_all(found, root)
    drawing = draw.draw_all(found, root / "plots")
    page.write(found, drawing, root / "index.html", page.Origin(command, page.versions(slackline)))
    say(f"\n{root}/index.html shows it all; results.md, differences.csv, results.csv and plots/ lie beside it.")


def show_batch_script(experiment: Experiment, cells: Sequence[resolve.ResolvedCell], options: argparse.Namespace,
                      place: store.Store) -> None:
    with tempfile.TemporaryDirectory(prefix="slackline-experiment-") as folder:
        first = results.runs_of(cells, experiment.repeats)[0]
        submitter = slurm.Submitter(experiment.name, plan_of(experiment, options, Path(folder)), options, place, say)
        say(f"\nThe batch script of {first.id}:\n\n{submitter.batch_script(first)}")


def experiment_command(options: argparse.Namespace, command: str) -> int:
    experiment = definition.read(options.file)
    check_options(options, experiment)
    # SLURM starts runs on nodes that may have other devices and images than this machine.
    cells = resolve.resolve(experiment, options.slackline, to_run=not (options.report or options.slurm))
    place = store.Store(options.out or Path("experiments") / experiment.name)
    if options.dry_run:
        list_cells(experiment, cells, ["slackline slurm submit"] if options.slurm else experiment.commands)
        if options.slurm:
            show_batch_script(experiment, cells, options, place)
        return DONE
    place.open()
    if options.report:
        write_report(results.collect(experiment, cells, place), place.root, command, options.slackline)
        return DONE
    if options.slurm:
        return submit_all(experiment, cells, options, place, command)
    outcome = run_all(experiment, cells, options, place)
    if outcome.interrupted:
        say(f"Interrupted; complete runs are kept. To go on: {command}")
        return FAILED
    write_report(results.collect(experiment, cells, place), place.root, command, options.slackline)
    if outcome.failed:
        say(f"{len(outcome.failed)} runs failed"
            + (f": {', '.join(run.id for run in outcome.failed)}." if options.keep_going else
               f"; stopped there. To go on past failed runs: {command} --keep-going"))
        return FAILED
    return DONE


def main(arguments: Sequence[str]) -> int:
    options = parse_options(arguments)
    return guarded("experiment", lambda: experiment_command(options, command_text("experiment", arguments)))


def guarded(name: str, run: Callable[[], int]) -> int:
    """Runs a command; its errors go to stderr and become the exit code."""
    try:
        return run()
    except Wrong as wrong:
        print(f"slackline {name}: {wrong}" if "\n" not in str(wrong) else str(wrong), file=sys.stderr)
        return WRONG_USE
    except OSError as error:
        print(f"slackline {name}: {error}", file=sys.stderr)
        return FAILED


def command_text(name: str, arguments: Sequence[str], hidden: str = "--slackline") -> str:
    """As the user typed it."""
    words = list(arguments)
    if hidden in words:
        at = words.index(hidden)
        del words[at:at + 2]
    return shlex.join(["slackline", name, *words])
