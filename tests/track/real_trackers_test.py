"""`slackline track` with the real wandb and MLflow, and what they have stored.

Exits with 77 (skipped) where one of them is not there.
"""
import importlib.util
import struct
import sys
import unittest

import support

BLOCK, HEADER = 32768, 7


def wandb_records(path):
    """The messages of a file of an offline run, which is a log of LevelDB with a header of its own."""
    from wandb.proto import wandb_internal_pb2
    data, at, part = path.read_bytes(), HEADER, b""
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        part += data[at + HEADER:at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(part)
            yield record
            part = b""


class RealTrackers(support.TrackTest):
    packages = None

    def setUp(self):
        super().setUp()
        self.end_run()

    def test_wandb(self):
        for _ in range(2):
            self.track(self.run_folder, "--wandb")
            (file,) = (self.root / "wandb").glob("offline-run-*/run-*.wandb")
            records = list(wandb_records(file))
            (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
            self.assertEqual((run.display_name, run.project, list(run.tags)),
                             ("first-1", "slackline", ["run:first-1", "mode:ssp", "model:mlp"]))
            history = [{item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                       for record in records if record.WhichOneof("record_type") == "history"]
            self.assertEqual([(row["_step"], row["train/loss"]) for row in history], [("10", "2.25"), ("20", "1.5")])
            self.assertEqual(history[1]["test/accuracy"], "0.75")

    def test_mlflow(self):
        import mlflow
        for _ in range(2):
            self.track(self.run_folder, "--mlflow")
            client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{self.root}/mlflow.db")
            (run,) = client.search_runs([client.get_experiment_by_name("slackline").experiment_id])
            self.assertEqual((run.info.run_name, run.info.status, run.data.tags["mode"]), ("first-1", "FINISHED", "ssp"))
            self.assertEqual(run.data.params["consistency.staleness_max"], "4")
            self.assertEqual([(one.step, one.value, one.timestamp) for one in client.get_metric_history(run.info.run_id, "train/loss")],
                             [(10, 2.25, 1700000000000), (20, 1.5, 1700000001000)])
            self.assertEqual(run.data.metrics["summary/steps"], 20)


if __name__ == "__main__":
    for module in ("yaml", "wandb", "mlflow", "sqlalchemy", "alembic"):
        if importlib.util.find_spec(module) is None:
            print(f"SKIP: {sys.executable} has no {module}; ./test --all installs it")
            sys.exit(77)
    unittest.main()
