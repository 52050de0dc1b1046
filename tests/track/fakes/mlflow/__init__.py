"""Stands in for mlflow: a store is a JSON file, whose path is the URI behind its scheme."""
import json
import pathlib
import types

from mlflow.entities import Metric


def _record(**fields):
    return types.SimpleNamespace(**fields)


class MlflowException(Exception):
    """An error of the library's own."""


class MlflowClient:
    def __init__(self, tracking_uri):
        if not tracking_uri.startswith("sqlite:///"):
            raise MlflowException(f"no store {tracking_uri}")
        self._file = pathlib.Path(tracking_uri[len("sqlite:///"):])
        self._store = json.loads(self._file.read_text()) if self._file.exists() else {"experiments": [], "runs": []}

    def _save(self):
        self._file.write_text(json.dumps(self._store))

    def get_experiment_by_name(self, name):
        return _record(experiment_id=name) if name in self._store["experiments"] else None

    def create_experiment(self, name):
        self._store["experiments"].append(name)
        self._save()
        return name

    def search_runs(self, places, filter_string, max_results):
        return [_record(info=_record(run_id=str(number)), data=_record(metrics={key: 0 for key, *_ in run["metrics"]}))
                for number, run in enumerate(self._store["runs"])
                if run["place"] in places and filter_string == f"tags.`slackline.id` = '{run['tags']['slackline.id']}'"][:max_results]

    def create_run(self, place, start_time, run_name, tags):
        self._store["runs"].append({"place": place, "name": run_name, "tags": tags, "metrics": [], "params": [], "status": "RUNNING",
                                    "times": [start_time]})
        self._save()
        return _record(info=_record(run_id=str(len(self._store["runs"]) - 1)))

    def get_metric_history(self, run, key):
        return [Metric(*one) for one in self._store["runs"][int(run)]["metrics"] if one[0] == key]

    def log_batch(self, run, metrics=(), params=()):
        assert len(metrics) <= 1000 and len(params) <= 100
        self._store["runs"][int(run)]["metrics"] += metrics
        self._store["runs"][int(run)]["params"] += params
        self._save()

    def set_tag(self, run, key, value):
        self._store["runs"][int(run)]["tags"][key] = value
        self._save()

    def update_run(self, run, status):
        self._store["runs"][int(run)]["status"] = status
        self._save()

    def set_terminated(self, run, status, end_time):
        self._store["runs"][int(run)]["status"] = status
        self._store["runs"][int(run)]["times"].append(end_time)
        self._save()
