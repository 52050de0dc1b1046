"""Plots of what was measured: bars beside each other, as SVG without any library."""

from pathlib import Path
from typing import Mapping, Sequence
from xml.sax.saxutils import escape

from suite.figures import Figures

NAMESPACE = "http://www.w3.org/2000/svg"
LABEL_WIDTH, BAR_WIDTH, VALUE_WIDTH, ROW_HEIGHT, HEAD_HEIGHT = 260, 440, 80, 22, 44
OURS, OTHERS = "#4477aa", "#bbbbbb"

# Label and figure of what stands above the exchanges.
CEILINGS = (
    ("raw TCP stream", "sockets/tcp stream/gb_per_s"),
    ("raw Unix stream", "sockets/unix stream/gb_per_s"),
    ("bare gRPC, TCP", "grpc/tcp stream depth 1/gb_per_s"),
    ("bare gRPC, Unix", "grpc/unix stream depth 1/gb_per_s"),
)
# The exchanges that do what the peers do.
FOR_PEERS = ("tcp", "tcp-2-workers", "unix", "shm", "shm-2-workers")


def draw_row(index: int, label: str, value: float, longest: float, colour: str) -> str:
    top = HEAD_HEIGHT + index * ROW_HEIGHT
    width = BAR_WIDTH * value / longest
    return (f'<text x="{LABEL_WIDTH - 8}" y="{top + 15}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="{LABEL_WIDTH}" y="{top + 3}" width="{width:.1f}" height="{ROW_HEIGHT - 6}" fill="{colour}"/>'
            f'<text x="{LABEL_WIDTH + width + 6:.1f}" y="{top + 15}">{value:.3g}</text>')


def bar_plot(title: str, others: Mapping[str, float], ours: Mapping[str, float]) -> str:
    """Ours are drawn in colour, below the others."""
    rows = [(*one, OTHERS) for one in others.items()] + [(*one, OURS) for one in ours.items()]
    longest = max(value for _, value, _ in rows) or 1.0
    width, height = LABEL_WIDTH + BAR_WIDTH + VALUE_WIDTH, HEAD_HEIGHT + len(rows) * ROW_HEIGHT + 10
    drawn = [draw_row(index, label, value, longest, colour) for index, (label, value, colour) in enumerate(rows)]
    return "\n".join([
        f'<svg xmlns="{NAMESPACE}" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LABEL_WIDTH}" y="26" font-size="15">{escape(title)}</text>', *drawn, "</svg>", ""])


def medians(figures: Figures, endings: Sequence[str], prefix: str = "") -> dict[str, float]:
    """Of all figures that end so, by experiment."""
    return {name.split("/")[0]: figures.median(name) or 0.0 for name in figures.names()
            if name.startswith(prefix) and name.endswith(tuple(endings))}


def draw(figures: Figures, folder: Path) -> list[str]:
    """Writes the plots for which there are figures, and returns their names."""
    plots = {}
    ceilings = {label: figures.median(name) or 0.0 for label, name in CEILINGS if figures.median(name) is not None}
    exchanges = medians(figures, ["/exchange/gb_per_s"])
    if exchanges:
        plots["exchange.svg"] = bar_plot("The exchange beside its ceilings, GB/s", ceilings, exchanges)
    peers = medians(figures, ["/rounds_per_s", "/steps_per_s"], prefix="peer-")
    rates = medians(figures, ["/exchange/rounds_per_s"])
    ours = {name: rates[name] for name in FOR_PEERS if name in rates}
    if peers and ours:
        plots["peers.svg"] = bar_plot("Exchanges of the same model, rounds/s over all workers", peers, ours)
    for name, text in plots.items():
        (folder / name).write_text(text)
    return list(plots)
