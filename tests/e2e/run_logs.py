"""output.log_format: json, from outside: every process's log is one JSON object a line, and what reads logs still does.

    run_logs.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import datetime
import json
import pathlib
import sys
import tempfile
import unittest

from run_e2e import DATA, MLP, NEEDED
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()

JSON_JOB = MLP.replace("report_every_ms: 50", "report_every_ms: 50, log_format: json") + """
data: {train_images_max: 6000}
cluster: {servers: 2, workers: 2, shards_per_server: 2}
durability: {mode: none}
"""
KEYS = {"time", "level", "process", "job", "message"}


class JsonLogs(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-logs-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def train(self, *settings):
        job = self.root / "job.yaml"
        job.write_text(JSON_JOB)
        run = TrainRun(self.programs, self.root, job, settings)
        self.addCleanup(run.close)
        return run

    def read(self, text, process):
        """The messages of a log."""
        messages = []
        for line in text.splitlines():
            fields = json.loads(line)
            self.assertEqual(set(fields), KEYS, line)
            self.assertEqual(fields["process"], process, line)
            self.assertEqual(fields["job"], "e2e")
            self.assertIn(fields["level"], ("info", "warning", "error"))
            self.assertIsNotNone(datetime.datetime.fromisoformat(fields["time"]).tzinfo)
            self.assertRegex(fields["time"], r"\.\d{3}[+-]\d\d:\d\d$")
            messages.append(fields["message"])
        self.assertTrue(messages, process)
        return messages

    def check_logs(self, run):
        names = {path.stem for path in run.folder.glob("logs/*.log")}
        self.assertEqual(names, {"scheduler", "ps-1", "ps-2", "worker-1", "worker-2"})
        return {name: self.read((run.folder / "logs" / f"{name}.log").read_text(), name) for name in names}

    def test_every_process_writes_one_object_a_line(self):
        run = self.train("training.epochs=2")
        self.assertEqual(run.wait(), 0, run.diagnosis())
        logs = self.check_logs(run)
        self.assertTrue(any(message.startswith("LibTorch ") for message in logs["worker-1"]))
        own = self.read(run.stderr(), "slackline")
        self.assertTrue(own[0].startswith("Training e2e: 2 servers, 2 workers"), own)
        self.assertIn("accuracy", run.stdout(), "the result is no log")

    def test_last_words_are_read_aloud(self):
        run = self.train("training.epochs=10000", "training.evaluate_every_epochs=0")
        run.wait_for_training()
        run.kill("ps-1")
        self.assertEqual(run.wait(), 1, run.diagnosis())
        self.check_logs(run)
        own = self.read(run.stderr(), "slackline")
        failed = [message for message in own if message.startswith("failed: ps-1 (process")]
        self.assertEqual(len(failed), 1, own)
        self.assertRegex(failed[0], r"; its last output:\n    20[0-9-]+T[0-9:.]+[+-][0-9:]+ ps-1 info: ")
        self.assertNotIn('{"time"', failed[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--patience", type=float, default=1, help="factor on all waits")
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    programs = pathlib.Path(OPTIONS.programs)
    missing = [name for name in NEEDED if not (programs / name).exists()]
    if missing or not DATA.is_dir():
        print("skipped: not there:", ", ".join(missing) or DATA)
        return 77
    unittest.main(argv=[sys.argv[0], "-v", *OPTIONS.tests])


if __name__ == "__main__":
    sys.exit(main())
