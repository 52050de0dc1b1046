#!/usr/bin/env python3
"""A ledger-worker in plain Python: in the place of slackline-worker, for `bench/soak/soak.py --reference`.

    reference_ledger.py --slackline PROGRAM JOB.yaml --scheduler RUN/scheduler.address --name NAME-1 [--set KEY=VALUE ...]

The exchange is that of examples/python/, which shares no code with the C++ worker. Pushes and the ledger, a file in the working
folder, are as ledger_worker.cc describes them.
"""
import argparse
import pathlib
import subprocess
import sys
import threading
import time

import numpy as np
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"))
from reference_client import Exchange, PutOut, Scheduler, Stopped, Wire  # noqa: E402
from reference_worker import live  # noqa: E402

# As ledger_worker.cc has them.
WORKERS_MAX, SLOTS, RUNS, TEST_SAMPLES = 4, 16384, 4, 500
# How long a gradient takes: then ten minutes of pushes fit into the slots, and each slot has one push.
COMPUTE_S = 0.025


class Ledger:
    def __init__(self, path):
        text = path.read_text() if path.exists() else ""
        begun = [int(line.split()[1]) for line in text.splitlines() if line.startswith("begin")]
        self.next_slot = begun[-1] + 1 if begun else 0
        # Unbuffered: a process that is killed loses no line.
        self.file = open(path, "ab", buffering=0)  # pylint: disable=consider-using-with

    def write(self, line):
        self.file.write(f"{line}\n".encode())


class LedgerModel:
    """A gradient of -1 in the elements of this push's slot; for reference_worker.live()."""

    def __init__(self, number, ledger):
        self.size = RUNS * WORKERS_MAX * SLOTS
        self.tensors = [("counts", (self.size,))]
        self._number, self._ledger = number, ledger

    def views(self, flat):
        return [flat]

    def initial(self, seed):
        del seed
        return np.zeros(self.size, np.float32)

    def gradient(self, flat, images, labels):
        del flat, images, labels
        threading.Event().wait(COMPUTE_S)
        gradient = np.zeros(self.size, np.float32)
        for run in range(RUNS):
            gradient[(run * SLOTS + self._ledger.next_slot % SLOTS) * WORKERS_MAX + self._number % WORKERS_MAX] = -1
        return gradient, 1.0, 0

    def forward(self, flat, images):
        del flat
        return [np.zeros((len(images), 10), np.float32)]


class LedgerExchange(Exchange):
    """Notes what goes out and what comes back."""

    def __init__(self, wire, scheduler, first_clock, ledger):
        super().__init__(wire, scheduler, first_clock)
        self._ledger, self._noted = ledger, 0
        ledger.write(f"life {scheduler.incarnation}")

    def step(self, sequence, values, commit=None, seed=False):
        if seed:
            super().step(sequence, values, commit, seed)
            return
        begin, discarded = time.monotonic(), self.discarded
        self._ledger.write(f"begin {self._ledger.next_slot}")
        self._ledger.next_slot += 1
        super().step(sequence, values, commit)
        discarded, lost = self.discarded - discarded, self.lost - self._noted
        self._noted = self.lost
        self._ledger.write(f"end {len(self.shards) - discarded} {discarded} {lost} {time.monotonic() - begin:.6f} {time.time():.6f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slackline", required=True)
    parser.add_argument("job")
    parser.add_argument("--scheduler", type=pathlib.Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--set", action="append", help="of this process; there is nothing here that it could change")
    arguments = parser.parse_args()
    job = yaml.safe_load(pathlib.Path(arguments.job).read_text())
    fingerprint = subprocess.run([arguments.slackline, "check", "--fingerprint", arguments.job], capture_output=True, text=True,
                                 check=True).stdout
    ledger = Ledger(pathlib.Path(f"ledger.{arguments.name}"))
    model = LedgerModel(int(arguments.name.rpartition("-")[2]), ledger)

    def read(stem):
        labels = np.zeros(job["data"]["train_images_max"] if stem == "train" else TEST_SAMPLES, np.int64)
        return lambda which: labels[which], labels

    def connect(wire, scheduler, first_clock, reader=False):
        return Exchange(wire, scheduler, first_clock, reader) if reader else LedgerExchange(wire, scheduler, first_clock, ledger)

    wire = Wire()
    scheduler = Scheduler(wire, arguments.scheduler.parent, job, [], model, len(read("train")[1]), TEST_SAMPLES,
                          int(fingerprint, 16), arguments.name)
    while True:
        try:
            return live(wire, scheduler, job, model, read, connect)
        except PutOut as error:
            print(error, file=sys.stderr)
        except Stopped as error:
            sys.exit(f"reference_ledger.py: {error}")


if __name__ == "__main__":
    main()
