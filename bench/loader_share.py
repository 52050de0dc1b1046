#!/usr/bin/env python3
"""How many times as fast the worker's loader is as the model that it feeds, and how long a worker waits for it.

Images of --size, prepared, with a padding of 4 and flips, one thread of the loader. By itself `loader_bench` says how many images a
second are made ready. Then `slackline train` trains each of --models on them, one worker and one server, and epochs.csv says how long
that worker computed (compute_s) and had no batch (data_s). All in this one call; the medians of --rounds count.

  .cache/venv/bin/python bench/loader_share.py --build build/release

Exit codes: 0 no model waited for more than --share-max of its time, 1 one has, 2 something is missing.
"""

import argparse
import csv
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

try:
    from race_loader import PADDING, make_pictures, rate_of_slackline
except SystemExit:
    sys.exit(2)

CLASSES = 10
JOB = """
name: loader-share
model: {{kind: {model}, classes: {classes}}}
data: {{format: prepared, path: {data}, augment: {{flip: horizontal, crop_padding: {padding}}}}}
training: {{epochs: {epochs}, batch_size: {batch}}}
optimizer: {{lr: 0.001}}
consistency: {{mode: bsp}}
cluster: {{servers: 1, workers: 1}}
worker: {{threads: {threads}}}
"""


def train(root, prepared, model, number, options):
    """(images a second while it computes, share of its time without a batch), of all epochs but the first."""
    job, folder = root / f"{model}.yaml", root / f"{model}-{number}"
    job.write_text(JOB.format(model=model, data=prepared, padding=PADDING, epochs=options.epochs + 1, batch=options.batch,
                              threads=options.threads, classes=CLASSES))
    subprocess.run([f"{options.build}/bin/slackline", "train", str(job), "--run-folder", str(folder)], check=True,
                   stdout=subprocess.DEVNULL, timeout=1800)
    with open(folder / "epochs.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[1:]
    compute, data = (sum(float(row[name]) for row in rows) for name in ("compute_s", "data_s"))
    return options.images * len(rows) / compute, data / (compute + data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--models", nargs="+", default=["cnn", "resnet18"])
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="of the model")
    parser.add_argument("--epochs", type=int, default=2, help="that count, behind a first one")
    parser.add_argument("--seconds", type=float, default=3, help="of the loader by itself")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share-max", type=float, default=0.02)
    options = parser.parse_args()
    needed = [pathlib.Path(options.build, "bin", name) for name in ("loader_bench", "slackline", "slackline-worker")]
    if missing := [str(path) for path in needed if not path.exists()]:
        print(f"no {', '.join(missing)}: build the targets slackline, slackline-worker, slackline-ps, slackline-scheduler and "
              "loader_bench", file=sys.stderr)
        return 2
    shares = {}
    with tempfile.TemporaryDirectory(prefix="slackline-loader-") as name:
        root = pathlib.Path(name)
        make_pictures(root / "pictures", options.images + options.images // 10, options.size)
        subprocess.run([f"{options.build}/bin/slackline", "prepare", str(root / "pictures"), str(root / "prepared"), "--split",
                        f"train={10 / 11},test={1 / 11}", "--size", str(options.size)], check=True, stdout=subprocess.DEVNULL,
                       timeout=600)
        index = json.loads((root / "prepared/index.json").read_text())
        options.images = index["splits"]["train"]["images"]
        for model in options.models:
            ratios, waits, rates = [], [], []
            for number in range(options.rounds):
                loader = rate_of_slackline(root / "prepared", options)
                rate, wait = train(root, root / "prepared", model, number, options)
                ratios.append(loader / rate)
                rates.append(rate)
                waits.append(wait)
                print(f"{model}, round {number + 1}: loader {loader:.0f}/s, model {rate:.0f}/s, without a batch {100 * wait:.2f} %",
                      flush=True)
            shares[model] = statistics.median(waits)
            print(f"{model}: the model takes {statistics.median(rates):.0f}/s, the loader makes {statistics.median(ratios):.0f} "
                  f"times as many; {100 * shares[model]:.2f} % of the time without a batch")
    return 0 if max(shares.values()) <= options.share_max else 1


if __name__ == "__main__":
    sys.exit(main())
