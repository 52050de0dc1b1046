#!/usr/bin/env python3
"""Checks monitoring/: promtool's word on the rules and their tests; that every series asked for is there; that every alert
has what it needs.

usage: check_rules.py ROOT [promtool]

With `promtool`, its part only: exits with 77 where it is not installed.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

try:
    import yaml
except ImportError:
    print("SKIP: PyYAML is not installed (scripts/setup)")
    sys.exit(77)

# Made by Prometheus itself.
OF_PROMETHEUS = {"up"}
NAME = re.compile(r"(?<![\w:\"$])(up|(?:slackline|process)_\w+|slackline:[\w:]+)\b(?!\s*(?:=~|!=|!~|=)\s*\")")
# The prefix of each alert's runbook_url: operators choose it.
PREFIX = "{{ $externalLabels.slackline_docs }}"
# Labels, where they stand in by (...) and on (...).
LABELS = {"slackline_job"}


def known_series(root):
    """Of docs/metrics.md, histograms by what they are served as; and recorded ones."""
    known = set(OF_PROMETHEUS)
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", (root / "docs/metrics.md").read_text(), re.M)
    for name, kind in rows:
        known.update([f"{name}_bucket", f"{name}_sum", f"{name}_count"] if kind == "histogram" else [name])
    if len(known) < 50:
        sys.exit("docs/metrics.md has hardly any series")
    for rule in rules_of(root):
        if "record" in rule:
            known.add(rule["record"])
    return known


def rules_of(root):
    for path in sorted((root / "monitoring/rules").glob("*.yml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from group["rules"]


def names_in(query):
    return set(NAME.findall(query)) - LABELS


def queries_of(root):
    for rule in rules_of(root):
        yield rule.get("alert") or rule.get("record"), rule["expr"]
    board = json.loads((root / "monitoring/grafana/slackline.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield f"panel '{panel['title']}'", target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            query = variable["query"]
            yield f"variable {variable['name']}", query if isinstance(query, str) else query["query"]


def mistakes(root):
    known = known_series(root)
    for where, query in queries_of(root):
        names = names_in(query)
        if not names:
            yield f"{where}: names no series: {query}"
        for name in sorted(names - known):
            yield f"{where}: no series {name} in docs/metrics.md, nor recorded"
    headings = {line[3:].strip() for line in (root / "docs/alerts.md").read_text().splitlines() if line.startswith("## ")}
    anchors = {heading.lower() for heading in headings}
    alerts = [rule for rule in rules_of(root) if "alert" in rule]
    tested = (root / "monitoring/tests/slackline-alerts.test.yml").read_text()
    for rule in alerts:
        name = rule["alert"]
        if rule.get("labels", {}).get("severity") not in ("critical", "warning"):
            yield f"{name}: severity is neither critical nor warning"
        for annotation in ("summary", "description", "runbook_url"):
            if not rule.get("annotations", {}).get(annotation):
                yield f"{name}: no {annotation}"
        runbook = f"{PREFIX}docs/alerts.md#{name.lower()}"
        if rule.get("annotations", {}).get("runbook_url") != runbook:
            yield f"{name}: its runbook_url is not {runbook}"
        if name.lower() not in anchors:
            yield f"{name}: docs/alerts.md has no anchor {name.lower()}"
        if f"alertname: {name}\n" not in tested or f"alertname: {name}," not in tested:
            yield f"{name}: no test that it fires, or none that it does not fire before its time"
    for name in {rule["alert"] for rule in alerts} ^ headings:
        yield f"{name}: an alert without a section in docs/alerts.md, or a section without an alert"


def promtool(root):
    program = shutil.which("promtool")
    if program is None:
        print("SKIP: promtool is not installed; ./test --all installs it")
        return 77
    rules = sorted(map(str, (root / "monitoring/rules").glob("*.yml")))
    tests = sorted(map(str, (root / "monitoring/tests").glob("*.yml")))
    for command in ([program, "check", "rules", *rules], [program, "test", "rules", *tests]):
        if subprocess.run(command, check=False).returncode != 0:
            return 1
    return 0


def main():
    root = pathlib.Path(sys.argv[1])
    if sys.argv[2:] == ["promtool"]:
        return promtool(root)
    found = list(mistakes(root))
    print(*found, sep="\n", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
