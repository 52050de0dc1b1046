"""What was measured in one run: every value of every repeat, and the bars' verdicts over it."""

import statistics
from dataclasses import dataclass, field
from typing import Iterable, Optional

from bars import Bar


@dataclass
class Figures:
    """Values by EXPERIMENT/WHAT/VALUE, one a repeat."""

    values: dict[str, list[float]] = field(default_factory=dict)
    # Why an experiment has no figures.
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, experiment: str, row: dict) -> None:
        for name, value in row.items():
            if name != "what" and value is not None:
                self.values.setdefault(f"{experiment}/{row['what']}/{name}", []).append(float(value))

    def median(self, figure: str) -> Optional[float]:
        values = self.values.get(figure)
        return statistics.median(values) if values else None

    def names(self) -> Iterable[str]:
        return self.values.keys()


@dataclass(frozen=True)
class Verdict:
    bar: Bar
    figure: Optional[float]
    against: Optional[float]
    against_name: str
    ratio: Optional[float]
    # met, missed, or why it cannot be told.
    said: str


def judge(bar: Bar, figures: Figures) -> Verdict:
    figure = figures.median(bar.figure)
    against, against_name = strongest(bar, figures)
    if figure is None or (bar.against and against is None):
        absent = bar.figure if figure is None else bar.against
        experiment = absent.split("/")[0]
        return Verdict(bar, figure, against, against_name, None, figures.missing.get(experiment, "not measured"))
    ratio = ratio_of(bar, figures, against_name) if bar.against else figure
    met = ratio >= bar.limit if bar.wanted == "at least" else ratio <= bar.limit
    return Verdict(bar, figure, against, against_name, ratio, "met" if met else "missed")


def strongest(bar: Bar, figures: Figures) -> tuple[Optional[float], str]:
    """The opponent that is hardest to beat, of those that were measured."""
    names = [name for name in (bar.against, *bar.or_against) if name and figures.median(name) is not None]
    if not names:
        return None, bar.against or ""
    name = max(names, key=lambda one: figures.median(one) or 0)
    return bar.factor * (figures.median(name) or 0), name


def ratio_of(bar: Bar, figures: Figures, against_name: str) -> float:
    """The median of the ratios of each repeat where both have as many, so that both met the same machine."""
    ours, theirs = figures.values[bar.figure], figures.values[against_name]
    if len(ours) != len(theirs):
        ours, theirs = [statistics.median(ours)], [statistics.median(theirs)]
    return statistics.median(one / (bar.factor * other) for one, other in zip(ours, theirs))
