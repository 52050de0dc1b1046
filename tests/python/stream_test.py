"""Streams: files of unknown length, whose every record is trained once, whoever dies.

    stream_test.py --programs FOLDER [TEST...]

The model has a weight for each record, and a step adds 1/8 to those of its records: the weights count.
Skipped (77) without PyTorch or without the package.
"""

import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import threading
from unittest import mock

import package_test
from package_test import DataLoader, main, nn, slackline, torch

BATCH = 8
WAIT_S = 120
# Lengths of the files: none is a multiple of the batch, and one is empty.
FILES = (61, 43, 0, 85, 1, 58, 70)
# Such a model has no push that a kill cuts in two.
ONE_SHARD = "cluster: {shards_per_server: 1}\n"

SCRIPT = r"""
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import stream_test
stream_test.train(*(word or None for word in sys.argv[2:5]), options=eval(sys.argv[5]))
"""


def read(path):
    with open(path) as lines:
        for line in lines:
            yield torch.tensor(int(line))


def seek(path, position):
    for number, record in enumerate(read(path)):
        if number >= position:
            yield record


def train(address, job, folder, options):
    """Trains all files of the folder.

    Options: dies_after, number of steps after which it kills itself; waits_for, a file without which it takes no second step.
    """
    records, files = sum(FILES), sorted(str(path) for path in pathlib.Path(folder).glob("*.txt"))
    model = nn.Embedding(records, 1)
    nn.init.zeros_(model.weight)
    with slackline.connect(address, job, name=options.get("name"), overrides=options.get("overrides", ())) as worker:
        optimizer = slackline.Optimizer(model, worker)
        stream = worker.stream(
            files, seek if options.get("seeks") else read, samples=options.get("samples", 10_000),
            passes=options.get("passes", 1), seeks=options.get("seeks", False),
        )
        loader = DataLoader(stream, batch_size=BATCH, num_workers=options.get("num_workers", 0))
        for batch in worker.batches(loader):
            optimizer.zero_grad()
            (-model(batch).mean()).backward()
            optimizer.step()
            threading.Event().wait(options.get("pause_s", 0))
            if worker.clock >= options.get("dies_after", 1 << 60):
                os.kill(os.getpid(), signal.SIGKILL)
            if worker.clock >= options.get("leaves_after", 1 << 60):
                break
            if worker.clock == 1:
                print("has begun", flush=True)
                while not os.path.exists(options.get("waits_for", "/")):
                    threading.Event().wait(0.01)
        print(f"{worker.name}: {worker.clock} steps, {worker.reason}", flush=True)


def weights(folder):
    """Those of model.safetensors."""
    data = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    (tensor,) = [one for name, one in json.loads(data[8 : 8 + size]).items() if name != "__metadata__"]
    begin, end = tensor["data_offsets"]
    return torch.frombuffer(bytearray(data[8 + size + begin : 8 + size + end]), dtype=torch.float32)


class Base(package_test.Base):
    JOB = (
        "consistency: {mode: async}\noptimizer: {lr: 1, momentum: 0}\n"
        "timeouts: {heartbeat_ms: 100}\n"
    )

    def setUp(self):
        super().setUp()
        self.files = self.folder / "files"
        self.files.mkdir()
        number = 0
        for name, length in enumerate(FILES):
            (self.files / f"{name}.txt").write_text("".join(f"{number + i}\n" for i in range(length)))
            number += length
        self.run_folder = self.folder / "run"

    def open(self, text="", **options):
        options = {"overrides": ["training.epochs=1"], "workers": 2, **options}
        return self.cluster(self.JOB + text, run_folder=self.run_folder, **options)

    def start(self, cluster, name, **options):
        options = {"name": name, "overrides": cluster.overrides, **options}
        log = open(self.folder / f"{name}.log", "ab")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(pathlib.Path(__file__).parent), cluster.address, cluster.job,
             str(self.files), repr(options)],
            stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

        def end():
            process.kill()
            process.wait()

        self.addCleanup(end)
        return process

    def logs(self):
        paths = [*self.folder.glob("*.log"), *self.run_folder.glob("*.log")]
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')}" for path in paths)

    def wait_until(self, condition):
        for _ in range(WAIT_S * 100):
            if condition():
                return
            threading.Event().wait(0.01)
        self.fail(f"waited {WAIT_S} s; {self.logs()}")

    def check_ends(self, process, code=0):
        self.wait_until(lambda: process.poll() is not None)
        self.assertEqual(process.returncode, code, self.logs())

    def check_trained(self, times=1, of=slice(None)):
        counts = weights(self.run_folder) * BATCH
        wrong = {i: n for i, n in enumerate(counts.tolist()) if abs(n - times) > 1e-3}
        self.assertEqual({i: n for i, n in wrong.items() if i in range(sum(FILES))[of]}, {}, self.logs())


class Streams(Base):
    def check_kill(self, servers=1, text="", **options):
        """Two of three workers are killed, and no record is lost or trained twice."""
        died = self.folder / "died"
        with self.open(text, servers=servers, workers=3) as cluster:
            steady = self.start(cluster, "steady", waits_for=str(died), **options)
            killed = [self.start(cluster, f"killed-{steps}", dies_after=steps, **options) for steps in (2, 4)]
            for one in killed:
                self.check_ends(one, -signal.SIGKILL)
            died.touch()
            self.check_ends(steady)
        self.check_trained()

    def test_killed_worker_loses_and_doubles_nothing(self):
        self.check_kill()

    def test_killed_worker_whose_loader_has_processes(self):
        self.check_kill(num_workers=2)

    def test_killed_worker_of_several_servers(self):
        self.check_kill(servers=2, seeks=True)

    def test_killed_worker_with_pushes_in_flight(self):
        self.check_kill(text=f"wire: {{window: 3}}\n{ONE_SHARD}")

    def test_worker_that_is_killed_at_any_moment(self):
        died = self.folder / "died"
        with self.open(ONE_SHARD, workers=3) as cluster:
            steady = self.start(cluster, "steady", waits_for=str(died))
            killed = [self.start(cluster, f"killed-{number}", pause_s=0.002) for number in range(2)]
            for number, one in enumerate(killed):
                log = self.folder / f"killed-{number}.log"
                self.wait_until(lambda log=log, one=one: "has begun" in log.read_text() or one.poll() is not None)
            for one in killed:
                threading.Event().wait(random.uniform(0, 0.05))
                one.kill()
                one.wait()
            died.touch()
            self.check_ends(steady)
        self.check_trained()

    def test_worker_that_leaves_in_the_middle(self):
        left = self.folder / "left"
        with self.open() as cluster:
            steady = self.start(cluster, "steady", waits_for=str(left))
            self.check_ends(self.start(cluster, "leaver", leaves_after=3, num_workers=1))
            left.touch()
            self.check_ends(steady)
        self.check_trained()

    def test_two_passes(self):
        with self.open() as cluster:
            workers = [self.start(cluster, name, passes=2) for name in ("one", "other")]
            for one in workers:
                self.check_ends(one)
        self.check_trained(times=2)
        self.assertIn("training is complete: the stream is read to its end", (self.run_folder / "events.log").read_text())

    def test_stream_goes_round_until_the_epochs_are_over(self):
        with self.open(workers=1) as cluster:
            self.check_ends(self.start(cluster, "one", passes=None, samples=2 * sum(FILES)))
        counts = weights(self.run_folder) * BATCH
        self.assertGreaterEqual(counts.min().item(), 2 - 1e-3)
        # The last batch may be larger than what was left.
        self.assertLess(counts.sum().item(), 2 * sum(FILES) + BATCH)
        self.assertIn("the job is done: training is complete", (self.run_folder / "events.log").read_text())


class Resumed(Base):
    def test_run_that_is_stopped_goes_on_exactly(self):
        options = {"num_workers": 2, "pause_s": 0.03}
        with self.open(servers=2) as cluster:
            workers = [self.start(cluster, name, **options) for name in ("one", "other")]
            self.wait_until(lambda: "has begun" in self.logs())
            threading.Event().wait(0.1)
        for one in workers:
            self.check_ends(one)
        self.assertFalse((self.run_folder / "model.safetensors").exists(), self.logs())
        (checkpoint,) = (self.run_folder / "checkpoints").glob("*/")
        start = slackline.LocalCluster._start

        def go_on(cluster, name, program, *arguments):
            more = ("--from-checkpoint", str(checkpoint)) if name == "scheduler" else ()
            start(cluster, name, program, *arguments, *more)

        (self.run_folder / "scheduler.address").unlink(missing_ok=True)
        with mock.patch.object(slackline.LocalCluster, "_start", go_on), self.open() as cluster:
            workers = [self.start(cluster, name) for name in ("third", "fourth")]
            for one in workers:
                self.check_ends(one)
        self.check_trained()


class Refused(Base):
    """Messages of what a stream cannot do."""

    def setUp(self):
        super().setUp()
        self.cluster_ = self.enterContext_(self.open(workers=1))
        self.worker = self.cluster_.connect(log="nothing")
        self.addCleanup(self.worker.leave)
        self.model = nn.Linear(1, 1)
        self.optimizer = slackline.Optimizer(self.model, self.worker)

    def enterContext_(self, context):  # unittest has it from 3.11 on
        entered = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return entered

    def stream(self, parts=(3,), read=range, **options):
        return self.worker.stream(parts, read, **{"samples": 9, **options})

    def refuse(self, error, words, act):
        with self.assertRaisesRegex(error, words):
            act()

    def test_other_data_of_unknown_length(self):
        class Lines(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(range(3))

        self.refuse(TypeError, r"over a Lines, .*; allowed is worker.stream\(parts, read, samples=...\)",
                    lambda: next(self.worker.batches(DataLoader(Lines()))))  # fmt: skip

    def test_arguments(self):
        self.refuse(TypeError, "found parts of type generator; allowed is a list", lambda: self.stream(i for i in ()))
        self.refuse(ValueError, "a stream of 0 parts; allowed are 1 to 1000000", lambda: self.stream(()))
        self.refuse(ValueError, "found 0 samples in an epoch", lambda: self.stream(samples=0))
        self.refuse(ValueError, "found passes=0", lambda: self.stream(passes=0))
        self.stream()
        self.refuse(slackline.FailedPreconditionError, r"has a stream\(\) already", self.stream)
        self.refuse(slackline.FailedPreconditionError, r"has a stream\(\)", lambda: self.worker.sampler(9))

    def test_loaders_that_would_lose_records(self):
        stream = self.stream()
        self.refuse(slackline.FailedPreconditionError, r"loop over worker.batches\(loader\)",
                    lambda: next(iter(DataLoader(stream))))  # fmt: skip
        for setting in ({"drop_last": True, "batch_size": 2}, {"persistent_workers": True, "num_workers": 1}):
            loader = DataLoader(stream, **setting)
            self.refuse(ValueError, f"found {next(iter(setting))}=True", lambda: next(self.worker.batches(loader)))

    def test_parts_without_records(self):
        self.refuse(slackline.FailedPreconditionError, "found 2 parts of the stream without a record",
                    lambda: next(self.worker.batches(DataLoader(self.stream(parts=(0, 0))))))  # fmt: skip

    def test_streams_that_differ(self):
        model = nn.Linear(1, 1)
        for batch in self.worker.batches(DataLoader(self.stream(parts=("a", "b"), read=lambda part: [torch.ones(1)]))):
            self.model(batch).sum().backward()
            self.optimizer.step()
            break
        with self.cluster_.connect(name="other", log="nothing") as other:
            slackline.Optimizer(model, other)
            stream = other.stream(("a", "c"), lambda part: [torch.ones(1)], samples=9)
            self.refuse(ValueError, "list of parts with fingerprint .*: all workers",
                        lambda: next(other.batches(DataLoader(stream))))  # fmt: skip


if __name__ == "__main__":
    main()
