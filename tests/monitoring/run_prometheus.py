#!/usr/bin/env python3
"""A real Prometheus finds a real run by its targets.json: every panel and every recording rule has data, and no alert fires.

usage: run_prometheus.py ROOT --programs FOLDER
"""
import argparse
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

try:
    import yaml
except ImportError:
    print("SKIP: PyYAML is not installed (scripts/setup)")
    sys.exit(77)

JOB = "watched"
# Two servers, three workers of which one is slow, so that the others wait for it.
SETTINGS = {
    "name": JOB, "cluster.servers": 2, "cluster.workers": 3, "cluster.shards_per_server": 2, "data.train_images_max": 4000,
    "training.epochs": 100000, "training.evaluate_every_epochs": 1, "training.batch_size": 100, "consistency.mode": "ssp",
    "consistency.staleness_max": 2, "worker.slowdown": "{1: 4}", "worker.threads": 1, "durability.mode": "snapshot",
    "durability.snapshot_every_s": 1, "checkpoint.every_s": 3, "output.report_every_ms": 500,
}
# What no such run can have, and why. By query, as it is in the rules or the dashboard.
WITHOUT_DATA = {
    # Scripts alone have metrics of their own.
    'slackline_scheduler_train_metric{slackline_job=~"$job"}',
    'slackline_scheduler_test_metric{slackline_job=~"$job"}',
}


def ask(port, path, **parameters):
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=10) as reply:
        return json.load(reply)["data"]


def has_data(port, query):
    found = ask(port, "query", query=query.replace("$job", JOB).replace("$__rate_interval", "15s"))
    return any(series["value"][1] != "NaN" for series in found["result"])


def queries_of(root):
    board = json.loads((root / "monitoring/grafana/slackline.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield f"panel '{panel['title']}'", target["expr"]
    for path in sorted((root / "monitoring/rules").glob("*.yml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                if "record" in rule:
                    yield f"rule {rule['record']}", rule["record"]


class Prometheus:
    def __init__(self, programs, root, folder, run):
        self.programs = programs
        self.log = folder / "prometheus.log"
        rules = folder / "rules"
        rules.mkdir()
        for path in (root / "monitoring/rules").glob("*.yml"):
            (rules / path.name).write_text(path.read_text().replace("interval: 15s", "interval: 1s"))
        example = yaml.safe_load((root / "monitoring/prometheus.yml").read_text())
        example["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        example["rule_files"] = [str(rules / "*.yml")]
        example["scrape_configs"][0]["file_sd_configs"][0]["refresh_interval"] = "1s"
        (folder / "targets").mkdir()
        (folder / "targets" / "run.json").symlink_to(run / "prometheus/targets.json")
        config = folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(example))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [shutil.which("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
                 f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def answers(self):
        try:
            return ask(self.port, "status/buildinfo")
        except OSError:
            return None

    def targets(self):
        return {target["labels"]["process"]: target["health"] for target in ask(self.port, "targets")["activeTargets"]}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def check(programs, root, run, prometheus):
    members = ["ps-1", "ps-2", "scheduler", "worker-1", "worker-2", "worker-3"]
    programs.wait_for("Prometheus to answer", prometheus.answers, 60, alive=prometheus.process)
    programs.wait_for("all processes to be scraped", lambda: prometheus.targets() == dict.fromkeys(members, "up"), 120,
                      alive=run.process)
    waiting = dict.fromkeys(queries_of(root))
    known = {query for _, query in waiting}
    assert known >= set(WITHOUT_DATA), f"no queries: {set(WITHOUT_DATA) - known}"
    for wanted in [entry for entry in waiting if entry[1] in WITHOUT_DATA]:
        del waiting[wanted]

    def all_have_data():
        for entry in list(waiting):
            if has_data(prometheus.port, entry[1]):
                del waiting[entry]
        programs.next_look.wait(0.5)
        return not waiting

    try:
        programs.wait_for("data", all_have_data, 150, alive=run.process)
    except AssertionError:
        raise AssertionError("no data:\n" + "\n".join(f"  {where}: {query}" for where, query in waiting)) from None
    firing = [alert["labels"]["alertname"] for alert in ask(prometheus.port, "alerts")["alerts"]
              if alert["state"] == "firing"]
    assert not firing, f"alerts fire in a run that is well: {firing}"
    rules = [rule for group in ask(prometheus.port, "rules")["groups"] for rule in group["rules"]]
    ill = [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"]
    assert not ill, f"rules that fail: {ill}"
    # Series that are no sums of others.
    series = ask(prometheus.port, "query", query=f'count by (run) ({{slackline_job="{JOB}",instance!=""}})')["result"]
    runs = {one["metric"].get("run") for one in series}
    assert runs == {run.folder.name}, f"series of the run have other labels run: {runs}"
    run.process.send_signal(signal.SIGTERM)
    run.process.wait(120)
    left = (run.folder / "prometheus/targets.json").read_text()
    assert json.loads(left) == [], f"a run that has ended still has targets: {left}"
    programs.wait_for("the targets to vanish", lambda: not prometheus.targets(), 30, alive=prometheus.process)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--programs", required=True)
    arguments = parser.parse_args()
    if shutil.which("prometheus") is None:
        print("SKIP: prometheus is not installed; ./test --all installs it")
        return 77
    sys.path.insert(0, str(arguments.root / "tests/e2e"))
    from run_energy import make_sysfs
    from slackline_run import Programs, TrainRun
    programs = Programs(arguments.programs)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        job = folder / "job.yaml"
        job.write_text("{}\n")
        # Machines of tests have no meters.
        meter = {"power.nvml_library": programs.folder.parent / "tests/libfake_nvml.so", "power.gpus": "all",
                 "power.sysfs": make_sysfs(folder / "sys")}
        run = TrainRun(programs, folder, job, [f"{key}={value}" for key, value in (SETTINGS | meter).items()])
        prometheus = None
        try:
            programs.wait_for("the run's targets", (run.folder / "prometheus/targets.json").exists, 120, alive=run.process)
            prometheus = Prometheus(programs, arguments.root, folder, run.folder)
            check(programs, arguments.root, run, prometheus)
        except Exception:
            print(run.stderr()[-4000:], run.events()[-2000:], sep="\n", file=sys.stderr)
            if prometheus is not None:
                print(prometheus.log.read_text(errors="replace")[-4000:], file=sys.stderr)
            raise
        finally:
            if prometheus is not None:
                prometheus.stop()
            if run.process.poll() is None:
                run.process.kill()
                run.process.wait()
    print("all panels and rules have data")
    return 0


if __name__ == "__main__":
    sys.exit(main())
