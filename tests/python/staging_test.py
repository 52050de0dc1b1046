"""Models on other devices than the CPU: the copies to and from the host, against a scheduler and servers of this machine.

    staging_test.py --programs FOLDER [TEST...]

There is no such device here: parameters on the CPU are taken for ones that are not, or are on a device that other_device.py
makes. torch.cuda is a fake, which copies to the host only when it is waited for. Skipped (77) without PyTorch or without the
package.
"""

import contextlib
import unittest
from unittest import mock

import other_device
from package_test import Base, DataLoader, TensorDataset, Tied, data, main, nn, slackline, torch
from slackline import _staging


class FakeCuda:
    """Streams of their own copy late: at the latest when an event behind the copy is waited for."""

    def __init__(self):
        self.log = []
        self.now = []  # the stack of current streams
        self.pinned = set()
        self.targets = []  # of copies that are late
        self.norms = 0  # steps whose gradient was measured where it is

    class Stream:
        def __init__(self, device=None):
            self.device = device
            self.waiting = []

        def wait_stream(self, other):
            other.run()

        def run(self):
            for copy in self.waiting:
                copy()
            self.waiting.clear()

    class MainStream(Stream):
        """What the script computes on: nothing is ever late there."""

        def run(self):
            pass

    main = MainStream()

    def current_stream(self, device):
        return self.now[-1] if self.now else self.main

    @contextlib.contextmanager
    def stream(self, stream):
        self.now.append(stream)
        yield
        self.now.pop()

    def Event(self):
        return FakeEvent(self)

    def cudart(self):
        return self

    def cudaHostRegister(self, address, size, flags):
        assert (size > 0, flags) == (True, 1)
        self.pinned.add(address)
        return 0

    def cudaHostUnregister(self, address):
        self.pinned.remove(address)


class FakeEvent:
    def __init__(self, cuda):
        self.cuda = cuda
        self.asked = 0

    def record(self, stream):
        self.stream = stream
        self.before = list(stream.waiting)

    def query(self):
        # Over by the third time somebody asks.
        self.asked += 1
        if self.asked > 2:
            self.synchronize()
        return not any(copy in self.stream.waiting for copy in self.before)

    def synchronize(self):
        if self.stream is not self.cuda.main:
            self.cuda.log.append("synchronize")
        for copy in self.before:
            if copy in self.stream.waiting:
                copy()
                self.stream.waiting.remove(copy)


class LateLane(_staging.CudaLane):
    """That of CUDA, on the fake."""

    def __init__(self, cuda):
        super().__init__(torch.device("cpu"), cuda)

    def _copy(self, target, source):
        stream = self._cuda.current_stream(self._device)
        if stream is self._cuda.main:
            target.copy_(source)
            return
        self._cuda.log.append("copy")
        self._cuda.targets.append(target)

        def copy():
            target.copy_(source)
            self._cuda.targets[:] = [one for one in self._cuda.targets if one is not target]

        stream.waiting.append(copy)

    def empty(self, elements):
        return torch.empty(elements, dtype=torch.float32)


class OddOnes:
    """Takes every other tensor for one of another device."""

    def __init__(self):
        self.count = 0

    def __call__(self, tensor):
        self.count += 1
        return self.count % 2 == 0


@contextlib.contextmanager
def on_the_cpu():
    yield None


@contextlib.contextmanager
def staged():
    with mock.patch.object(_staging, "is_staged", lambda tensor: True):
        yield None


@contextlib.contextmanager
def mixed():
    with mock.patch.object(_staging, "is_staged", OddOnes()):
        yield None


@contextlib.contextmanager
def late():
    cuda = FakeCuda()
    with staged(), mock.patch.object(_staging, "make_lane", lambda device: LateLane(cuda)):
        yield cuda


def mean_square(model, x, y):
    return ((model(x) - y) ** 2).mean()


def in_bf16(model, x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return mean_square(model, x, y)


class Precision(Base):
    def test_steps_whose_gradients_are_not_finite_are_left_out(self):
        # Scaled by 2 to the 127th, gradients overflow until the scale has been halved; with 2 samples a range, a range has no
        # step at all.
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        overrides = ["training.epochs=1", "training.batch_size=1", "optimizer.lr=1", "consistency.mode=async"]
        with self.cluster(overrides=overrides) as cluster, cluster.connect(log="warning") as worker:
            optimizer = slackline.Optimizer(model, worker, overlap=False)
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
            batches = steps = 0
            for (x,) in worker.batches(DataLoader(TensorDataset(torch.full((48, 1), 16.0)), sampler=worker.sampler(48))):
                optimizer.zero_grad()
                scaler.scale(model(x).mean()).backward()
                scaler.step(optimizer)
                scaler.update()
                batches += 1
                steps += worker.clock > steps
            self.assertEqual((batches, worker.reason), (48, "training is complete"))
            self.assertEqual(worker.clock, 44)  # 2 to the 123rd times 16 is the first that fits
            self.assertEqual(model.weight.item(), -16.0 * 44)

    def test_half_parameters_have_masters_in_float32(self):
        # No single step is large enough to change the rounded weight.
        for dtype, lr in ((torch.bfloat16, 2.0**-12), (torch.float16, 2.0**-14)):
            model = nn.Linear(1, 1, bias=False, dtype=dtype)
            nn.init.ones_(model.weight)
            overrides = ["training.epochs=2", f"optimizer.lr={lr}", "optimizer.kind=sgd", "optimizer.momentum=0"]
            with self.cluster(overrides=overrides) as cluster, cluster.connect(log="warning") as worker:
                optimizer = slackline.Optimizer(model, worker)
                loader = DataLoader(TensorDataset(torch.ones(256, 1, dtype=dtype)), batch_size=8, sampler=worker.sampler(256))
                for (x,) in worker.batches(loader):
                    optimizer.zero_grad()
                    model(x).mean().backward()
                    optimizer.step()
                self.assertEqual(model.weight.dtype, dtype)
                self.assertEqual(model.weight.item(), torch.tensor(1 - 64 * lr).to(dtype).item())


class Staged(Base):
    def train(self, place, make, *, samples=48, overrides=(), before=None, loss=mean_square, scale=None, **options):
        """The state_dict after a job of one worker, which is the same each time; and what fake there was."""
        torch.manual_seed(5)
        model = make()
        overrides = ["consistency.mode=async", "optimizer.lr=0.01", "optimizer.momentum=0.9", *overrides]
        with place() as fake, self.brief_cluster(overrides=overrides) as cluster, cluster.connect(log="warning") as worker:
            optimizer = slackline.Optimizer(model, worker, **options)
            if before is not None:
                before(model)
            if fake is not None:
                self.watch(worker, fake)
            loader = DataLoader(data(samples), batch_size=8, sampler=worker.sampler(samples))
            scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
            for number, (x, y) in enumerate(worker.batches(loader), 1):
                scaler.scale(loss(model, x, y)).backward()
                if number % worker.accumulate == 0:
                    scaler.step(optimizer)
                    scaler.update()
                    optimizer.zero_grad()
            self.assertIn("complete", worker.reason)
            if scale is not None:
                self.assertLess(scaler.get_scale(), scale, "steps were left out")
        return model.state_dict(), fake

    def watch(self, worker, fake):
        """What leaves has been copied."""
        step, ready = worker._step, worker._ready

        def watched_step(samples, norm, rates):
            fake.log.append("step")
            self.assertEqual(fake.targets, [])
            if norm is not None:
                pushed = torch.cat([view.flatten() for view in worker._optimizer._gradients]).double().norm().item()
                self.assertAlmostEqual(norm, pushed, delta=1e-3 * pushed)  # CPUs add one by one in float32
                fake.norms += 1
            step(samples, norm, rates)

        def watched_ready(start):
            fake.log.append("ready")
            self.assertTrue(all(target.storage_offset() < start for target in fake.targets), start)
            ready(start)

        worker._step, worker._ready = watched_step, watched_ready

    def check(self, make, places=(staged, late), **options):
        expected, _ = self.train(on_the_cpu, make, **options)
        fakes = []
        for place in places:
            got, fake = self.train(place, make, **options)
            fakes.append(fake)
            for name, value in expected.items():
                self.assertTrue(torch.equal(got[name], value), f"{place.__name__}: {name}: {got[name]} for {value}")
        return fakes[-1]

    def test_tied_unused_and_frozen_parameters(self):
        def make():
            model = nn.Sequential(nn.Linear(4, 4), Tied())
            model[0].weight.requires_grad_(False)
            return model

        fake = self.check(make, places=(staged, mixed, late))
        # Each push waited for its copies.
        self.assertEqual(fake.log.count("step"), 12)
        self.assertEqual(fake.norms, 12 if hasattr(nn.utils, "get_total_norm") else 0)
        for i, word in enumerate(fake.log):
            if word == "step":
                self.assertEqual(fake.log[i - 1], "synchronize")

    def test_batch_norm_and_a_convolution_in_another_format(self):
        class Pictures(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 1))

            def forward(self, x):
                return self.layers(x.view(-1, 1, 2, 2))

        self.check(Pictures, places=(staged, mixed, late))
        with mock.patch.object(_staging, "is_staged", lambda tensor: True), self.brief_cluster() as cluster:
            with cluster.connect(log="warning") as worker:
                model = nn.Conv2d(4, 4, 2).to(memory_format=torch.channels_last)
                slackline.Optimizer(model, worker)
                self.assertTrue(model.weight.is_contiguous(memory_format=torch.channels_last), "it stays where it is")

    def test_large_model_whose_gradients_leave_early(self):
        def make():
            return nn.Sequential(nn.Linear(4, 1024), nn.BatchNorm1d(1024), nn.Linear(1024, 4200), nn.Tanh(), nn.Linear(4200, 1))

        # Servers that share no memory with it: gradients leave as floats.
        fake = self.check(make, places=(late,), samples=16, overrides=["wire.same_host=tcp"])
        # Of the last layers while backward runs; nothing is copied twice, and the rest leaves in step().
        self.assertGreaterEqual(fake.log.count("ready"), 4)
        self.assertEqual(fake.log.count("copy"), 4 * 10)

    def test_gradients_of_several_passes(self):
        self.check(Tied, overrides=["training.accumulate=2"])

    def test_parameters_in_bfloat16(self):
        self.check(lambda: Tied().to(torch.bfloat16), loss=lambda model, x, y: mean_square(model, x.bfloat16(), y.bfloat16()))

    def test_autocast(self):
        self.check(Tied, loss=in_bf16)

    def test_scaled_gradients_of_which_some_are_infinite(self):
        # The scale is halved until they are finite.
        steep = lambda model, x, y: 64 * mean_square(model, x, y)  # noqa: E731
        self.check(Tied, scale=2.0**127, loss=steep, overrides=["optimizer.lr=0.0001"], overlap=False)

    def test_weights_that_are_loaded_before_it_joins(self):
        torch.manual_seed(7)
        state = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).state_dict()
        state["1.running_mean"].fill_(2)

        def make():
            return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))

        self.check(make, before=lambda model: model.load_state_dict(state))

    def test_infinite_gradients_are_pushed_nowhere(self):
        for place in (on_the_cpu, staged, late):
            with self.subTest(place.__name__), place(), self.brief_cluster() as cluster, cluster.connect(log="nothing") as worker:
                model = nn.Linear(4, 1)
                optimizer = slackline.Optimizer(model, worker)
                x, y = next(iter(DataLoader(data(), batch_size=8, sampler=worker.sampler(48))))
                scale = 1e30  # as a GradScaler's that is too large
                before = model.weight.clone()
                (mean_square(model, x, y) * scale * scale).backward()
                with self.assertRaisesRegex(slackline.InternalError, "the gradient's norm is .*; nothing of it was applied"):
                    optimizer.step()
                self.assertTrue(torch.equal(model.weight, before))
                # Who unscales first, and leaves such steps out, goes on.
                optimizer.zero_grad()
                mean_square(model, x, y).backward()
                optimizer.step()
                self.assertEqual(worker.clock, 1)
                self.assertFalse(torch.equal(model.weight, before))

    def test_several_pushes_in_flight(self):
        for place in (staged, late):
            with self.subTest(place.__name__), place():
                with self.brief_cluster("wire: {window: 3}\noptimizer: {lr: 1}\n") as cluster, cluster.connect(log="warning") as worker:
                    # Its gradient is 1, whatever the weight is.
                    model = nn.Linear(1, 1, bias=False)
                    nn.init.zeros_(model.weight)
                    optimizer = slackline.Optimizer(model, worker)
                    loader = DataLoader(torch.ones(96, 1), batch_size=8, sampler=worker.sampler(96))
                    for x in worker.batches(loader):
                        optimizer.zero_grad()
                        model(x).mean().backward()
                        optimizer.step()
                    self.assertEqual((worker.clock, model.weight.item()), (24, -24.0))

    def test_memory_is_pinned_for_as_long_as_it_is_used(self):
        with late() as cuda, self.brief_cluster("wire: {window: 2}\n") as cluster, cluster.connect(log="warning") as worker:
            model = nn.Linear(4, 1)
            optimizer = slackline.Optimizer(model, worker)
            next(iter(worker.sampler(48)))
            self.assertEqual(len(cuda.pinned), 2)
            worker._optimizer = None
            del optimizer
            self.assertEqual(cuda.pinned, set())

    def test_model_that_moves_after_its_optimizer(self):
        with self.brief_cluster() as cluster, cluster.connect(log="warning") as worker:
            model = nn.Linear(4, 1)
            slackline.Optimizer(model, worker)
            model.weight = model.weight  # as it was
            model.bias = nn.Parameter(torch.zeros(1))
            with self.assertRaisesRegex(RuntimeError, "bias is another tensor than when the optimizer was made"):
                next(iter(worker.sampler(48)))


@contextlib.contextmanager
def tied_parameters_stay_tied():
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(before)


@unittest.skipUnless(other_device.IS_THERE, f"torch {torch.__version__} has no devices that are made in Python")
class OtherDevice(Staged):
    """Parameters are where no code but torch's can reach them."""

    # These tests are of the CPU alone.
    test_autocast = test_infinite_gradients_are_pushed_nowhere = test_several_pushes_in_flight = None
    test_memory_is_pinned_for_as_long_as_it_is_used = test_model_that_moves_after_its_optimizer = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.library = other_device.make()

    def check(self, make, places=None, loss=mean_square, **options):
        del places
        there = other_device.NAME
        expected, _ = self.train(on_the_cpu, make, loss=loss, **options)

        def moved():
            with tied_parameters_stay_tied():
                model = make().to(there)
            self.assertEqual({one.device.type for one in model.parameters()}, {there})
            return model

        for place in (on_the_cpu, late):
            got, fake = self.train(place, moved, loss=lambda model, x, y: loss(model, x.to(there), y.to(there)), **options)
            for name, value in expected.items():
                self.assertEqual(got[name].device.type, there)
                self.assertTrue(torch.equal(got[name].cpu(), value), f"{place.__name__}: {name}: {got[name].cpu()} for {value}")
        return fake


# Its tests are package_test.py's.
del Base

if __name__ == "__main__":
    main()
