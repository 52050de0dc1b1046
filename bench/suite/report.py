"""Tables of what was measured, as text and as Markdown."""

import math
from typing import Optional, Sequence

from bars import BARS
from suite.figures import Figures, Verdict, judge
from suite.machine import Machine

RESULTS_HEAD = """# Results

Written by `bench/run`; [README.md](README.md) says what each program measures. Absolute figures move from machine to
machine and from minute to minute: read the ratios, each of which is from one run.
"""


def number(value: Optional[float]) -> str:
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) < 1 else f"{value:.3g}"


def verdicts(figures: Figures) -> list[Verdict]:
    return [judge(bar, figures) for bar in BARS]


def bar_rows(figures: Figures) -> list[list[str]]:
    rows = [["measure", "figure", "against", "ratio", "bar", ""]]
    for verdict in verdicts(figures):
        against = f"{number(verdict.against)} ({verdict.against_name.split('/')[0]})" if verdict.against else ""
        rows.append([verdict.bar.measure, number(verdict.figure), against,
                     number(verdict.ratio) if verdict.bar.against else "",
                     f"{verdict.bar.wanted} {number(verdict.bar.limit)}", verdict.said])
    return rows


def figure_rows(figures: Figures) -> list[list[str]]:
    rows = [["experiment", "what", "value", "median", "least", "most"]]
    for name, values in figures.values.items():
        experiment, what, value = split_name(name)
        rows.append([experiment, what, value, number(figures.median(name)), number(min(values)), number(max(values))])
    rows += [[experiment, "", why, "", "", ""] for experiment, why in sorted(figures.missing.items())]
    return rows


def comparison_rows(figures: Figures, other: Figures) -> list[list[str]]:
    """Medians of both, their ratio, and the ratios of each repeat's pair, from least to most."""
    rows = [["experiment", "what", "value", "this build", "other build", "ratio", "least", "most"]]
    for name, values in figures.values.items():
        others = other.values.get(name, [])
        pairs = [one / against for one, against in zip(values, others) if against]
        if not pairs:
            continue
        this, against = figures.median(name), other.median(name)
        rows.append([*split_name(name), number(this), number(against), f"{this / (against or math.nan):.3f}",
                     f"{min(pairs):.3f}", f"{max(pairs):.3f}"])
    rows += [[experiment, "", why, "", "", "", "", ""]
             for experiment, why in sorted({**other.missing, **figures.missing}.items())]
    return rows


def split_name(figure: str) -> tuple[str, str, str]:
    experiment, rest = figure.split("/", 1)
    what, value = rest.rsplit("/", 1)
    return experiment, what, value


def as_text(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def as_results(figures: Figures, machine: Machine, commands: Sequence[str], plots: Sequence[str]) -> str:
    parts = [RESULTS_HEAD]
    parts.append(f"{machine.processor}, {machine.cores} cores, {machine.memory_gb} GB, Linux {machine.kernel}; commit "
                 f"{machine.commit}; {machine.date}.\n")
    parts.append("## The bars\n\n" + as_markdown(bar_rows(figures)) + "\n")
    parts += [f"![{plot}]({plot})\n" for plot in plots]
    parts.append("## Everything\n\n" + as_markdown(figure_rows(figures)) + "\n")
    parts.append("## Commands\n\n```sh\n" + "\n".join(commands) + "\n```\n")
    return "\n".join(parts)
