"""Confusion matrices: labels against predictions, summed over the repeats of a cell."""

from typing import Optional

from matplotlib.axes import Axes

from slackline_experiment.grid import Cell
from slackline_experiment.results import Results
from slackline_experiment.run_folder import Confusion

# Of more, only the colours are shown.
NUMBERED_CLASSES_MAX = 12
NAMED_CLASSES_MAX = 40
# From here on a number is white.
DARK = 0.5


def of_cell(results: Results, cell: Cell) -> Optional[Confusion]:
    """The sum over its runs; None where none has one, or they are of different classes."""
    found = [one.data.confusion for one in results.of(cell) if one.data.confusion is not None]
    if not found or any(one.names != found[0].names for one in found):
        return None
    counts = [[sum(one.counts[label][predicted] for one in found) for predicted in range(len(found[0].names))]
              for label in range(len(found[0].names))]
    return Confusion(found[0].names, counts)


def draw(axes: Axes, confusion: Confusion) -> object:
    """Each row in shares of its label's images; the numbers are images."""
    shares = [[count / max(1.0, sum(row)) for count in row] for row in confusion.counts]
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.grid(False)
    places = range(len(confusion.names))
    if len(confusion.names) <= NAMED_CLASSES_MAX:
        axes.set_xticks(places, confusion.names, rotation=90, fontsize=7)
        axes.set_yticks(places, confusion.names, fontsize=7)
    axes.set_xlabel("prediction")
    axes.set_ylabel("label")
    if len(confusion.names) <= NUMBERED_CLASSES_MAX:
        for label, row in enumerate(confusion.counts):
            for predicted, count in enumerate(row):
                axes.text(predicted, label, f"{count:.0f}", ha="center", va="center", fontsize=6,
                          color="white" if shares[label][predicted] > DARK else "#333333")
    return image
