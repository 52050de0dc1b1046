"""What a run left behind: summary.json, report.json, confusion.csv, metrics.csv, epochs.csv and power.csv of its folder.

A field that is missing is not known, and stays empty; one of a wrong type is an error that names the file.
"""

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

from slackline_experiment import schema

WORKER_SUMS = ("pushes_applied", "pushes_discarded", "pushes_lost", "pushed_bytes", "pulled_bytes")
SUMMARY_NUMBERS = ("workers", "servers", "time_s", "samples", "steps", "samples_per_second", "epochs", "loss",
                   "test_accuracy", "test_loss", "best_test_accuracy", "slack_max", "deaths", "samples_given_twice",
                   "samples_applied")
REPORT_NUMBERS = {"accuracy": "test_accuracy", "loss": "test_loss", "precision_macro": "precision_macro",
                  "recall_macro": "recall_macro", "f1_macro": "f1_macro", "top5_accuracy": "top5_accuracy",
                  "f1_weighted": "f1_weighted"}
# Fields of the summary's energy, which is null where nothing was metered.
ENERGY_NUMBERS = {"joules": "joules", "training": "joules_training", "validation": "joules_validation",
                  "test": "joules_test", "edp": "edp",
                  "above_idle": "joules_above_idle"}
# Sums of these columns of epochs.csv.
EPOCH_SUMS = ("train_s", "validation_s", "test_s")


class BadRunFolder(Exception):
    """Names the file, the field, what was found and what is allowed."""


@dataclass(frozen=True)
class Evaluation:
    epoch: float
    time_s: float
    samples: Optional[float]
    # None if the evaluation measured none.
    accuracy: Optional[float]
    # None of a run of an earlier version.
    samples_applied: Optional[float] = None
    # Samples applied over those of an epoch.
    epochs: Optional[float] = None
    # The job's metric, if it is not the accuracy.
    own: Optional[float] = None


@dataclass(frozen=True)
class DevicePower:
    """Power of a metered device; None for what is not known."""

    node: str
    device: str
    # By the columns of devices.csv.
    figures: Mapping[str, Optional[float]]

    @property
    def name(self) -> str:
        return f"{self.node} {self.device}".strip()


@dataclass(frozen=True)
class ClassFigures:
    name: str
    precision: Optional[float]
    recall: Optional[float]
    f1: Optional[float]


@dataclass(frozen=True)
class Confusion:
    names: list[str]
    # Images by label and prediction.
    counts: list[list[float]]


@dataclass
class RunData:
    state: str = ""
    reason: str = ""
    mode: str = ""
    # What evaluations measured, as people read it.
    metric: str = "accuracy"
    # Name of the job's metric (training.metric), if it is not the accuracy; curves are drawn of it then.
    own_metric: Optional[str] = None
    # By the names of the columns of results.csv.
    figures: dict[str, float] = field(default_factory=dict)
    # (staleness, answers)
    histogram: list[tuple[int, float]] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    classes: list[ClassFigures] = field(default_factory=list)
    confusion: Optional[Confusion] = None
    # By the columns of epochs.csv; empty texts are None.
    epochs: list[dict[str, Optional[float]]] = field(default_factory=list)
    # The same of metrics.csv.
    reports: list[dict[str, Optional[float]]] = field(default_factory=list)
    devices: list[DevicePower] = field(default_factory=list)
    # power.csv, which may be large; None if there is none.
    power: Optional[Path] = None

    def accuracies(self, place: Callable[[Evaluation], float]) -> list[tuple[float, float]]:
        """The place of each evaluation that has one, and its accuracy or the job's own metric."""
        found = [(place(one), one.own if self.own_metric else one.accuracy) for one in self.evaluations]
        return [(at, value) for at, value in found if value is not None]

    def losses(self) -> list[tuple[float, float]]:
        """Seconds, and the training loss, of each report that has one."""
        return [(time_s, loss) for row in self.reports
                if (time_s := row["time_s"]) is not None and (loss := row["loss"]) is not None]


class _Object:
    """A JSON object that is read strictly; `where` names it in errors."""

    def __init__(self, where: str, value: Any):
        if not isinstance(value, dict):
            raise BadRunFolder(f"{where}: found {_brief(value)}; allowed is an object")
        self._where = where
        self._value: Mapping[str, Any] = value

    def number(self, key: str) -> Optional[float]:
        value = self._value.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(key, value, "a number")
        return value

    def is_true(self, key: str) -> bool:
        value = self._value.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return bool(value)

    def needed(self, key: str) -> float:
        value = self.number(key)
        if value is None:
            raise BadRunFolder(f"{self._where}: found no {key}")
        return value

    def text(self, key: str) -> str:
        value = self._value.get(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong(key, value, "text")
        return value or ""

    def items(self, key: str) -> Sequence[Any]:
        value = self._value.get(key)
        if value is not None and not isinstance(value, list):
            raise self._wrong(key, value, "a list")
        return value or []

    def objects(self, key: str) -> list["_Object"]:
        return [_Object(f"{self._where}: {key}[{index}]", one) for index, one in enumerate(self.items(key))]

    def below(self, key: str) -> "_Object":
        value = self._value.get(key)
        return _Object(f"{self._where}: {key}", {} if value is None else value)

    def pairs(self, key: str) -> list[tuple[int, float]]:
        for one in self.items(key):
            if not (isinstance(one, list) and len(one) == 2
                    and all(isinstance(part, (int, float)) and not isinstance(part, bool) for part in one)):
                raise self._wrong(key, one, "a list of [number, number]")
        return [(int(first), float(second)) for first, second in self.items(key)]

    def _wrong(self, key: str, value: Any, allowed: str) -> BadRunFolder:
        return BadRunFolder(f"{self._where}: {key}: found {_brief(value)}; allowed is {allowed}")


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:40] + "..."


def _load(path: Path) -> Optional[_Object]:
    try:
        return _Object(str(path), json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadRunFolder(f"{path}: {error}") from error


def read_state(folder: Path) -> str:
    """"done" for a run that ended well; empty where there is no summary that says how it ended."""
    try:
        summary = _load(folder / "summary.json")
        return summary.text("state") if summary else ""
    except BadRunFolder:
        return ""


def read(folder: Path) -> RunData:
    data = RunData()
    _read_summary(folder / "summary.json", data)
    _read_report(folder / "report.json", data)
    data.reports = _read_rows(folder / "metrics.csv", schema.METRICS)
    data.epochs = _read_rows(folder / "epochs.csv", schema.EPOCH_FIGURES)
    for name in EPOCH_SUMS if data.epochs else ():
        _keep(data, name, sum(row[name] or 0 for row in data.epochs))
    power = folder / "power.csv"
    data.power = power if power.is_file() else None
    data.confusion = _read_confusion(folder / "confusion.csv")
    if not data.evaluations:
        data.evaluations = [Evaluation(row["epoch"] or 0, row["time_s"] or 0, row["samples"], row["test_accuracy"])
                            for row in data.reports if row["test_accuracy"] is not None]
    return data


def _keep(data: RunData, name: str, value: Optional[float]) -> None:
    if value is not None:
        data.figures.setdefault(name, value)


def _read_summary(path: Path, data: RunData) -> None:
    summary = _load(path)
    if summary is None:
        return
    data.state, data.reason, data.mode = (summary.text(key) for key in ("state", "reason", "mode"))
    if summary.text("test_metric") == "map":
        data.metric = "mAP"
    metric = summary.below("metric")
    if metric.text("name") not in ("", "accuracy"):
        data.own_metric = metric.text("name")
        _keep(data, "metric", metric.number("last"))
        _keep(data, "best_metric", metric.number("best"))
    for name in SUMMARY_NUMBERS:
        _keep(data, name, summary.number(name))
    staleness = summary.below("staleness")
    _keep(data, "staleness_mean", staleness.number("mean"))
    _keep(data, "staleness_max", staleness.number("max"))
    data.histogram = staleness.pairs("histogram")
    energy = summary.below("energy")
    for name, column in ENERGY_NUMBERS.items():
        _keep(data, column, energy.number(name))
    data.devices = [_device(one) for one in energy.objects("devices")]
    for name in ("mean_watts", "idle_watts"):
        watts = [one.figures[name] for one in data.devices]
        _keep(data, name, sum(one for one in watts if one is not None) if watts and None not in watts else None)
    epoch_samples = summary.number("epoch_samples")
    # Those that took time end after others that began later.
    evaluations = summary.objects("evaluations")
    # The last one may be on other images (data.test_at_end): it is no point of a curve beside the others.
    curve = [one for one in evaluations if not one.is_true("apart")] or evaluations
    data.evaluations = sorted((_evaluation(one, epoch_samples, data.own_metric) for one in curve), key=lambda one: one.time_s)
    took = [one.number("seconds_per_sample") for one in evaluations]
    if took and took[-1] is not None:
        _keep(data, "evaluation_ms_per_sample", 1000 * took[-1])
    _read_workers(summary.objects("worker_list"), data)


def _device(one: _Object) -> DevicePower:
    return DevicePower(one.text("node"), one.text("device"),
                       {column.name: one.number(column.name) for column in schema.DEVICES if column.kind == "number"})


def _evaluation(one: _Object, epoch_samples: Optional[float], own_metric: Optional[str]) -> Evaluation:
    applied = one.number("samples_applied")
    own = one.number("loss") if own_metric == "loss" else one.below("values").number(own_metric or "")
    return Evaluation(one.needed("epoch"), one.needed("time_s"), one.number("samples"), one.number("accuracy"), applied,
                      applied / epoch_samples if applied is not None and epoch_samples else None, own)


def _read_workers(workers: Sequence[_Object], data: RunData) -> None:
    for name in WORKER_SUMS:
        counts = [count for count in (worker.number(name) for worker in workers) if count is not None]
        _keep(data, name, sum(counts) if counts else None)
    waited = sum(worker.number("wait_seconds") or 0 for worker in workers)
    whole = waited + sum(worker.number("compute_seconds") or 0 for worker in workers)
    _keep(data, "wait_fraction", waited / whole if whole > 0 else None)


def _read_report(path: Path, data: RunData) -> None:
    report = _load(path)
    if report is None:
        return
    for name, column in REPORT_NUMBERS.items():
        _keep(data, column, report.number(name))
    data.classes = [ClassFigures(one.text("name") or f"{one.needed('label'):g}", one.number("precision"),
                                 one.number("recall"), one.number("f1")) for one in report.objects("classes")]


def _csv_rows(path: Path) -> list[list[str]]:
    """Empty where there is no such file."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadRunFolder(f"{path}: {error}") from error


def _read_rows(path: Path, columns: Sequence[schema.Column]) -> list[dict[str, Optional[float]]]:
    names, *rows = _csv_rows(path) or [[]]
    found = []
    for index, cells in enumerate(rows):
        row = dict(zip(names, cells))
        try:
            found.append({column.name: float(row[column.name]) if row.get(column.name) else None for column in columns})
        except ValueError as error:
            raise BadRunFolder(f"{path}:{index + 2}: {error}") from error
    return found


def read_power(path: Path) -> dict[str, list[tuple[float, float]]]:
    """Seconds since the start and watts of every sample, by node and device; in the order of the file."""
    names, *rows = _csv_rows(path) or [[]]
    found: dict[str, list[tuple[float, float]]] = {}
    for index, cells in enumerate(rows):
        row = dict(zip(names, cells))
        try:
            found.setdefault(f"{row['node']} {row['device']}".strip(), []).append((float(row["time_s"]), float(row["watts"])))
        except (KeyError, ValueError) as error:
            raise BadRunFolder(f"{path}:{index + 2}: found {','.join(cells)}; allowed is time_s,node,device,watts") from error
    return found


def _read_confusion(path: Path) -> Optional[Confusion]:
    rows = _csv_rows(path)
    if not rows:
        return None
    names = rows[0][1:]
    try:
        counts = [[float(cell) for cell in row[1:]] for row in rows[1:]]
    except ValueError as error:
        raise BadRunFolder(f"{path}: {error}") from error
    if len(counts) != len(names) or any(len(row) != len(names) for row in counts):
        raise BadRunFolder(f"{path}: found {len(counts)} rows for {len(names)} predictions; allowed is one for each, and "
                           "as many columns")
    return Confusion(names, counts)


def first_at(data: RunData, target: float) -> Optional[Evaluation]:
    """The first evaluation at `target` or above."""
    return next((one for one in data.evaluations if one.accuracy is not None and one.accuracy >= target), None)
