"""results.csv, reports.csv, epochs.csv, evaluations.csv, devices.csv, differences.csv and results.md."""

import csv
from pathlib import Path
from statistics import mean
from typing import Any, Callable, Iterable, Optional, Sequence

from slackline_experiment import schema
from slackline_experiment.differences import Difference, differences
from slackline_experiment.grid import Cell
from slackline_experiment.results import Result, Results, Statistic, statistic


def write_all(results: Results, folder: Path) -> None:
    write_csv(folder / "results.csv", header(schema.RESULTS, results),
              (result_row(one, results) for one in results.results))
    write_csv(folder / "reports.csv", header(schema.REPORTS, results), report_rows(results))
    write_csv(folder / "epochs.csv", header(schema.EPOCHS, results), epoch_rows(results))
    write_csv(folder / "evaluations.csv", header(schema.EVALUATIONS, results), evaluation_rows(results))
    write_csv(folder / "devices.csv", header(schema.DEVICES, results), device_rows(results))
    write_csv(folder / "differences.csv", [column.name for column in schema.DIFFERENCES],
              map(difference_row, differences(results)))
    (folder / "results.md").write_text(as_markdown(results), encoding="utf-8")


def header(columns: Sequence[schema.Column], results: Results) -> list[str]:
    """The axes stand after the cell's id."""
    names = [column.name for column in columns]
    return [names[0], *(axis.key for axis in results.axes), *names[1:]]


def write_csv(path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)


def number_text(value: Optional[float]) -> str:
    """Exact: it reads back to the same number."""
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)


def axis_values(cell: Cell, results: Results) -> list[str]:
    return [cell.value(axis.key) for axis in results.axes]


def places_of(cell: Cell, results: Results) -> list[str]:
    """As tables for people show it."""
    values = [value or "as the job" for value in axis_values(cell, results)] or [cell.id]
    return [*values[:-1], f"{values[-1]} ({cell.note})" if cell.note and results.axes else values[-1]]


def result_row(result: Result, results: Results) -> list[str]:
    texts = {"repeat": str(result.repeat), "seed": str(result.seed), "state": result.state, "reason": result.reason,
             "run_mode": result.data.mode, "fold": "" if result.fold is None else str(result.fold)}
    values = [texts[column.name] if column.name in texts else number_text(result.figures.get(column.name))
              for column in schema.RESULTS[1:]]
    return [result.cell.id, *axis_values(result.cell, results), *values]


def report_rows(results: Results) -> Iterable[list[str]]:
    for one in results.results:
        if one.counts:
            for report in one.data.reports:
                yield [one.cell.id, *axis_values(one.cell, results), str(one.repeat),
                       *(number_text(report[column.name]) for column in schema.METRICS)]


def epoch_rows(results: Results) -> Iterable[list[str]]:
    for one in results.results:
        if one.counts:
            for epoch in one.data.epochs:
                yield [one.cell.id, *axis_values(one.cell, results), str(one.repeat),
                       *(number_text(epoch[column.name]) for column in schema.EPOCH_FIGURES)]


def evaluation_rows(results: Results) -> Iterable[list[str]]:
    for one in results.results:
        if one.counts:
            for evaluation in one.data.evaluations:
                yield [one.cell.id, *axis_values(one.cell, results), str(one.repeat),
                       *map(number_text, (evaluation.time_s, evaluation.samples, evaluation.samples_applied,
                                          evaluation.epochs, evaluation.accuracy, evaluation.own))]


def device_rows(results: Results) -> Iterable[list[str]]:
    for one in results.results:
        if one.counts:
            for device in one.data.devices:
                yield [one.cell.id, *axis_values(one.cell, results), str(one.repeat), device.node, device.device,
                       *(number_text(device.figures[column.name]) for column in schema.DEVICES[4:])]


# Columns of devices.csv as people read them, and how the repeats become one figure.
POWER_SHOWN: tuple[tuple[str, str, Callable[[Sequence[float]], float]], ...] = (
    ("mean_watts", "mean (W)", mean), ("min_watts", "smallest (W)", min), ("max_watts", "largest (W)", max),
    ("idle_watts", "idle (W)", mean), ("joules", "energy (J)", mean))
POWER_NOTE = ("Of each device the means over the repeats, and the smallest and largest sample of all of them. Each sample is a row of "
              "power.csv of the run.")


def power_header(results: Results) -> list[str]:
    return [*([axis.key for axis in results.axes] or ["cell"]), "device", *(label for _, label, _ in POWER_SHOWN)]


def power_rows(results: Results) -> list[list[str]]:
    """A row for each metered device of each cell."""
    rows = []
    for cell in results.experiment.cells:
        found = [device for one in results.of(cell) for device in one.data.devices]
        for name in dict.fromkeys(device.name for device in found):
            texts = []
            for figure, _, together in POWER_SHOWN:
                values = [value for device in found if device.name == name and (value := device.figures[figure]) is not None]
                texts.append(f"{together(values):,.1f}" if values else "")
            rows.append([*places_of(cell, results), name, *texts])
    return rows


def difference_row(one: Difference) -> list[str]:
    ends = ["", ""] if one.half_width is None else [number_text(one.mean - one.half_width),
                                                    number_text(one.mean + one.half_width)]
    return [one.cell.id, one.against.id, one.figure, number_text(one.mean), *ends, str(one.n), one.verdict]


def difference_header() -> list[str]:
    return ["cell", "against", "figure", "difference", "95 % interval", "n", "verdict"]


def difference_rows(results: Results) -> list[list[str]]:
    """For people: shares in points, and the figure by its label."""
    rows = []
    for one in differences(results):
        column = schema.figure(one.figure)
        share = schema.is_share(one.figure)
        scale, unit = (100, "points") if share else (1, column.unit if column else "")
        numbers = [one.mean] if one.half_width is None else [one.mean, one.mean - one.half_width, one.mean + one.half_width]
        decimals = 2 if share or max(map(abs, numbers)) < 100 else 1
        middle, *ends = [f"{scale * number:+,.{decimals}f}" for number in numbers]
        label = results.named(column.label) if column else one.figure
        rows.append([", ".join(places_of(one.cell, results)), ", ".join(places_of(one.against, results)),
                     f"{label} ({unit})" if unit else label, middle, " to ".join(ends),
                     f"{one.n} of {results.experiment.repeats}", one.verdict])
    return rows


DIFFERENCES_NOTE = ("Mean of cell less against over the repeats, which have the same seeds, and the 95 % interval of that mean "
                    "(Student's t). None seen: the interval holds 0. No spread: all repeats differ by the same amount. A time to target counts only repeats in which both "
                    "reached it.")


def metered_text(results: Results) -> str:
    """Of how many runs the energy is known."""
    done = [one for one in results.results if one.counts]
    metered = sum("joules" in one.figures for one in done)
    return f"Energy: metered in {metered} of {len(done)} runs." if metered else "Energy: not metered."


def baseline_text(results: Results) -> str:
    """What speed-up, efficiency and EDP are over."""
    points = ", ".join(f"{key} {point.name}" for key, point in results.experiment.baseline.items())
    return f"Speed-up, efficiency and energy x time over the baseline's: measured by {points}."


def figure_text(name: str, value: Statistic) -> str:
    """Mean, and the deviation with the same number of decimals."""
    if schema.is_share(name):
        deviation = "" if value.deviation is None else f" ± {100 * value.deviation:.2f}"
        return f"{100 * value.mean:.2f}{deviation} %"
    decimals = 0 if abs(value.mean) >= 1000 else 1 if abs(value.mean) >= 100 else 2
    deviation = "" if value.deviation is None else f" ± {value.deviation:,.{decimals}f}"
    return f"{value.mean:,.{decimals}f}{deviation}"


def shown_figures(results: Results) -> list[schema.Column]:
    columns = [schema.figure(name) for name in schema.SHOWN if results.has(name)]
    died = any(one.figures.get("deaths") for one in results.results)
    return [column for column in columns if column is not None and (died or column.name != "deaths")]


def summary_header(results: Results) -> list[str]:
    names = [axis.key for axis in results.axes] or ["cell"]
    return [*names, *(results.named(column.axis_label()) for column in shown_figures(results)), "n"]


def summary_rows(results: Results) -> list[list[str]]:
    """A row a cell: mean and standard deviation of each figure, and the number of runs."""
    rows = []
    for cell in results.experiment.cells:
        values = [results.statistic(cell, column.name) for column in shown_figures(results)]
        texts = ["" if value is None else _with_count(figure_text(column.name, value), value.n, len(results.of(cell)))
                 for column, value in zip(shown_figures(results), values)]
        rows.append([*places_of(cell, results), *texts, f"{len(results.of(cell))} of {results.experiment.repeats}"])
    return rows


def _with_count(text: str, n: int, done: int) -> str:
    """Some runs may not have a figure, as the time to a target that they never reach."""
    return text if n == done else f"{text} ({n} of {done})"


def fold_header(results: Results) -> list[str]:
    names = [axis.key for axis in results.axes] or ["cell"]
    return [*names, "fold", *(results.named(column.axis_label()) for column in _fold_figures(results)), "n"]


def _fold_figures(results: Results) -> list[schema.Column]:
    columns = [schema.figure(name) for name in schema.FOLD_SHOWN if results.has(name)]
    return [column for column in columns if column is not None]


def fold_rows(results: Results) -> list[list[str]]:
    """Of each cell a row a fold, the mean of its runs, and one of all: mean and deviation over all runs."""
    rows = []
    folds = len(results.experiment.folds)
    for cell in results.experiment.cells:
        runs = results.of(cell)
        for name, chosen in [*((str(fold), [one for one in runs if one.fold == fold]) for fold in range(1, folds + 1)),
                             ("all", runs)]:
            values = [statistic([one.figures[column.name] for one in chosen if column.name in one.figures])
                      for column in _fold_figures(results)]
            texts = ["" if value is None else figure_text(column.name, value)
                     for column, value in zip(_fold_figures(results), values)]
            rows.append([*places_of(cell, results), name, *texts, str(len(chosen))])
    return rows


def as_markdown(results: Results) -> str:
    experiment = results.experiment
    lines = [f"# {experiment.name}", ""]
    if experiment.about:
        lines += [experiment.about, ""]
    rows = [summary_header(results), *summary_rows(results)]
    lines += [_markdown_row(rows[0]), "|" + "---|" * len(rows[0]), *map(_markdown_row, rows[1:]), "",
              "Mean ± standard deviation of the sample; n counts the runs.",
              metered_text(results)]
    if experiment.baseline:
        lines.append(baseline_text(results))
    rows = [difference_header(), *difference_rows(results)]
    if len(rows) > 1:
        lines += ["", "## Differences", "", _markdown_row(rows[0]), "|" + "---|" * len(rows[0])]
        lines += [*map(_markdown_row, rows[1:]), "", DIFFERENCES_NOTE]
    rows = [power_header(results), *power_rows(results)]
    if len(rows) > 1:
        lines += ["", "## Power", "", _markdown_row(rows[0]), "|" + "---|" * len(rows[0])]
        lines += [*map(_markdown_row, rows[1:]), "", POWER_NOTE]
    if experiment.folds:
        rows = [fold_header(results), *fold_rows(results)]
        lines += ["", "## Folds", "", _markdown_row(rows[0]), "|" + "---|" * len(rows[0])]
        lines += map(_markdown_row, rows[1:])
    if results.failed():
        lines += ["", "## Failed", ""]
        lines += [
            f"* `{one.cell.id}`, repeat {one.repeat}: {one.reason} (log: `{one.log}`)" for one in results.failed()]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
