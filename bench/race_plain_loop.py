#!/usr/bin/env python3
"""Races one worker through Slackline (1 scheduler, 1 server, 1 worker) with the same loop in plain LibTorch.

The two run in alternation on the same cores, so that a machine that changes its mind meets both. A round's ratio is
Slackline's samples/s over the plain loop's; the median over the rounds is what counts.

  bench/race_plain_loop.py --build build/release --model cnn --threads 2 --rounds 3 --minimum 0.9

Exit codes: 0 the median ratio reaches --minimum, 1 it does not, 2 something is missing.
"""

import argparse
import csv
import os
import re
import statistics
import subprocess
import sys
import tempfile

# Rows of metrics.csv that still show the start: processes meet, caches are cold.
WARMUP_SECONDS = 1.0


def on_cores(cores):
    """Binds a child, and all that it starts, to `cores`."""
    return (lambda: os.sched_setaffinity(0, cores)) if cores else None


def run(command, options):
    done = subprocess.run(command, preexec_fn=on_cores(options.cores), text=True, capture_output=True,
                          timeout=options.timeout_s)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def run_plain(options):
    """Samples/s of the plain loop."""
    output = run([f"{options.build}/bin/worker_loop_bench", "--loop", "plain", "--order", options.order,
                  "--model", options.model, "--batch", str(options.batch), "--threads", str(options.threads),
                  "--data", options.data, "--seconds", str(options.seconds)], options)
    return float(re.search(r"samples_per_second=([0-9.]+)", output).group(1))


def rate_of(path, warmup_seconds=WARMUP_SECONDS):
    """Samples/s between the end of the warm-up and the last row in which samples were added."""
    with open(path, newline="") as file:
        rows = [(float(row["time_s"]), float(row["samples"])) for row in csv.DictReader(file)]
    training = [row for i, row in enumerate(rows) if row[1] > 0 and (i == 0 or row[1] > rows[i - 1][1])]
    warm = [row for row in training if row[0] >= training[0][0] + warmup_seconds] if training else []
    # The last one may have waited for the end of the run.
    warm = warm[:-1] if len(warm) > 2 else warm
    if len(warm) < 2:
        sys.exit(f"{path} has too few rows to measure: give --epochs more")
    return (warm[-1][1] - warm[0][1]) / (warm[-1][0] - warm[0][0])


def run_slackline(options):
    """Samples/s of a run with one worker and one server."""
    with tempfile.TemporaryDirectory() as folder:
        job = os.path.join(folder, "race.yaml")
        with open(job, "w") as file:
            file.write("name: race\n")
        settings = {
            "model.kind": options.model, "training.batch_size": options.batch, "training.epochs": options.epochs,
            "training.evaluate_every_epochs": 0, "cluster.workers": 1, "cluster.servers": 1,
            "worker.threads": options.threads, "consistency.mode": options.mode, "data.path": options.data,
            "output.folder": os.path.join(folder, "run"), "output.report_every_ms": 200, **dict(options.set),
        }
        overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        run([f"{options.build}/bin/slackline", "train", job, *overrides], options)
        return rate_of(os.path.join(folder, "run", "metrics.csv"))


def race(options):
    ratios = []
    for number in range(1, options.rounds + 1):
        plain, slackline = run_plain(options), run_slackline(options)
        ratios.append(slackline / plain)
        print(f"round {number}: plain {plain:.0f} samples/s, slackline {slackline:.0f} samples/s, "
              f"ratio {ratios[-1]:.3f}", flush=True)
    median = statistics.median(ratios)
    print(f"{options.model} batch {options.batch} threads {options.threads} order {options.order}: "
          f"median ratio {median:.3f} of {options.rounds} rounds, at least {options.minimum} wanted")
    return 0 if median >= options.minimum else 1


def pair(text):
    key, _, value = text.partition("=")
    return key, value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release", help="folder with bin/ (default: %(default)s)")
    parser.add_argument("--model", choices=["mlp", "cnn", "resnet18"], default="cnn")
    parser.add_argument("--order", choices=["textbook", "tuned"], default="tuned",
                        help="the plain loop's kernels; tuned are those of the worker (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of LibTorch, in both")
    parser.add_argument("--mode", choices=["async", "ssp", "bsp"], default="async")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2, help="of the run through Slackline")
    parser.add_argument("--seconds", type=float, default=15, help="of the plain loop")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--cores", type=lambda text: {int(core) for core in text.split(",")}, default=None,
                        help="such as 0,1; all that this process may use when not given")
    parser.add_argument("--minimum", type=float, default=0.9, help="median ratio that counts as success")
    parser.add_argument("--timeout-s", type=float, default=600, help="of each run")
    parser.add_argument("--set", type=pair, action="append", default=[], help="more settings of the job, KEY=VALUE")
    options = parser.parse_args()
    for program in ("worker_loop_bench", "slackline"):
        if not os.path.exists(f"{options.build}/bin/{program}"):
            print(f"{options.build}/bin/{program} is missing: build it first", file=sys.stderr)
            return 2
    return race(options)


if __name__ == "__main__":
    sys.exit(main())
