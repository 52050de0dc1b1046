#!/usr/bin/env python3
"""Measures how soon a worker that joins a run trains: from its program's start to its first finished step.

    bench/soak/join_time.py [--programs BIN_FOLDER] [--times N] [--workers N] [--mode async|ssp|bsp] [--within SECONDS]

`slackline train` runs an MLP on Fashion-MNIST's shapes with the workers that it has; a further one is started by hand, --times times,
one after the other, and told to leave when it has trained. Its clock is the operating system's: the start of the process is when it was
forked, so that loading the program and LibTorch counts; the first step is the first one that its own metrics show as finished, which are asked
every 5 ms. Prints the median, the longest, and where the time goes, by the worker's own log.

Exit codes: 0; 1 a worker took longer than --within (default 2), or did not train; 2 wrong use; 77 something is missing.
"""
import argparse
import datetime
import json
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDED = ("slackline", "slackline-scheduler", "slackline-ps", "slackline-worker")
JOB = """
name: join-time
model: {{kind: mlp}}
training: {{epochs: 100000, batch_size: 64, evaluate_every_epochs: 0}}
consistency: {{mode: {mode}}}
cluster: {{servers: 2, workers: {workers}}}
worker: {{threads: 1}}
output: {{tensorboard: false}}
"""
LONGEST_S = 60
STEPS = re.compile(r"^slackline_worker_steps_total(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--mode", default="ssp", choices=("async", "ssp", "bsp"))
    parser.add_argument("--within", type=float, default=2)
    return parser.parse_args()


def eventually(condition, what, seconds=LONGEST_S):
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        pause.wait(0.005)
    raise TimeoutError(f"waited {seconds} s in vain for {what}")


def steps(url):
    with urllib.request.urlopen(url, timeout=LONGEST_S) as answer:
        found = STEPS.search(answer.read().decode())
    return float(found[1]) if found else 0


def stamp(log, words):
    """When the log says so, in seconds since the epoch; None: it does not."""
    for line in log.splitlines():
        if words in line:
            return datetime.datetime.fromisoformat(line.split()[0]).timestamp()
    return None


def join(options, job, run, log_path, name):
    """Seconds until the program has loaded, is a member, and has trained."""
    with open(log_path, "wb") as log:
        begin = time.time()
        worker = subprocess.Popen([options.programs / "slackline-worker", job, "--scheduler", run / "scheduler.address",
                                   "--name", name], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        def text():
            return log_path.read_text(errors="replace")

        url = eventually(lambda: re.search(r"metrics at (http://\S+)", text()), f"{name}'s metrics\n{text()}")[1]
        eventually(lambda: steps(url) >= 1, f"a step of {name}")
        end = time.time()
        loaded, live = stamp(text(), "LibTorch "), stamp(text(), "live as worker")
    finally:
        worker.send_signal(signal.SIGTERM)
        try:
            worker.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    return loaded - begin, live - loaded, end - live, end - begin


def main():
    options = parse()
    for name in NEEDED:
        if not (options.programs / name).exists():
            print(f"join_time: {options.programs / name} is not built", file=sys.stderr)
            return 77
    root = pathlib.Path(tempfile.mkdtemp(prefix="slackline-join-"))
    job, run = root / "job.yaml", root / "run"
    job.write_text(JOB.format(mode=options.mode, workers=options.workers))
    with open(root / "train.log", "wb") as log:
        train = subprocess.Popen([options.programs / "slackline", "train", job, "--run-folder", run], stdout=log, stderr=log,
                                 stdin=subprocess.DEVNULL)
    try:
        events = run / "events.log"
        eventually(lambda: events.exists() and "training begins" in events.read_text(), "training to begin")
        parts = [join(options, run / "job.yaml", run, root / f"{i}.log", f"late-{i}") for i in range(options.times)]
    except TimeoutError as error:
        print(f"join_time: {error}", file=sys.stderr)
        return 1
    finally:
        train.terminate()
        train.wait(LONGEST_S)
        shutil.rmtree(root)
    total = [part[3] for part in parts]
    names = ("program, LibTorch and data loaded", "member", "first step")
    where = ", ".join(f"{name} {statistics.median(part[i] for part in parts):.2f} s" for i, name in enumerate(names))
    print(f"{options.times} workers joined {options.workers} in {options.mode}: first step after {statistics.median(total):.2f} s "
          f"(median), {max(total):.2f} s (longest); medians: {where}")
    print(json.dumps({"seconds": [round(value, 3) for value in total]}))
    return 0 if max(total) <= options.within else 1


if __name__ == "__main__":
    sys.exit(main())
