"""How all plots look: sizes, colours that colour-blind readers tell apart, and legends beside the data."""

import io
from pathlib import Path
from typing import Any, Mapping, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter

# Okabe and Ito, without yellow, which is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", ":", "-.")
PANEL_WIDTH, PANEL_HEIGHT, SINGLE_WIDTH = 4.2, 3.3, 6.8
LEGEND_ROW_HEIGHT, LEGEND_TITLE_HEIGHT = 0.24, 0.35
COLUMNS_MAX = 3
DPI = 160
# Units of settings, by the end of the name.
UNITS = {"_ms": "ms", "_s": "s", "_bytes": "bytes", "_epochs": "epochs", "batch_size": "images",
         "staleness_max": "steps"}

SETTINGS: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.8,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "svg.fonttype": "path",
}


def axis_title(key: str) -> str:
    """The last part of a setting's name, with its unit where there is one."""
    name = key.split(".")[-1]
    unit = next((unit for ending, unit in UNITS.items() if name.endswith(ending)), "")
    readable = name.replace("_", " ")
    for ending in ("ms", "s", "bytes"):
        readable = readable.removesuffix(f" {ending}")
    return f"{readable} ({unit})" if unit and unit != readable else readable


def colours(count: int, ordered: bool) -> list[Any]:
    """`ordered`: for numbers, from dark to light."""
    if ordered and count > 2:
        scale = matplotlib.colormaps["viridis"]
        return [scale(0.85 * index / (count - 1)) for index in range(count)]
    return [COLOURS[index % len(COLOURS)] for index in range(count)]


def new_figure(panels: int, legend_rows: int) -> tuple[Figure, list[Axes]]:
    columns = min(panels, COLUMNS_MAX)
    rows = -(-panels // columns)
    width = SINGLE_WIDTH if panels == 1 else columns * PANEL_WIDTH
    legend = LEGEND_TITLE_HEIGHT + legend_rows * LEGEND_ROW_HEIGHT if legend_rows else 0
    figure = Figure(figsize=(width, rows * PANEL_HEIGHT + 0.4 + legend), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    grid = figure.subplots(rows, columns, squeeze=False)
    axes = list(grid.flat)
    for unused in axes[panels:]:
        unused.set_axis_off()
    return figure, axes[:panels]


def legend_columns(labels: Sequence[str], width: float) -> int:
    """As many as fit side by side; about 13 characters an inch, and the handle."""
    widest = max(len(label) for label in labels) / 13 + 0.6
    return max(1, min(len(labels), int(width / widest)))


def add_legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], title: str, columns: int) -> None:
    if labels:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=title)


def mark_empty(axes: Axes) -> None:
    axes.clear()
    axes.set_axis_off()
    axes.text(0.5, 0.5, "no figures", transform=axes.transAxes, ha="center", va="center", color="#777777")


def as_percent(axes: Axes) -> None:
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if high - low > 0.05 else 1))


def with_thousands(axes: Axes) -> None:
    if axes.get_ylim()[1] >= 10000:
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def whole_numbers(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def save(figure: Figure, folder: Path, name: str) -> str:
    """Writes NAME.png and NAME.svg, and returns the SVG from its root element on."""
    figure.savefig(folder / f"{name}.png", dpi=DPI, facecolor="white", metadata={"Software": None})
    # Ids of parts come from the salt: several plots may stand on one page.
    with matplotlib.rc_context({"svg.hashsalt": name}):
        text = io.StringIO()
        figure.savefig(text, format="svg", facecolor="white",
                       metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    (folder / f"{name}.svg").write_text(text.getvalue(), encoding="utf-8")
    return text.getvalue()[text.getvalue().index("<svg"):]
