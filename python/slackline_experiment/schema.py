"""The columns of results.csv, reports.csv, epochs.csv, evaluations.csv, devices.csv and differences.csv: the one place of their names, types and units.

Axes stand between the first column and the others, one column an axis, named as in the grid. An empty field means: not
known.
"""

from dataclasses import dataclass
from typing import Literal, Optional

FORMAT = 1


@dataclass(frozen=True)
class Column:
    name: str
    kind: Literal["text", "number", "whole number"]
    unit: str
    meaning: str
    # How plots and the page call it; columns without one are no figures.
    label: str = ""

    def axis_label(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


RESULTS: tuple[Column, ...] = (
    Column("cell", "text", "", "the cell's id, which is its folder below cells/"),
    Column("repeat", "whole number", "", "from 1"),
    Column("seed", "whole number", "", "the job's seed + repeat - 1; with folds one more each time all were gone through"),
    Column("state", "text", "", "done, failed or missing; in a comparison also running or stopped"),
    Column("reason", "text", "", "why it is not done"),
    Column("run_mode", "text", "", "mode, as the run's summary has it"),
    Column("workers", "whole number", "", "workers of the run", "workers"),
    Column("servers", "whole number", "", "server processes of the run", "servers"),
    Column("time_s", "number", "s", "from start to end, virtual for a simulated run", "time"),
    Column("wall_s", "number", "s", "what the run took on the clock of this machine", "wall clock"),
    Column("samples", "whole number", "samples", "samples trained, those of discarded pushes included", "samples"),
    Column("steps", "whole number", "steps", "pushes of all workers", "steps"),
    Column("samples_per_second", "number", "samples/s", "samples over the time of training", "throughput"),
    Column("epochs", "number", "epochs", "passes over the data", "epochs"),
    Column("loss", "number", "", "training loss at the end", "training loss"),
    Column("test_accuracy", "number", "", "at the end, 0 to 1", "test accuracy"),
    Column("test_loss", "number", "", "at the end", "test loss"),
    Column("best_test_accuracy", "number", "", "the best evaluation, 0 to 1", "best test accuracy"),
    Column("precision_macro", "number", "", "mean over the classes, 0 to 1", "precision, macro"),
    Column("recall_macro", "number", "", "mean over the classes, 0 to 1", "recall, macro"),
    Column("f1_macro", "number", "", "mean over the classes, 0 to 1", "F1, macro"),
    Column("staleness_mean", "number", "versions", "mean over all answers", "mean staleness"),
    Column("staleness_max", "whole number", "versions", "largest of all answers", "largest staleness"),
    Column("slack_max", "whole number", "steps", "how far a worker was ahead of the slowest", "largest slack"),
    Column("wait_fraction", "number", "", "waiting over waiting + computing, all workers, 0 to 1", "share of waiting"),
    Column("pushes_applied", "whole number", "pushes", "all workers", "pushes applied"),
    Column("pushes_discarded", "whole number", "pushes", "all workers", "pushes discarded"),
    Column("pushes_lost", "whole number", "pushes", "all workers", "pushes lost"),
    Column("pushed_bytes", "whole number", "bytes", "gradients of all workers, as encoded", "bytes pushed"),
    Column("pulled_bytes", "whole number", "bytes", "weights that came to workers", "bytes pulled"),
    Column("deaths", "whole number", "", "workers and servers that died", "deaths"),
    Column("samples_given_twice", "whole number", "samples", "after deaths", "samples given twice"),
    Column("time_to_target_s", "number", "s", "time_s of the first evaluation at target_accuracy or above",
           "time to target accuracy"),
    Column("samples_to_target", "whole number", "samples", "samples at that evaluation", "samples to target accuracy"),
    Column("top5_accuracy", "number", "", "the label is among the five largest outputs, for 10 classes and more, 0 to 1",
           "top-5 accuracy"),
    Column("joules", "number", "J", "energy of all metered devices; empty where nothing was metered", "energy"),
    Column("joules_training", "number", "J", "the part of it while training", "energy of training"),
    Column("joules_validation", "number", "J", "during evaluations while training went on", "energy of validation"),
    Column("joules_test", "number", "J", "during the last evaluation", "energy of the test"),
    Column("edp", "number", "J s", "joules x time_s", "energy x time"),
    Column("fold", "whole number", "", "which of the folds, from 1; empty without folds"),
    Column("f1_weighted", "number", "", "mean over the classes by their images, 0 to 1", "F1, weighted"),
    Column("samples_applied", "whole number", "samples", "samples of pushes that are in the weights", "samples applied"),
    Column("epochs_to_target", "number", "epochs", "samples applied at that evaluation, over those of an epoch",
           "epochs to target accuracy"),
    Column("metric", "number", "", "the job's metric (training.metric) at the end; empty if that is the accuracy", "the job's metric"),
    Column("best_metric", "number", "", "the best evaluation by it", "the job's metric, best"),
    Column("train_s", "number", "s", "training, less evaluations in which nobody trained: the sum over its epochs", "time of training"),
    Column("validation_s", "number", "s", "evaluations while training went on", "time of validation"),
    Column("test_s", "number", "s", "the last evaluation", "time of the test"),
    Column("evaluation_ms_per_sample", "number", "ms", "the last evaluation, over its samples", "time of a test sample"),
    Column("joules_above_idle", "number", "J", "joules less the idle power over the same time; empty where power.idle_s is 0",
           "energy above idle"),
    Column("idle_watts", "number", "W", "idle power of all metered devices", "idle power"),
    Column("mean_watts", "number", "W", "mean power of all metered devices", "mean power"),
    Column("device_count", "whole number", "", "devices that the point names, else the workers; for the efficiency"),
    Column("speed_up", "number", "", "samples_per_second over the mean of the baseline's", "speed-up"),
    Column("efficiency", "number", "", "speed_up over (device_count / that of the baseline)", "efficiency"),
    Column("edp_ratio", "number", "", "edp over the mean of the baseline's", "energy x time, over the baseline's"),
)

# metrics.csv of a run folder, after the columns that name the run.
METRICS: tuple[Column, ...] = (
    Column("time_s", "number", "s", "since the start, virtual for a simulated run"),
    Column("epoch", "number", "epochs", "the pass over the data"),
    Column("step", "number", "steps", "pushes so far"),
    Column("samples", "number", "samples", "samples so far"),
    Column("loss", "number", "", "training loss since the last report"),
    Column("accuracy", "number", "", "training accuracy since the last report, 0 to 1"),
    Column("test_accuracy", "number", "", "where it was measured, 0 to 1"),
    Column("samples_per_second", "number", "samples/s", "since the last report"),
    Column("staleness_mean", "number", "versions", "since the last report"),
    Column("staleness_max", "number", "versions", "since the last report"),
    Column("slack", "number", "steps", "the largest of the live workers"),
    Column("live_workers", "number", "", "workers that take part"),
)
REPORTS: tuple[Column, ...] = (
    Column("cell", "text", "", "the cell's id"),
    Column("repeat", "whole number", "", "from 1"),
    *METRICS,
)

# epochs.csv of a run folder, after the columns that name the run.
EPOCH_FIGURES: tuple[Column, ...] = (
    Column("epoch", "number", "epochs", "from 1"),
    Column("end_s", "number", "s", "when so many epochs of samples were trained, since the start, virtual for a simulated run"),
    Column("train_s", "number", "s", "from the end of the epoch before, less evaluations in which nobody trained"),
    Column("validation_s", "number", "s", "what its evaluation took while training went on; 0: it had none"),
    Column("test_s", "number", "s", "what the last evaluation took; 0 but in the last row"),
    Column("loss", "number", "", "training loss over the epoch"),
    Column("accuracy", "number", "", "training accuracy over the epoch, 0 to 1"),
    Column("test_loss", "number", "", "of its evaluation"),
    Column("test_accuracy", "number", "", "of its evaluation, 0 to 1"),
    Column("top5_accuracy", "number", "", "of its evaluation, for 10 classes and more, 0 to 1"),
    Column("joules", "number", "J", "energy of all devices from the end of the epoch before; empty: not metered"),
    Column("compute_s", "number", "s", "forward, backward and what belongs to them, all workers together"),
    Column("data_s", "number", "s", "no batch was ready, all workers together"),
    Column("wait_s", "number", "s", "waiting for servers, all workers together"),
    Column("push_s", "number", "s", "from a push until all shards had answered, all workers together"),
    Column("pull_s", "number", "s", "until the weights were there, all workers together"),
    Column("samples", "number", "samples", "samples trained until its end, those of discarded pushes included"),
    Column("samples_applied", "number", "samples", "of those, the samples that are in the weights"),
)
EPOCHS: tuple[Column, ...] = (
    Column("cell", "text", "", "the cell's id"),
    Column("repeat", "whole number", "", "from 1"),
    *EPOCH_FIGURES,
)

# An evaluation of a run: a point on the curves.
EVALUATIONS: tuple[Column, ...] = (
    Column("cell", "text", "", "the cell's id"),
    Column("repeat", "whole number", "", "from 1"),
    Column("time_s", "number", "s", "when the weights were those, since the start, virtual for a simulated run"),
    Column("samples", "number", "samples", "samples trained until then"),
    Column("samples_applied", "number", "samples", "of those, the samples that are in the weights"),
    Column("epochs", "number", "epochs", "samples applied, over those of an epoch"),
    Column("test_accuracy", "number", "", "0 to 1"),
    Column("metric", "number", "", "the job's metric (training.metric); empty if that is the accuracy"),
)

# Power of a device during a run.
DEVICES: tuple[Column, ...] = (
    Column("cell", "text", "", "the cell's id"),
    Column("repeat", "whole number", "", "from 1"),
    Column("node", "text", "", "name of the machine"),
    Column("device", "text", "", "package-0, package-0-dram, gpu-0000:65:00.0 and so on"),
    Column("joules", "number", "J", "its energy"),
    Column("mean_watts", "number", "W", "its energy over the time for which it is counted"),
    Column("min_watts", "number", "W", "the smallest sample; without those of the idle machine"),
    Column("max_watts", "number", "W", "the largest sample"),
    Column("idle_watts", "number", "W", "median before the start; empty where power.idle_s is 0"),
)

# What a cell has more than another one, over the repeats that both have.
DIFFERENCES: tuple[Column, ...] = (
    Column("cell", "text", "", "the cell's id"),
    Column("against", "text", "", "the id of the cell that it is compared with"),
    Column("figure", "text", "", "a column of results.csv"),
    Column("difference", "number", "", "mean over the repeats of cell less against, in the figure's unit"),
    Column("low", "number", "", "lower end of the 95 % interval of that mean; empty for one pair"),
    Column("high", "number", "", "upper end"),
    Column("n", "whole number", "", "repeats that have the figure in both cells"),
    Column("verdict", "text", "", "more, less, none seen (the interval holds 0), no spread (all repeats differ by the same amount) or one pair"),
)

FIGURES = tuple(column for column in RESULTS if column.label)
SHARES = ("test_accuracy", "best_test_accuracy", "wait_fraction", "precision_macro", "recall_macro", "f1_macro", "top5_accuracy",
          "f1_weighted", "efficiency")
# What results.md and the page show of each cell, where any run has it.
SHOWN = ("metric", "best_metric", "test_accuracy", "best_test_accuracy", "time_s", "time_to_target_s", "samples_per_second", "staleness_mean",
         "speed_up", "efficiency", "wait_fraction", "joules", "joules_above_idle", "edp", "edp_ratio", "deaths")

# What they show of each fold.
FOLD_SHOWN = ("test_accuracy", "precision_macro", "recall_macro", "f1_macro", "f1_weighted", "test_loss")


def figure(name: str) -> Optional[Column]:
    return next((column for column in FIGURES if column.name == name), None)


def is_share(name: str) -> bool:
    """Shown in per cent."""
    return name in SHARES


def names_taken() -> tuple[str, ...]:
    """What an axis may not be called."""
    return tuple(dict.fromkeys(column.name for column in (*RESULTS, *REPORTS, *EPOCHS, *EVALUATIONS, *DEVICES)))


def as_markdown(columns: tuple[Column, ...]) -> str:
    """The table of docs/experiment-results.md."""
    rows = [f"| `{column.name}` | {column.kind} | {column.unit} | {column.meaning} |" for column in columns]
    return "\n".join(["| column | type | unit | meaning |", "|---|---|---|---|", *rows])
