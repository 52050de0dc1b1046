"""Scripts with several pushes in flight (wire.window), against a scheduler and servers of this machine.

    window_test.py --programs FOLDER [TEST...]

Skipped (77) without PyTorch or without the package.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile

from package_test import Base, Beside, DataLoader, TensorDataset, main, nn, slackline, torch

# Its gradient is 1, whatever its weight is: the weight counts pushes.
COUNTER = "model = torch.nn.Linear(1, 1, bias=False)\ntorch.nn.init.zeros_(model.weight)\n"

# Pushes three times, waits for the first of them, and is killed.
KILLED = (
    "import os, signal, sys, torch, slackline\n"
    f"address, job, *overrides = sys.argv[1:]\n{COUNTER}"
    "worker = slackline.connect(address, job, overrides=overrides, name='killed', log='nothing')\n"
    "optimizer = slackline.Optimizer(model, worker)\n"
    "loader = torch.utils.data.DataLoader(torch.ones(96, 1), batch_size=8, sampler=worker.sampler(96))\n"
    "for number, x in enumerate(worker.batches(loader), 1):\n"
    "    optimizer.zero_grad()\n"
    "    model(x).mean().backward()\n"
    "    optimizer.step()\n"
    "    if number == 3:\n"
    "        os.kill(os.getpid(), signal.SIGKILL)\n"
)


@contextlib.contextmanager
def stderr():
    """What this process, and what is C++ in it, writes there meanwhile."""
    with tempfile.TemporaryFile("w+") as file:
        sys.stderr.flush()
        before = os.dup(2)
        os.dup2(file.fileno(), 2)

        def said():
            file.seek(0)
            return file.read()

        try:
            yield said
        finally:
            os.dup2(before, 2)
            os.close(before)
            print(said(), end="", file=sys.stderr)


class Window(Base):
    LR_1 = "optimizer: {lr: 1}\n"

    def counter(self):
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        return model

    def ones(self, worker, samples=96):
        return DataLoader(TensorDataset(torch.ones(samples, 1)), batch_size=8, sampler=worker.sampler(samples))

    def push(self, model, optimizer, x):
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()

    def test_every_push_counts_once(self):
        for mode in ("ssp", "bsp"):
            text = f"wire: {{window: 3}}\nconsistency: {{mode: {mode}}}\n"
            with self.subTest(mode), self.brief_cluster(text + self.LR_1) as cluster, cluster.connect(log="warning") as worker:
                model = self.counter()
                optimizer = slackline.Optimizer(model, worker)
                behind, staleness = [], []
                for number, (x,) in enumerate(worker.batches(self.ones(worker)), 1):
                    self.push(model, optimizer, x)
                    self.assertIsNone(model.weight.grad)
                    behind.append(number - worker.clock)
                    staleness.append(worker.staleness)
                    # What it computes on has all that has been answered.
                    self.assertLessEqual(model.weight.item(), -worker.clock)
                self.assertIn("complete", worker.reason)
                self.assertEqual((worker.clock, model.weight.item()), (24, -24.0))
                self.assertEqual(max(behind), 2)
                self.assertLessEqual(max(staleness), 2)

    def test_large_model_whose_gradients_leave_early(self):
        text = "wire: {window: 2}\nconsistency: {mode: async}\n"
        # The gradient of the last layer is 1, of the others 0.
        large = nn.Sequential(nn.Linear(1, 2100), nn.Linear(2100, 2000), nn.Linear(2000, 1))
        for one in large[:2]:
            nn.init.zeros_(one.weight)
        for one in large:
            nn.init.zeros_(one.bias)
        nn.init.zeros_(large[2].weight)
        with self.brief_cluster(text + self.LR_1, servers=2) as cluster, cluster.connect(log="warning") as worker:
            optimizer = slackline.Optimizer(large, worker)
            for (x,) in worker.batches(self.ones(worker, 48)):
                self.push(large, optimizer, x)
            self.assertEqual((worker.clock, large[2].bias.item()), (12, -12.0))
            self.assertFalse(large[0].weight.any())

    def test_running_statistics_are_those_of_all_pushes(self):
        text = "wire: {window: 3}\nconsistency: {mode: async}\n"
        model = nn.Sequential(nn.BatchNorm1d(1, affine=False, momentum=0.5), nn.Linear(1, 1))
        with self.brief_cluster(text) as cluster, cluster.connect(log="warning") as worker:
            optimizer = slackline.Optimizer(model, worker)
            for (x,) in worker.batches(self.ones(worker)):
                self.push(model, optimizer, x)
            # From 0 to the mean of the samples, 1.
            self.assertGreater(model[0].running_mean.item(), 0.9)

    def test_raising_script_leaves_with_its_pushes_taken(self):
        text = "wire: {window: 3}\nconsistency: {mode: ssp}\n"
        with self.brief_cluster(text + self.LR_1) as cluster:
            model = self.counter()
            with self.assertRaises(ZeroDivisionError):
                with cluster.connect(name="clumsy", log="warning") as worker:
                    optimizer = slackline.Optimizer(model, worker)
                    batches = worker.batches(self.ones(worker))
                    for _ in range(2):
                        self.push(model, optimizer, next(batches)[0])
                    self.assertEqual((worker.clock, model.weight.item()), (0, 0.0))
                    raise ZeroDivisionError("by me")
            self.assertEqual((worker.clock, model.weight.item()), (2, -2.0))
            self.wait_for_event(cluster, "failed: ZeroDivisionError: by me")

    def test_what_a_raising_script_has_trained_nobody_trains_again(self):
        class Own(DataLoader):
            """It may draw ahead, for all that anybody knows."""

        text = "wire: {window: 2}\nconsistency: {mode: async}\n"
        for loader, workers, again in ((DataLoader, 0, 0), (DataLoader, 1, 0), (Own, 0, 2)):
            with self.subTest(loader, workers=workers), self.brief_cluster(text + self.LR_1) as cluster:
                model = self.counter()
                with self.assertRaises(ZeroDivisionError), cluster.connect(name="clumsy", log="nothing") as worker:
                    optimizer = slackline.Optimizer(model, worker)
                    dataset = TensorDataset(torch.ones(96, 1))
                    given = loader(dataset, batch_size=8, sampler=worker.sampler(96), num_workers=workers)
                    for number, (x,) in enumerate(worker.batches(given)):
                        if number == 2:
                            raise ZeroDivisionError("by me")
                        self.push(model, optimizer, x)
                # The first range is half of the 96 samples, and two batches of it were pushed.
                self.wait_for_event(cluster, f"the {48 - 16 + 8 * again} samples that worker clumsy held go to others")
                other = self.counter()
                with cluster.connect(name="other", log="nothing") as worker:
                    optimizer = slackline.Optimizer(other, worker)
                    for (x,) in worker.batches(self.ones(worker)):
                        self.push(other, optimizer, x)
                    self.assertIn("complete", worker.reason)
                self.assertEqual(other.weight.item(), -24.0 - again)

    def test_nobody_waits_long_for_those_who_leave(self):
        # Its pushes wait for those of a worker that pushes nothing: it leaves without their answers.
        text = "wire: {window: 3}\nconsistency: {mode: bsp}\n"
        with self.brief_cluster(text, workers=2) as cluster, cluster.connect(name="first", log="nothing") as first:
            model = self.counter()
            optimizer = slackline.Optimizer(model, first)
            with Joined(cluster) as second:
                batches = first.batches(self.ones(first))
                for _ in range(2):
                    self.push(model, optimizer, next(batches)[0])
                with stderr() as said:
                    slackline._core.log_as("first", "warning")
                    first.leave("enough")
                    # Their answers would have come with the other's first push, which waits for us.
                    self.assertRegex(
                        said(), "leaves with 2 steps in flight, which may be lost: .* has waited for its last steps long enough"
                    )
                self.assertEqual(first.clock, 0)
                self.assertIn("complete", second.train())

    def test_killed_with_pushes_in_flight(self):
        text = "wire: {window: 3}\nconsistency: {mode: async}\ntimeouts: {heartbeat_ms: 50}\n"
        with self.brief_cluster(text + self.LR_1, workers=2) as cluster:
            with Joined(cluster, KILLED) as other, cluster.connect(log="warning") as worker:
                model = self.counter()
                optimizer = slackline.Optimizer(model, worker)
                steps = 0
                for (x,) in worker.batches(self.ones(worker)):
                    if steps == 0:  # enough is left for the other one's three
                        self.assertEqual(other.process.wait(30), -signal.SIGKILL)
                    self.push(model, optimizer, x)
                    steps += 1
                self.assertIn("complete", worker.reason)
                # All samples were trained, and of what the other one had pushed, one had its answer.
                pushes = -model.weight.item()
                self.assertGreaterEqual(pushes, 24)
                self.assertIn(pushes - steps, (1, 2, 3))


class Joined:
    """Another process that is in the job of a cluster, and trains to its end when it is told to."""

    CODE = (
        f"import sys, torch, slackline\naddress, job, *overrides = sys.argv[1:]\n{COUNTER}"
        "with slackline.connect(address, job, overrides=overrides, name='other', log='nothing') as worker:\n"
        "    optimizer = slackline.Optimizer(model, worker)\n"
        "    loader = torch.utils.data.DataLoader(torch.ones(96, 1), batch_size=8, sampler=worker.sampler(96))\n"
        "    for number, x in enumerate(worker.batches(loader)):\n"
        "        if number == 0: sys.stdin.readline()\n"
        "        optimizer.zero_grad()\n"
        "        model(x).mean().backward()\n"
        "        optimizer.step()\n"
        "    print(worker.clock, worker.reason, flush=True)\n"
    )

    def __init__(self, cluster, code=CODE):
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, cluster.address, cluster.job, *cluster.overrides],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def __enter__(self):
        return self

    def train(self):
        said, _ = self.process.communicate("go\n", timeout=60)
        return said

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


class BesideWithWindow(Beside):
    """A script and the C++ worker in one job, each with several steps in flight."""

    WIRE = "wire: {window: 3}\n"

    test_in_bsp = test_in_async = test_in_softsync = test_in_quorum = None

    def test_in_ssp(self):
        self.check_beside("ssp")


# Its tests are package_test.py's.
del Base, Beside

if __name__ == "__main__":
    main()
