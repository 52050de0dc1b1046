"""Paired differences: how much more a cell has of a figure than another one, seed by seed, and the 95 % interval of the mean.

Two cells meet the same seeds, so their difference varies less than either of them: an interval that leaves out 0 is a
difference, one that holds 0 is none that so few repeats could show.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Iterable, Optional

from slackline_experiment.grid import Cell
from slackline_experiment.results import Results, statistic

FIGURES = ("metric", "test_accuracy", "time_to_target_s", "time_s", "samples_per_second")
# Student's t, two-sided, for 1 to 30 degrees of freedom.
_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
         2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)
_NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Difference:
    cell: Cell
    against: Cell
    figure: str
    mean: float
    # Half the width of the interval; None for a single pair, and where all pairs differ by the same amount.
    half_width: Optional[float]
    # Repeats that have the figure in both cells.
    n: int

    @property
    def verdict(self) -> str:
        if self.half_width is None:
            return "one pair" if self.n == 1 else "no spread"
        if abs(self.mean) <= self.half_width:
            return "none seen"
        return "more" if self.mean > 0 else "less"


def t_95(degrees: int) -> float:
    """Above the table by the first terms of its expansion around the normal distribution."""
    if degrees <= len(_T_95):
        return _T_95[degrees - 1]
    z = _NORMAL_95
    return z + (z ** 3 + z) / (4 * degrees) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * degrees ** 2)


def difference(results: Results, cell: Cell, against: Cell, figure: str) -> Optional[Difference]:
    """None where no repeat has the figure in both cells."""
    theirs = {one.repeat: one.figures[figure] for one in results.of(against) if figure in one.figures}
    pairs = [one.figures[figure] - theirs[one.repeat] for one in results.of(cell)
             if figure in one.figures and one.repeat in theirs]
    summary = statistic(pairs)
    if summary is None:
        return None
    # Figures that do not depend on the seed differ by the same amount in each repeat, up to rounding.
    spread = summary.deviation is not None and summary.deviation > 1e-9 * max(map(abs, theirs.values()))
    half = t_95(summary.n - 1) * summary.deviation / sqrt(summary.n) if spread and summary.deviation is not None else None
    return Difference(cell, against, figure, summary.mean, half, summary.n)


def differences(results: Results) -> Iterable[Difference]:
    for cell, against in results.experiment.comparisons:
        for figure in FIGURES:
            one = difference(results, cell, against, figure)
            if one is not None:
                yield one
