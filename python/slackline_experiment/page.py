"""index.html: one page with everything in it, that needs nothing else to be read."""

import re
import subprocess
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Optional, Sequence

from slackline_experiment import tables
from slackline_experiment.document import as_text
from slackline_experiment.plots.draw import Drawing, Plot
from slackline_experiment.results import Result, Results, Statistic, statistic
from slackline_experiment.run_folder import ClassFigures

VERSION_TIMEOUT_S = 20
# Wider plots have more than one panel.
SINGLE_WIDTH_PT_MAX = 520
# The tables by class have all of so many; of more, the best and the worst.
_CLASSES_MAX = 50
_CLASSES_AT_EITHER_END = 20


@dataclass(frozen=True)
class Origin:
    """Where the page comes from: the command as typed, and a line for each program's version."""

    command: str
    versions: Sequence[str]


def versions(slackline: Path) -> list[str]:
    """Of the command and, where it lies beside it, the worker, which knows LibTorch."""
    lines = []
    for program in (slackline, slackline.parent / "slackline-worker"):
        try:
            done = subprocess.run([str(program), "--version"], capture_output=True, text=True,
                                  timeout=VERSION_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0 and done.stdout.strip():
            lines.append(done.stdout.strip().splitlines()[0])
    return lines


def write(results: Results, drawing: Drawing, path: Path, origin: Origin) -> None:
    style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    name = escape(results.experiment.name)
    sections = [("results", "Results", _results(results)), ("differences", "Differences", _differences(results)),
                ("power", "Power", _power(results)), ("folds", "Folds", _folds(results)),
                ("plots", "Plots", _plots(drawing)),
                ("failed", "Not done", _not_done(results)), ("classes", "Per class", _classes(results)),
                ("grid", "Grid", _grid(results)), ("origin", "How it was made", _origin(results, origin))]
    kept = [one for one in sections if one[2]]
    links = "".join(f'<a href="#{key}">{title}</a>' for key, title, _ in kept)
    body = "\n".join(f'<section id="{key}">\n<h2>{title}</h2>\n{text}\n</section>' for key, title, text in kept)
    about = f'<p class="about">{escape(results.experiment.about)}</p>' if results.experiment.about else ""
    path.write_text(
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{name}</title>\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>{name}</h1>\n{about}\n{_facts(results)}\n"
        f"<nav>{links}</nav>\n{body}\n</main>\n</body>\n</html>\n", encoding="utf-8")


_FIGURE = ' class="figure"'


def table(header: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    """The first `texts` columns are text, the others figures."""
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f'<{tag}{"" if index < texts else _FIGURE}>{escape(cell)}</{tag}>'
                                for index, cell in enumerate(cells)) + "</tr>"
    body = "\n".join(row(cells, "td") for cells in rows)
    head = row(header, "th")
    return f'<div class="scroll"><table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _facts(results: Results) -> str:
    experiment = results.experiment
    done = sum(one.state == "done" for one in results.results)
    kinds = {"train": "real", "simulate": "simulated", "plain": "plain"}
    kind = " and ".join(kinds[run] for run in sorted(experiment.runs, reverse=True))
    facts = [("cells", str(len(experiment.cells))), ("repeats", str(experiment.repeats)),
             (f"{kind} runs done", f"{done} of {len(results.results)}")]
    if results.failed():
        facts.append(("failed", str(len(results.failed()))))
    if experiment.target_accuracy is not None:
        facts.append((results.named("target accuracy"), f"{experiment.target_accuracy:.1%}"))
    best = max(((value.mean, cell) for cell in experiment.cells
                if (value := results.statistic(cell, "test_accuracy"))), key=lambda one: one[0], default=None)
    if best:
        facts.append((results.named("best mean test accuracy"), f"{best[0]:.2%}"))
    return '<dl class="facts">' + "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
                                          for name, value in facts) + "</dl>"


def _results(results: Results) -> str:
    texts = max(1, len(results.axes))
    baseline = f" {tables.baseline_text(results)}" if results.experiment.baseline else ""
    return ('<div class="card">' + table(tables.summary_header(results), tables.summary_rows(results), texts) + "</div>"
            '<p class="note">Mean ± standard deviation of the sample; n counts the runs. Every '
            f"run is a row of results.csv, every report of a run one of reports.csv.{escape(baseline)}</p>")


def _differences(results: Results) -> str:
    rows = tables.difference_rows(results)
    if not rows:
        return ""
    return (f'<div class="card">{table(tables.difference_header(), rows, 3)}</div>'
            f'<p class="note">{escape(tables.DIFFERENCES_NOTE)} Also in differences.csv.</p>')


def _power(results: Results) -> str:
    rows = tables.power_rows(results)
    if not rows:
        return ""
    return (f'<div class="card">{table(tables.power_header(results), rows, len(results.axes or (None,)) + 1)}</div>'
            f'<p class="note">{escape(tables.POWER_NOTE)}</p>')


def _plots(drawing: Drawing) -> str:
    cards = "\n".join(_plot(plot) for plot in drawing.plots)
    notes = [
        f'<p class="note">Not drawn: {escape(title)} ({escape(reason)}).</p>' for title, reason in drawing.left_out]
    return "\n".join([f'<div class="plots">\n{cards}\n</div>' if cards else "", *notes])


def _plot(plot: Plot) -> str:
    # Its size in points would win over the page's.
    svg = re.sub(r'<svg ([^>]*?)>', lambda found: "<svg " + re.sub(r'\s?\b(width|height)="[^"]*"', "", found.group(1))
                 + f' role="img" aria-label="{escape(plot.title)}">', plot.svg, count=1)
    width = re.search(r'viewBox="0 0 ([\d.]+)', svg)
    wide = " wide" if width and float(width.group(1)) > SINGLE_WIDTH_PT_MAX else ""
    return (f'<div class="card{wide}"><h3>{escape(plot.title)}</h3><figure>{svg}'
            f"<figcaption>{escape(plot.caption)}</figcaption></figure></div>")


def _not_done(results: Results) -> str:
    rows = [[one.cell.id, str(one.repeat), one.state, one.reason, one.log]
            for one in results.results if one.state != "done"]
    if not rows:
        return ""
    return '<div class="card failed">' + table(["cell", "repeat", "state", "reason", "log"], rows, 5) + "</div>"


def _folds(results: Results) -> str:
    if not results.experiment.folds:
        return ""
    header = tables.fold_header(results)
    names = len(results.axes) or 1
    return f'<div class="card">{table(header, tables.fold_rows(results), names + 1)}</div>'


def _classes(results: Results) -> str:
    """F1, recall and precision of each class; the last two folded away. Of very many classes, the best and the worst."""
    by_cell = [(cell, by_class) for cell in results.experiment.cells if (by_class := _by_class(results.of(cell)))]
    everything = _by_class([one for cell, _ in by_cell for one in results.of(cell)])
    names = list(everything)
    if not names:
        return ""
    note = ""
    if len(names) > _CLASSES_MAX:
        ranked = sorted((mean.mean, name) for name in names if (mean := _mean(everything[name], "f1")) is not None)
        kept = [name for _, name in reversed(ranked)]
        kept = kept[:_CLASSES_AT_EITHER_END] + kept[_CLASSES_AT_EITHER_END:][-_CLASSES_AT_EITHER_END:]
        note = (f"<p>Those of the best and the worst F1 over all runs: {len(kept)} of {len(names)} classes. "
                "Each run's report.json has all.</p>")
        names = kept
    measures = ("precision", "recall", "f1")
    cards = []
    for measure in measures:
        rows = []
        for cell, by_class in by_cell:
            means = [_percent(_mean(by_class.get(name, []), measure), results) for name in names]
            rows.append([*tables.places_of(cell, results), *means])
        header = [*([axis.key for axis in results.axes] or ["cell"]), *names]
        opened = " open" if measure == "f1" else ""
        title = "F1" if measure == "f1" else measure.capitalize()
        cards.append(f'<details class="card"{opened}><summary>{title}, mean over the repeats, %</summary>'
                     + table(header, rows, len(header) - len(names)) + "</details>")
    return "\n".join([note, *reversed(cards)])


def _by_class(runs: Sequence[Result]) -> dict[str, list[ClassFigures]]:
    """Figures of each class, in the order in which the runs name them."""
    found: dict[str, list[ClassFigures]] = {}
    for one in runs:
        for kind in one.data.classes:
            found.setdefault(kind.name, []).append(kind)
    return found


def _mean(figures: Sequence[ClassFigures], measure: str) -> Optional[Statistic]:
    values = (getattr(one, measure) for one in figures)
    return statistic([value for value in values if value is not None])


def _percent(value: Optional[Statistic], results: Results) -> str:
    """With the deviation over the folds, where there are any."""
    if value is None:
        return ""
    spread = f" ± {100 * value.deviation:.1f}" if results.experiment.folds and value.deviation is not None else ""
    return f"{100 * value.mean:.1f}{spread}"


def _grid(results: Results) -> str:
    rows = []
    for axis in results.axes:
        for index, point in enumerate(axis.points):
            sets = ", ".join(f"{key}={as_text(value)}" for key, value in point.sets.items()) or "the job as it is"
            rows.append([axis.key if index == 0 else "", point.name, sets])
    rows += [["in every cell", "", f"{key}={as_text(value)}"] for key, value in results.experiment.fixed.items()]
    rows += [["included", ", ".join(tables.places_of(cell, results)), cell.note]
             for cell in results.experiment.cells if cell.note]
    if not rows:
        return ""
    return '<div class="card">' + table(["axis", "point", "sets"], rows, 3) + "</div>"


def _origin(results: Results, origin: Origin) -> str:
    lines = [f"$ {origin.command}", *origin.versions]
    try:
        source = results.experiment.file.read_text(encoding="utf-8")
    except OSError:
        source = ""
    made = f'<div class="card"><pre>{escape(chr(10).join(lines))}</pre></div>'
    if not source:
        return made
    return (f'{made}<details class="card"><summary>{escape(results.experiment.file.name)}</summary>'
            f"<pre>{escape(source)}</pre></details>")
