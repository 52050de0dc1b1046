"""Progress lines, and how long the rest will take."""

from statistics import mean
from typing import Callable, Optional, Sequence

from slackline_experiment.grid import Cell
from slackline_experiment.store import Run


def cell_name(cell: Cell) -> str:
    """As in "staleness_max 4, stragglers one 12x"."""
    parts = [f"{key.split('.')[-1]} {point.name}" for key, point in cell.points.items()]
    return ", ".join([*parts, cell.note] if cell.note else parts) or cell.id


def duration_text(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def time_left_s(left: Sequence[Run], finished: Sequence[tuple[Run, float]], jobs: int) -> Optional[float]:
    """From the finished runs of the same cell, else of all cells; None before the first has finished."""
    if not finished:
        return None
    overall = mean(seconds for _, seconds in finished)
    of_cell: dict[str, list[float]] = {}
    for run, seconds in finished:
        of_cell.setdefault(run.cell.cell.id, []).append(seconds)
    return sum(mean(of_cell.get(run.cell.cell.id, [overall])) for run in left) / jobs


class Progress:
    def __init__(self, total: int, jobs: int, cool_down_s: float, say: Callable[[str], None]):
        self._total = total
        self._jobs = jobs
        self._cool_down_s = cool_down_s
        self._say = say
        self.finished: list[tuple[Run, float]] = []

    def started(self, number: int, run: Run, left: Sequence[Run]) -> None:
        """`left`: what is still to come, with the runs that run."""
        seconds = time_left_s(left, self.finished, self._jobs)
        if seconds is not None:
            seconds += self._cool_down_s * max(0, len(left) - 1)
        estimate = "" if seconds is None else f"; about {duration_text(seconds)} left"
        self._say(f"[{number}/{self._total}] {cell_name(run.cell.cell)}, repeat {run.repeat}{estimate}")

    def ended(self, run: Run, wall_s: float, what: str) -> None:
        self._say(f"    {run.id}: {what}; ran for {duration_text(wall_s)}")
