"""Measures experiments in turns, so that all of them meet the same machine."""

import sys
import time
from typing import Sequence

from suite import programs
from suite.experiments import Experiment, Setting, obstacle_of
from suite.figures import Figures


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measurable(experiments: Sequence[Experiment], setting: Setting, figures: Figures) -> list[Experiment]:
    """Those without an obstacle; the others' are noted."""
    ready = []
    for experiment in experiments:
        obstacle = obstacle_of(experiment, setting.scale)
        if obstacle:
            figures.missing[experiment.name] = obstacle
            say(f"{experiment.name}: {obstacle}")
        else:
            ready.append(experiment)
    return ready


def measure_one(experiment: Experiment, setting: Setting, figures: Figures) -> None:
    begin = time.monotonic()
    outcome = programs.run(experiment.program(setting), experiment.parse)
    if outcome.problem:
        figures.missing[experiment.name] = outcome.problem
        say(f"{experiment.name}: {outcome.problem}")
        return
    for row in outcome.rows:
        figures.add(experiment.name, row)
    say(f"{experiment.name}: {time.monotonic() - begin:.1f} s")


def measure(experiments: Sequence[Experiment], setting: Setting, repeats: int) -> Figures:
    """What fails once is not tried again."""
    return measure_each(experiments, (setting,), repeats)[0]


def measure_each(experiments: Sequence[Experiment], settings: Sequence[Setting], repeats: int) -> list[Figures]:
    """The same in each setting, such as two builds, one right after the other; each repeat begins with another one."""
    figures = [Figures() for _ in settings]
    ready = [measurable(experiments, setting, found) for setting, found in zip(settings, figures)]
    for repeat in range(repeats):
        say(f"repeat {repeat + 1} of {repeats}")
        for experiment in experiments:
            for turn in range(len(settings)):
                at = (repeat + turn) % len(settings)
                wanted = experiment in ready[at] and experiment.name not in figures[at].missing
                if wanted and (experiment.every_repeat or repeat == 0 or len(settings) > 1):
                    measure_one(experiment, settings[at], figures[at])
    return figures
