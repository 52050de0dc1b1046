#!/usr/bin/env python3
"""Trains while LibTorch computes on all cores beside it, and requires that nobody is taken for dead.

    bench/soak/false_alarms.py [--programs BIN_FOLDER] [--python PYTHON] [--seconds N] [--hogs N] [--keep FOLDER]

A real job with the default time-outs (T is 300 ms; 16 T of silence is a death). Beside it --hogs Python processes multiply matrices
with LibTorch, each with a thread a core, so that every core has several things to do. After --seconds the job is told to stop.

Exit codes: 0 nobody was declared dead, stalled or started again, and training went on until it was told to stop; 1 otherwise;
2 wrong use; 77 something is missing.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDED = ("slackline", "slackline-scheduler", "slackline-ps", "slackline-worker")
JOB = """
name: false-alarms
model: {kind: mlp}
training: {epochs: 100000, batch_size: 64, evaluate_every_epochs: 0}
consistency: {mode: ssp}
cluster: {servers: 2, workers: 3, worker_restarts_max: 0, server_restarts_max: 0, scheduler_restarts_max: 0}
output: {tensorboard: false}
"""
# What a machine that is busy must not bring about.
ALARM = re.compile(r"is dead|went silent|no heartbeat|given up|expelled|stalled|comes back|goes on from|was started again")
HOG = """
import torch
a = torch.rand(1024, 1024)
while True:
    a = torch.tanh(a @ a)
"""
START_S = 120
STOP_S = 120


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / ".cache/venv/bin/python", help="one that has torch")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--hogs", type=int, default=4)
    parser.add_argument("--keep", type=pathlib.Path, default=None, help="leave the run in this new folder")
    return parser.parse_args()


def missing(options):
    """What is not there, or an empty string."""
    for name in NEEDED:
        if not (options.programs / name).exists():
            return f"{options.programs / name} is not built"
    probe = subprocess.run([options.python, "-c", "import torch"], capture_output=True, check=False) \
        if options.python.exists() else None
    return "" if probe is not None and probe.returncode == 0 else f"{options.python} has no torch"


def samples_of(run):
    path = run / "metrics.csv"
    rows = path.read_text().splitlines() if path.exists() else []
    if len(rows) < 2:
        return 0
    try:
        return int(rows[-1].split(",")[rows[0].split(",").index("samples")])
    except (IndexError, ValueError):
        return 0  # a row that is being written


class Watch:
    """The longest silence of each member, as `slackline status` tells it."""

    def __init__(self, options, run):
        self.command = [options.programs / "slackline", "status", run]
        self.silence = {}

    def look(self):
        status = subprocess.run(self.command, capture_output=True, text=True, check=False, timeout=60).stdout
        for name, seconds in re.findall(r"^  (\S+) .* ([\d.]+) s  ", status, re.MULTILINE):
            self.silence[name] = max(self.silence.get(name, 0), float(seconds))


def train(options, folder):
    """Returns what is wrong."""
    job, run = folder / "job.yaml", folder / "run"
    job.write_text(JOB)
    with open(folder / "train.log", "wb") as log:
        training = subprocess.Popen([options.programs / "slackline", "train", job, "--run-folder", run],
                                    stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    hogs, next_look = [], threading.Event()
    try:
        begin = time.monotonic()
        while samples_of(run) == 0 and training.poll() is None and time.monotonic() - begin < START_S:
            next_look.wait(0.1)
        started = samples_of(run)
        hogs = [subprocess.Popen([options.python, "-c", HOG], stdin=subprocess.DEVNULL) for _ in range(options.hogs)]
        watch, begin = Watch(options, run), time.monotonic()
        while time.monotonic() - begin < options.seconds and training.poll() is None:
            next_look.wait(1)
            watch.look()
        ended_early = training.poll() is not None
        load = os.getloadavg()[0]
        trained = samples_of(run) - started
        training.send_signal(signal.SIGTERM)
        training.wait(STOP_S)
    finally:
        for process in (*hogs, training):
            process.kill()
            process.wait()
    events = (run / "events.log").read_text(errors="replace") if (run / "events.log").exists() else ""
    alarms = [line for line in events.splitlines() if ALARM.search(line)]
    longest = max(watch.silence.items(), key=lambda item: item[1], default=("nobody", 0))
    print(f"{options.seconds:.0f} s beside {options.hogs} hogs on {os.cpu_count()} cores, load {load:.1f}: "
          f"{trained} samples trained, longest silence seen {longest[1]:.1f} s ({longest[0]}), {len(alarms)} alarms")
    wrong = alarms
    if started == 0:
        wrong = wrong + ["training did not begin"]
    if ended_early:
        wrong = wrong + ["training ended by itself"]
    if trained == 0:
        wrong = wrong + ["nothing was trained beside the hogs"]
    return wrong


def main():
    options = parse()
    reason = missing(options)
    if reason:
        print(f"SKIP: {reason}")
        return 77
    folder = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="slackline-false-alarms-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        wrong = train(options, folder.resolve())
        for line in wrong:
            print(f"false alarm: {line}")
        if wrong:
            sys.stdout.write((folder / "train.log").read_text(errors="replace")[-4000:])
        return 1 if wrong else 0
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
