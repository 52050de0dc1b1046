"""The Python package against a scheduler and servers of this machine: models, steps, errors, ends.

    package_test.py --programs FOLDER [TEST...]

Skipped (77) without PyTorch or without the package.
"""

import argparse
import contextlib
import gzip
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections import OrderedDict

from needs import needs

try:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    import slackline
    from slackline._errors import from_status
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

PROGRAMS = ""


def is_alive(process):
    try:
        status = pathlib.Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def name_of(process):
    return pathlib.Path(f"/proc/{process}/comm").read_text()


class Tied(nn.Module):
    """Two layers that share their weights, and one that forward does not use."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.unused = nn.Linear(3, 2)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x))).sum(1, keepdim=True)


class ThousandTensors(nn.Module):
    def __init__(self):
        super().__init__()
        self.shifts = nn.ParameterList([nn.Parameter(torch.full((3,), 0.01 * i)) for i in range(1000)])

    def forward(self, x):
        return x[:, :3] * sum(self.shifts)


def data(samples=48, inputs=4):
    generator = torch.Generator().manual_seed(3)
    return TensorDataset(
        torch.randn(samples, inputs, generator=generator), torch.randn(samples, 1, generator=generator)
    )


class Base(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def job(self, text=""):
        path = self.folder / "job.yaml"
        path.write_text(
            "model: {kind: external}\nnetwork: {metrics: false}\ntraining: {epochs: 2, batch_size: 8}\n" + text
        )
        return path

    def cluster(self, text="", **options):
        return slackline.local_cluster(self.job(text), programs=PROGRAMS, **options)

    def unconnected(self, text=""):
        """A worker of a job whose scheduler nobody has started."""
        return slackline.connect("127.0.0.1:1", str(self.job(text)), log="nothing")

    @contextlib.contextmanager
    def brief_cluster(self, text="", **options):
        """Its processes end while the test goes on."""
        entered = self.cluster(text, **options)
        cluster = entered.__enter__()
        try:
            yield cluster
        finally:
            end = threading.Thread(target=entered.__exit__, args=(None, None, None))
            end.start()
            self.addClassCleanup(end.join)

    def wait_for_event(self, cluster, event):
        """Until the scheduler has written of it."""
        deadline = time.monotonic() + 30
        log = pathlib.Path(cluster.run_folder) / "events.log"
        while not log.exists() or event not in log.read_text():
            self.assertLess(
                time.monotonic(), deadline, f"no event {event!r}: {log.read_text() if log.exists() else ''}"
            )
            threading.Event().wait(0.02)

    def check_against_sgd(self, model, count=48, servers=1, lr=0.1, loader=None, **options):
        """One worker under async does what torch.optim.SGD does with the same batches."""
        start = {name: value.clone() for name, value in model.state_dict().items()}
        dataset = data(count)
        seen = []
        with self.cluster(f"optimizer: {{lr: {lr}}}\nconsistency: {{mode: async}}\n", servers=servers) as cluster:
            with cluster.connect(log="warning") as worker:
                optimizer = slackline.Optimizer(model, worker, **options)
                loader = DataLoader(dataset, batch_size=8, sampler=worker.sampler(count), **(loader or {}))
                for x, y in worker.batches(loader):
                    seen.append((x.clone(), y.clone()))
                    optimizer.zero_grad()
                    ((model(x) - y) ** 2).mean().backward()
                    optimizer.step()
                self.assertEqual(worker.clock, len(seen))
                self.assertIn("complete", worker.reason)
        self.assertEqual(sum(len(x) for x, _ in seen), 2 * count)
        got = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(start)
        plain = torch.optim.SGD(model.parameters(), lr=lr)
        for x, y in seen:
            plain.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            # The learning rate is that of a whole batch.
            plain.param_groups[0]["lr"] = lr * len(x) / 8
            plain.step()
        for name, value in model.state_dict().items():
            torch.testing.assert_close(got[name], value, rtol=1e-4, atol=1e-6, msg=name)


class Models(Base):
    def test_tied_and_unused_parameters(self):
        model = Tied()
        self.check_against_sgd(model, servers=2)
        self.assertIs(model.second.weight, model.first.weight)

    def test_thousand_tensors(self):
        self.check_against_sgd(ThousandTensors(), count=16)

    def test_large_model_whose_gradients_leave_early(self):
        # Above what makes the exchange go on in the background.
        model = nn.Sequential(nn.Linear(4, 1024), nn.Tanh(), nn.Linear(1024, 4200), nn.Tanh(), nn.Linear(4200, 1))
        self.check_against_sgd(model, count=16, servers=2, lr=0.001)

    def test_passes_without_a_step(self):
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        large = nn.Sequential(nn.Linear(1, 2100), nn.Linear(2100, 2000), nn.Linear(2000, 1))
        overrides = ["training.epochs=1", "optimizer.lr=1", "consistency.mode=async"]
        for some, options in ((model, {}), (large, {"overlap": False}), (large, {})):
            with self.cluster(overrides=overrides) as cluster, cluster.connect(log="warning") as worker:
                optimizer = slackline.Optimizer(some, worker, **options)
                batches = iter(DataLoader(TensorDataset(torch.ones(16, 1)), batch_size=8, sampler=worker.sampler(16)))
                x = next(batches)[0]
                some(x).mean().backward()
                optimizer.zero_grad()
                if some is large and not options:
                    with self.assertRaisesRegex(RuntimeError, "or overlap=False where some passes"):
                        some(x).mean().backward()
                    continue
                some(x).mean().backward()
                optimizer.step()
                self.assertEqual(worker.clock, 1)
        self.assertEqual(model.weight.item(), -1.0)

    def test_gradients_that_leave_scaled(self):
        for overlap in (True, False):
            large = nn.Sequential(nn.Linear(1, 2100), nn.Linear(2100, 2000), nn.Linear(2000, 1))
            with self.cluster(overrides=["training.epochs=1"]) as cluster, cluster.connect(log="warning") as worker:
                optimizer = slackline.Optimizer(large, worker, overlap=overlap)
                scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
                x = next(iter(DataLoader(TensorDataset(torch.ones(16, 1)), batch_size=8, sampler=worker.sampler(16))))[0]
                scaler.scale(large(x).mean()).backward()
                if overlap:
                    with self.assertRaisesRegex(RuntimeError, "still scaled: with a GradScaler .* overlap=False"):
                        scaler.step(optimizer)
                    continue
                scaler.step(optimizer)
                self.assertEqual(worker.clock, 1)

    def test_batches_that_are_drawn_ahead(self):
        # 44 samples: the last batch of an epoch is smaller.
        self.check_against_sgd(Tied(), count=44, loader={"num_workers": 1})

    def test_small_last_batches(self):
        self.check_against_sgd(Tied(), count=44, overlap=False)

    def test_what_is_frozen_stays(self):
        model = Tied()
        model.unused.requires_grad_(False)
        before = model.unused.weight.clone()
        with self.cluster() as cluster, cluster.connect(log="warning") as worker:
            optimizer = slackline.Optimizer(model, worker)
            self.assertEqual([name for name, _, _ in optimizer.tensors], ["first.weight", "first.bias"])
            x, y = next(iter(DataLoader(data(), batch_size=8, sampler=worker.sampler(48))))
            ((model(x) - y) ** 2).mean().backward()
            optimizer.step()
            torch.testing.assert_close(model.unused.weight, before)
            model.unused.requires_grad_(True)
            with self.assertRaisesRegex(RuntimeError, "unused.weight was frozen"):
                optimizer.step()

    def test_running_statistics_are_exchanged_and_other_buffers_are_not(self):
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        model.register_buffer("mask", torch.full((2,), -torch.inf))
        before = model[1].running_mean.clone()
        with self.cluster() as cluster, cluster.connect(log="warning") as worker:
            optimizer = slackline.Optimizer(model, worker)
            self.assertEqual(
                [name for name, _, trained in optimizer.tensors if not trained], ["1.running_mean", "1.running_var"]
            )
            for x, y in worker.batches(DataLoader(data(), batch_size=8, sampler=worker.sampler(48))):
                optimizer.zero_grad()
                ((model(x) - y) ** 2).mean().backward()
                optimizer.step()
            self.assertFalse(torch.equal(model[1].running_mean, before))
            weights = pathlib.Path(cluster.run_folder) / "model.safetensors"
            self.assertTrue(weights.exists())

    def test_gradients_of_several_passes_add_up(self):
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        overrides = ["training.accumulate=2", "training.epochs=1", "optimizer.lr=1", "consistency.mode=async"]
        with self.cluster(overrides=overrides) as cluster, cluster.connect(log="warning") as worker:
            optimizer = slackline.Optimizer(model, worker)
            self.assertEqual(optimizer.accumulate, 2)
            loader = DataLoader(TensorDataset(torch.ones(16, 1)), batch_size=8, sampler=worker.sampler(16))
            for number, (x,) in enumerate(worker.batches(loader)):
                if number % 2 == 0:
                    optimizer.zero_grad()
                model(x).mean().backward()
                if number % 2 == 1:
                    optimizer.step()
            # Two passes of gradient 1, lr 1, in one step.
            self.assertEqual((worker.clock, model.weight.item()), (1, -2.0))

    def test_what_cannot_be_exchanged_is_refused(self):
        def worker():
            return slackline.connect("127.0.0.1:1", str(self.job()), log="nothing")

        for model, error, words in (
            (
                nn.Sequential(nn.Embedding(5, 2, sparse=True)),
                TypeError,
                "layer 0 makes sparse gradients; allowed are dense",
            ),
            (nn.Linear(2, 2).double(), TypeError, "weight is torch.float64; allowed are torch.float32, torch.bfloat16, torch.float16"),
            (nn.Linear(2, 2, device="meta"), TypeError, "weight is on meta; allowed is a device with memory"),
            (nn.Linear(2, 2).requires_grad_(False), ValueError, "2 parameters, of which none requires a gradient"),
            ([], TypeError, "found a model of type list"),
        ):
            with self.subTest(words), self.assertRaisesRegex(error, words):
                slackline.Optimizer(model, worker())
        model = nn.Linear(2, 1, bias=False)
        optimizer = slackline.Optimizer(model, worker())
        with self.assertRaisesRegex(TypeError, "weight has a gradient of layout torch.sparse_coo"):
            nn.functional.embedding(torch.tensor([0]), model.weight, sparse=True).sum().backward()
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)
        with self.assertRaisesRegex(ValueError, "of parameter bias where this model has weight"):
            optimizer.load_state_dict({"param_groups": [{"params": ["bias"]}]})


class Errors(Base):
    def test_job_files_mistakes_have_the_commands_words(self):
        path = self.job("optimizer: {lr: fast}\n")
        said = subprocess.run(
            [f"{PROGRAMS}/slackline", "check", path], capture_output=True, text=True, timeout=60, check=False
        )
        with self.assertRaises(ValueError) as raised:
            slackline.connect("127.0.0.1:1", str(path))
        self.assertIn(str(raised.exception), said.stderr)
        self.assertIsInstance(raised.exception, slackline.Error)
        self.assertEqual(raised.exception.code, "INVALID_ARGUMENT")
        self.assertEqual(str(type(raised.exception)), "<class 'slackline.InvalidArgumentError'>")
        with self.assertRaises(FileNotFoundError):
            slackline.connect("127.0.0.1:1", str(self.folder / "none.yaml"))
        with self.assertRaisesRegex(ValueError, "found no address and no job"):
            slackline.connect()
        with self.assertRaisesRegex(ValueError, "local.epochs: found 2; allowed is 0 where the worker is a script"):
            slackline.connect("127.0.0.1:1", str(self.job("local: {epochs: 2}\noptimizer: {lr: 1}\n")), overrides=["model.kind=mlp"])

    def test_scheduler_that_is_not_there(self):
        worker = slackline.connect(
            "127.0.0.1:1", str(self.job("timeouts: {startup_ms: 1000, heartbeat_ms: 50}\n")), log="nothing"
        )
        slackline.Optimizer(nn.Linear(4, 1), worker)
        # On a busy machine the call's deadline may come before the refusal.
        with self.assertRaisesRegex((ConnectionError, TimeoutError), "could not register at the scheduler"):
            next(iter(worker.sampler(8)))

    def test_the_cpp_worker_has_the_same_words(self):
        path = self.job("timeouts: {startup_ms: 1000, heartbeat_ms: 50}\n")
        worker = slackline.connect("127.0.0.1:1", str(path), log="nothing")
        slackline.Optimizer(nn.Linear(4, 1), worker)
        with self.assertRaises((slackline.UnavailableError, slackline.DeadlineExceededError)) as raised:
            next(iter(worker.sampler(8)))
        self.assertIn(raised.exception.code, ("UNAVAILABLE", "DEADLINE_EXCEEDED"))
        other = subprocess.run(
            [
                *(f"{PROGRAMS}/slackline-worker", path, "--scheduler", "127.0.0.1:1"),
                *("--set", "model.kind=mlp", "--set", "data.train_images_max=100"),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if "found no" in other.stderr:
            self.skipTest(other.stderr)
        # Up to what gRPC says of the connection.
        words = str(raised.exception).split(":")[0]
        self.assertIn("could not register at the scheduler", words)
        self.assertIn(words, other.stderr)

    def test_every_code_has_an_exception_that_is_also_pythons(self):
        for code, kind in {
            "INVALID_ARGUMENT": ValueError,
            "OUT_OF_RANGE": ValueError,
            "NOT_FOUND": FileNotFoundError,
            "ALREADY_EXISTS": FileExistsError,
            "PERMISSION_DENIED": PermissionError,
            "UNAUTHENTICATED": PermissionError,
            "UNAVAILABLE": ConnectionError,
            "DEADLINE_EXCEEDED": TimeoutError,
            "UNIMPLEMENTED": NotImplementedError,
            "CANCELLED": RuntimeError,
            "FAILED_PRECONDITION": RuntimeError,
            "RESOURCE_EXHAUSTED": RuntimeError,
            "ABORTED": RuntimeError,
            "DATA_LOSS": RuntimeError,
            "INTERNAL": RuntimeError,
            "UNKNOWN": slackline.Error,
        }.items():
            with self.subTest(code):
                error = from_status(code, "ps-1: push is 9 versions old, the bound is 8")
                self.assertIsInstance(error, kind)
                self.assertIsInstance(error, slackline.Error)
                self.assertEqual((error.code, str(error)), (code, "ps-1: push is 9 versions old, the bound is 8"))

    def test_order_of_calls(self):
        with self.cluster() as cluster, cluster.connect(log="warning") as worker:
            with self.assertRaisesRegex(slackline.FailedPreconditionError, "make a slackline.Optimizer"):
                next(iter(worker.sampler(48)))
            with self.assertRaisesRegex(ValueError, "found a data set of 40 samples; the job's has 48"):
                worker.sampler(40)
            with self.assertRaisesRegex(TypeError, "found perplexity of type str; allowed is a number"):
                worker.report(perplexity="3")
            model = nn.Linear(4, 1)
            optimizer = slackline.Optimizer(model, worker)
            with self.assertRaisesRegex(slackline.FailedPreconditionError, "a step needs samples, and 0 were drawn"):
                optimizer.step()
            worker.alive()
            batches = iter(DataLoader(data(), batch_size=8, sampler=worker.sampler(48)))
            next(batches)
            worker.alive()
            worker.report(loss=float("nan"))
            with self.assertRaisesRegex(slackline.FailedPreconditionError, "found loss=nan in a report; allowed is a finite number"):
                optimizer.step()
            worker.report(loss=1.0)
            model.weight.grad = torch.full((1, 4), torch.nan)
            with self.assertRaisesRegex(
                slackline.InternalError, "the gradient's norm is nan; nothing of it was applied"
            ):
                optimizer.step()

    def test_another_model_than_the_first_workers_is_refused(self):
        with self.cluster() as cluster, cluster.connect(name="first", log="warning") as first:
            slackline.Optimizer(nn.Linear(4, 1), first)
            next(iter(first.sampler(48)))
            with cluster.connect(name="second", log="warning") as second:
                slackline.Optimizer(nn.Linear(5, 1), second)
                with self.assertRaisesRegex(ValueError, r"has tensor weight \[1, 5\] as its tensor number 1"):
                    next(iter(second.sampler(48)))

    def test_raising_script_says_why_it_leaves(self):
        with self.cluster() as cluster:
            with self.assertRaises(ZeroDivisionError):
                with cluster.connect(name="clumsy", log="warning") as worker:
                    slackline.Optimizer(nn.Linear(4, 1), worker)
                    next(iter(worker.sampler(48)))
                    raise ZeroDivisionError("by me")
            self.assertTrue(worker.done)
            self.wait_for_event(cluster, "failed: ZeroDivisionError: by me")


class Beside(Base):
    """A script and the C++ worker in one job."""

    FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
    IMAGES = 1000
    # The script takes a step in 2 ms, and the other worker may first ask for work 300 ms after training began.
    EPOCHS = 10
    WIRE = ""

    def fashion(self, what, header):
        with gzip.open(self.FASHION / f"train-{what}-ubyte.gz") as file:
            return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)

    def check_beside(self, mode):
        if not self.FASHION.exists():
            self.skipTest(f"there is no {self.FASHION}")
        images = self.fashion("images-idx3", 16)[: self.IMAGES * 784].float().view(self.IMAGES, 784)
        dataset = TensorDataset((images / 255 - 0.286) / 0.353, self.fashion("labels-idx1", 8)[: self.IMAGES].long())
        path = self.folder / "mlp.yaml"
        path.write_text(
            f"model: {{kind: mlp, hidden: [16]}}\ndata: {{train_images_max: {self.IMAGES}}}\n"
            f"training: {{epochs: {self.EPOCHS}, batch_size: 20, evaluate_every_epochs: 0}}\nconsistency: {{mode: {mode}}}\n"
            f"network: {{metrics: false}}\n{self.WIRE}"
        )
        with slackline.local_cluster(path, workers=2, programs=PROGRAMS) as cluster:
            settings = [word for one in cluster.overrides for word in ("--set", one)]
            with open(self.folder / "cpp.log", "wb") as log:
                other = subprocess.Popen(
                    [
                        f"{PROGRAMS}/slackline-worker",
                        cluster.job,
                        "--scheduler",
                        cluster.address,
                        "--name",
                        "cpp",
                        *settings,
                    ],
                    stdout=log,
                    stderr=log,
                )
            try:
                with cluster.connect(name="script", log="warning") as worker:
                    # The names that the C++ worker has.
                    model = nn.Sequential(OrderedDict(fc1=nn.Linear(784, 16), relu=nn.ReLU(), fc2=nn.Linear(16, 10)))
                    optimizer = slackline.Optimizer(model, worker)
                    worker.evaluation(lambda: None, samples=10000)
                    loss = nn.CrossEntropyLoss()
                    for x, y in worker.batches(DataLoader(dataset, batch_size=20, sampler=worker.sampler(self.IMAGES))):
                        optimizer.zero_grad()
                        error = loss(model(x), y)
                        error.backward()
                        worker.report(loss=error.item())
                        optimizer.step()
                self.assertEqual(other.wait(60), 0, (self.folder / "cpp.log").read_text())
            finally:
                other.kill()
                other.wait()
            self.assertIn("complete", worker.reason)
            clock = worker.clock
            with torch.no_grad():
                accuracy = (model(dataset.tensors[0]).argmax(1) == dataset.tensors[1]).float().mean().item()
            said = (self.folder / "cpp.log").read_text()
        self.assertIn("live as worker", said)
        # Each of the two has taken some of the steps.
        steps = self.EPOCHS * self.IMAGES // 20
        self.assertGreater(clock, 10)
        self.assertLess(clock, steps - 10)
        self.assertGreater(accuracy, 0.6, "weights that both have trained")

    def test_in_bsp(self):
        self.check_beside("bsp")

    def test_in_async(self):
        self.check_beside("async")

    def test_in_softsync(self):
        self.check_beside("softsync")

    def test_in_quorum(self):
        # Half of two is each of them: what the other one pushes is late, and of no step.
        self.check_beside("quorum, quorum: 0.5")


class Processes(Base):
    def check_end(self, code):
        """The cluster of the script ends when that is killed."""
        script = subprocess.Popen(
            [sys.executable, "-c", code, str(self.job()), PROGRAMS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            pids = [int(word) for word in script.stdout.readline().split()]
            self.assertEqual(len(pids), 2)
            # Before, setpriv may not have asked for the signal yet that ends them.
            deadline = time.monotonic() + 30
            while not all(name_of(pid).startswith("slackline") for pid in pids):
                self.assertLess(time.monotonic(), deadline, [name_of(pid) for pid in pids])
                threading.Event().wait(0.01)
        finally:
            script.kill()
            script.communicate()
        deadline = time.monotonic() + 30
        while left := [pid for pid in pids if is_alive(pid)]:
            self.assertLess(time.monotonic(), deadline, f"still there: {left}")
            threading.Event().wait(0.02)

    def test_cluster_ends_with_a_process_that_is_killed(self):
        self.check_end(
            "import sys, slackline\n"
            "with slackline.local_cluster(sys.argv[1], programs=sys.argv[2]) as cluster:\n"
            "    print(*(process.pid for _, process in cluster._processes), flush=True)\n"
            "    sys.stdin.read()\n"
        )

    def test_cluster_of_a_thread_outlives_it_and_ends_with_the_process(self):
        self.check_end(
            "import contextlib, subprocess, sys, threading, slackline\n"
            "stack, clusters = contextlib.ExitStack(), []\n"
            "def begin():\n"
            "    clusters.append(stack.enter_context(slackline.local_cluster(sys.argv[1], programs=sys.argv[2])))\n"
            "thread = threading.Thread(target=begin)\n"
            "thread.start()\n"
            "thread.join()\n"
            "with contextlib.suppress(subprocess.TimeoutExpired):\n"
            "    clusters[0]._processes[0][1].wait(1)\n"
            "    sys.exit('it has ended with the thread')\n"
            "print(*(process.pid for _, process in clusters[0]._processes), flush=True)\n"
            "sys.stdin.read()\n"
        )

    def check_order(self, *modules):
        code = f"import {', '.join(modules)}\nassert torch.ones(3).sum() == 3\nslackline._core.log_as('x', 'info')"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=120)

    def test_order_of_imports(self):
        self.check_order("slackline", "torch")
        self.check_order("torch", "slackline")

    @needs("google.protobuf")
    def test_protobuf_of_python_may_be_imported_too(self):
        self.check_order("torch", "slackline", "google.protobuf.descriptor_pb2")
        self.check_order("google.protobuf.descriptor_pb2", "slackline", "torch")

    def test_ctrl_c_ends_a_wait(self):
        # It waits for a second worker that never comes.
        code = (
            "import sys, torch, slackline\n"
            "address, job, *overrides = sys.argv[1:]\n"
            "worker = slackline.connect(address, job, overrides=overrides, name='waiting', log='nothing')\n"
            "slackline.Optimizer(torch.nn.Linear(4, 1), worker)\n"
            "try:\n"
            "    print('joins', flush=True)\n"
            "    next(iter(worker.sampler(48)))\n"
            "except KeyboardInterrupt:\n"
            "    worker.leave('interrupted')\n"
            "    print('left', worker.reason, flush=True)\n"
        )
        with self.cluster(workers=2) as cluster:
            script = subprocess.Popen(
                [sys.executable, "-c", code, cluster.address, cluster.job, *cluster.overrides],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            try:
                self.assertEqual(script.stdout.readline(), "joins\n")
                self.wait_for_event(cluster, "worker waiting is there")
                script.send_signal(signal.SIGINT)
                said, _ = script.communicate(timeout=20)
                self.assertIn("left interrupted by a signal", said)
            finally:
                script.kill()
                script.communicate()


def main():
    global PROGRAMS
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", required=True)
    options, rest = parser.parse_known_args()
    PROGRAMS = options.programs
    torch.set_num_threads(1)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
