#!/usr/bin/env python3
"""Whether check_rules.py finds what it is there to find.

usage: checks_test.py ROOT
"""
import pathlib
import shutil
import sys
import tempfile
import unittest

import check_rules

ROOT = pathlib.Path(sys.argv.pop(1))
FILES = ("docs/metrics.md", "docs/alerts.md", "monitoring/rules", "monitoring/tests", "monitoring/grafana")


class Checks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in FILES:
            source, target = ROOT / name, self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)

    def change(self, name, old, new):
        path = self.root / name
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new))

    def found(self):
        return "\n".join(check_rules.mistakes(self.root))

    def test_what_is_there_is_right(self):
        self.assertEqual(self.found(), "")

    def test_names_are_found_and_labels_are_none(self):
        query = 'sum by (slackline_job) (rate(slackline_ps_pulls_total{slackline_job=~"$job"}[1m])) - slackline:a:b and up == 1'
        self.assertEqual(check_rules.names_in(query), {"slackline_ps_pulls_total", "slackline:a:b", "up"})

    def test_an_alert_that_asks_for_an_unknown_series_is_found(self):
        self.change("monitoring/rules/slackline-alerts.yml", "slackline_scheduler_worker_deaths_total", "slackline_scheduler_deaths_total")
        self.assertIn("SlacklineWorkerLost: no series slackline_scheduler_deaths_total", self.found())

    def test_a_panel_that_asks_for_an_unknown_series_is_found(self):
        self.change("monitoring/grafana/slackline.json", "slackline_scheduler_train_loss", "slackline_scheduler_loss")
        self.assertIn("panel 'Loss': no series slackline_scheduler_loss", self.found())

    def test_a_series_that_is_gone_is_missed_where_it_is_asked_for(self):
        self.change("docs/metrics.md", "| `slackline_ps_staleness_versions` | histogram", "| `slackline_ps_other_versions` | histogram")
        self.assertIn("slackline:staleness_versions:p95_5m: no series slackline_ps_staleness_versions_bucket", self.found())

    def test_a_recorded_series_must_be_recorded(self):
        self.change("monitoring/rules/slackline-recording.yml", "record: slackline:disk_free:ratio", "record: slackline:disk:ratio")
        self.assertIn("SlacklineDiskLow: no series slackline:disk_free:ratio", self.found())

    def test_an_alert_needs_words_for_people(self):
        self.change("docs/alerts.md", "## SlacklineDiskFull", "## SlacklineDiskIsFull")
        self.change("monitoring/rules/slackline-alerts.yml", "docs/alerts.md#slacklinediverging", "docs/alerts.md#diverging")
        self.assertIn("SlacklineDiskFull: an alert without a section", self.found())
        self.assertIn("SlacklineDiverging: its runbook_url is not", self.found())
        self.assertIn("SlacklineDiskFull: docs/alerts.md has no anchor slacklinediskfull", self.found())

    def test_an_alert_needs_tests(self):
        self.change("monitoring/tests/slackline-alerts.test.yml", "- alertname: SlacklineDataWait\n", "- alertname: SlacklineOther\n")
        self.assertIn("SlacklineDataWait: no test", self.found())


if __name__ == "__main__":
    unittest.main()
