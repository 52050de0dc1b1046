"""The trackers: each takes the same run, points and summary. A call about a run that is there already adds what is missing."""

import importlib
import shutil
from pathlib import Path
from typing import Any, Mapping, Protocol, Sequence

from slackline_experiment.document import as_text
from slackline_track.events import Point
from slackline_track.run import TrackedRun, numbers

# Wandb's limit.
TAG_LENGTH_MAX = 64
# MLflow's limits for one call, and for a value.
METRICS_MAX, PARAMS_MAX, PARAM_LENGTH_MAX = 1000, 100, 6000
# Earlier times are virtual.
REAL_SINCE_S = 1e9


class Tracker(Protocol):
    def log(self, points: Sequence[Point]) -> None: ...

    def end(self, summary: Mapping[str, Any]) -> None:
        """`summary`: summary.json; empty if the run has not ended."""

    def advice(self) -> str:
        """What was written, and the command that shows it."""


class Wandb:
    """An offline run in FOLDER/wandb. An earlier one of this run is replaced."""

    def __init__(self, run: TrackedRun, project: str, folder: Path):
        wandb: Any = importlib.import_module("wandb")
        for old in (folder / "wandb").glob(f"offline-run-*-{run.id}"):
            shutil.rmtree(old)
        self._run = wandb.init(
            mode="offline", project=project, name=run.name, id=run.id, dir=str(folder), config=dict(run.job),
            tags=[f"{name}:{value}"[:TAG_LENGTH_MAX] for name, value in run.tags.items()],
            settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False, x_disable_stats=True))
        self._files = Path(self._run.dir).parent
        self._step = 0

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            # wandb takes no smaller step, as after a return to a checkpoint.
            if point.step < self._step:
                continue
            self._step = point.step
            time = {"_timestamp": point.wall_time} if point.wall_time > REAL_SINCE_S else {}
            self._run.log({**point.scalars, **time}, step=point.step)

    def end(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update({**numbers(summary), **{f"summary/{key}": summary[key] for key in ("state", "reason") if key in summary}})
        self._run.finish(exit_code=0 if summary.get("state", "done") == "done" else 1)

    def advice(self) -> str:
        return f"wandb: {self._files}; send it with: wandb sync {self._files}"


class Mlflow:
    """A run in MLflow's store at `uri`. Points that the store has are left out."""

    def __init__(self, run: TrackedRun, project: str, uri: str):
        mlflow: Any = importlib.import_module("mlflow")
        self._entities: Any = importlib.import_module("mlflow.entities")
        self._uri = uri
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        experiment = self._client.get_experiment_by_name(project)
        place = experiment.experiment_id if experiment else self._client.create_experiment(project)
        found = self._client.search_runs([place], filter_string=f"tags.`slackline.id` = '{run.id}'", max_results=1)
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            self._known = {(name, one.timestamp, one.step) for name in found[0].data.metrics
                           for one in self._client.get_metric_history(self._id, name)}
        else:
            self._known = set()
            began = None if run.began_s is None else 1000 * run.began_s
            tags = {"slackline.id": run.id, **run.tags}
            self._id = self._client.create_run(place, start_time=began, run_name=run.name, tags=tags).info.run_id
            # A value of MLflow is never changed: settings go there once, with the run.
            params = [self._entities.Param(key, as_text(value)[:PARAM_LENGTH_MAX]) for key, value in run.settings.items()]
            for begin in range(0, len(params), PARAMS_MAX):
                self._client.log_batch(self._id, params=params[begin:begin + PARAMS_MAX])
        self._last = (0, 0)

    def log(self, points: Sequence[Point]) -> None:
        found = {(name, round(1000 * point.wall_time), point.step): value
                 for point in points for name, value in point.scalars.items()}
        if points:
            self._last = (round(1000 * points[-1].wall_time), points[-1].step)
        self._log(found)

    def end(self, summary: Mapping[str, Any]) -> None:
        time, step = self._last
        self._log({(name, time, step): value for name, value in numbers(summary).items()})
        for key in ("state", "reason"):
            if key in summary:
                self._client.set_tag(self._id, key, str(summary[key]))
        if summary:
            status = {"done": "FINISHED", "stopped": "KILLED"}.get(str(summary.get("state")), "FAILED")
            self._client.set_terminated(self._id, status, end_time=time or None)

    def _log(self, found: Mapping[tuple[str, int, int], float]) -> None:
        metrics = [self._entities.Metric(name, value, time, step) for (name, time, step), value in found.items()
                   if (name, time, step) not in self._known]
        self._known |= set(found)
        for begin in range(0, len(metrics), METRICS_MAX):
            self._client.log_batch(self._id, metrics=metrics[begin:begin + METRICS_MAX])

    def advice(self) -> str:
        return f"mlflow: run {self._id} in {self._uri}; show it with: mlflow ui --backend-store-uri {self._uri}"
