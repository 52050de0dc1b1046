"""Scripts that keep their own learning-rate schedule and gradient clipping, against torch.optim.

    rates_test.py --programs FOLDER [TEST...]

Skipped (77) without PyTorch or without the package.
"""

import copy
import json
import math
import pathlib
import subprocess
import sys
import warnings

import package_test
from package_test import Base, DataLoader, data, main, nn, slackline, torch

lr_scheduler = torch.optim.lr_scheduler

BSP = "consistency: {mode: bsp}\n"
# Differences of float32 rounding over 12 steps: the servers' kernels round in another order than torch's.
CLOSE = {"rtol": 2e-5, "atol": 1e-7}


def get_lr(step):
    """Warm-up, then a half cosine: that of small GPTs."""
    if step < 4:
        return 0.05 * (step + 1) / 5
    return 0.005 + 0.5 * (1 + math.cos(math.pi * min(1.0, (step - 4) / 20))) * 0.045


def rates(optimizer):
    """What a push would name."""
    return optimizer._job_groups.rates(optimizer.param_groups)


def by_hand(optimizer):
    steps = 0

    def step():
        nonlocal steps
        for group in optimizer.param_groups:
            group["lr"] = get_lr(steps)
        steps += 1

    step()
    return step


def by_scheduler(make):
    return lambda optimizer: make(optimizer).step


SCHEDULES = {
    "by hand": by_hand,
    "LambdaLR": by_scheduler(lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))),
    "CosineAnnealingLR": by_scheduler(lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)),
    "OneCycleLR": by_scheduler(
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=30, cycle_momentum=False)
    ),
}

# A script for `slackline launch`. Its step number is the worker's clock.
SCRIPT = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent.resolve())!r})
import torch, slackline
from rates_test import get_lr
from package_test import data

with slackline.connect() as worker:
    torch.manual_seed(worker.seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = slackline.Optimizer(model, worker)
    loader = torch.utils.data.DataLoader(data(), batch_size=8, sampler=worker.sampler(48))
    for x, y in worker.batches(loader):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(worker.clock)
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
"""


class Rates(Base):
    def network(self):
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def check(self, text, make_twin, schedule, clip=None, servers=2):
        """The servers take the steps that an optimizer of torch takes by the same schedule."""
        model = self.network()
        twin = copy.deepcopy(model)
        with self.brief_cluster(BSP + text, servers=servers) as cluster, cluster.connect(log="warning") as worker:
            both = [(model, slackline.Optimizer(model, worker)), (twin, make_twin(twin))]
            self.assertIsInstance(both[0][1], torch.optim.Optimizer)
            advance = [schedule(optimizer) for _, optimizer in both]
            loader = DataLoader(data(), batch_size=8, sampler=worker.sampler(48))
            for x, y in worker.batches(loader):
                self.assertEqual(*[[group["lr"] for group in optimizer.param_groups] for _, optimizer in both])
                for (one, optimizer), further in zip(both, advance):
                    optimizer.zero_grad()
                    ((one(x) - y) ** 2).mean().backward()
                    if clip is not None:
                        nn.utils.clip_grad_norm_(one.parameters(), clip)
                    optimizer.step()
                    further()
            self.assertEqual(worker.clock, 12)
        for name, value in twin.state_dict().items():
            torch.testing.assert_close(model.state_dict()[name], value, **CLOSE, msg=name)

    def test_sgd_with_each_schedule(self):
        for name, schedule in SCHEDULES.items():
            with self.subTest(name):
                self.check(
                    "optimizer: {lr: 0.05, momentum: 0.9, weight_decay: 0.01}\n",
                    lambda twin: torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01),
                    schedule,
                    clip=0.5,
                )

    def test_adam_takes_the_scripts_rate_in_place_of_the_jobs_schedule(self):
        schedule = "schedule: {kind: cosine, warmup_epochs: 1}"
        self.check(
            f"optimizer: {{kind: adam, lr: 0.05, {schedule}}}\n",
            lambda twin: torch.optim.Adam(twin.parameters(), lr=0.05),
            SCHEDULES["LambdaLR"],
        )

    def test_adamw_with_two_groups_of_rates_of_their_own(self):
        def by_group(optimizer):
            # The parameters in no group, which are the matrices, and the vectors.
            return lr_scheduler.LambdaLR(optimizer, [lambda step: 0.9**step, lambda step: 1 / (1 + step)]).step

        def twin(model):
            matrices = [one for one in model.parameters() if one.dim() >= 2]
            vectors = [one for one in model.parameters() if one.dim() < 2]
            groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
            return torch.optim.AdamW(groups, lr=0.02)

        groups = '[{match: "*.bias", weight_decay: 0}]'
        self.check(f"optimizer: {{kind: adamw, lr: 0.02, weight_decay: 0.1, groups: {groups}}}\n", twin, by_group, clip=1.0)

    def test_groups_have_names_and_the_jobs_rates(self):
        text = 'optimizer: {lr: 0.5, groups: [{match: "0.*", lr_factor: 2}, {match: "2.bias", lr_factor: 0}]}\n'
        worker = slackline.connect("127.0.0.1:1", str(self.job(text)), log="nothing")
        model = self.network()
        optimizer = slackline.Optimizer(model, worker)
        groups = [(group["name"], group["lr"], [one.dim() for one in group["params"]]) for group in optimizer.param_groups]
        self.assertEqual(groups, [("*", 0.5, [2]), ("0.*", 1.0, [2, 1]), ("2.bias", 0.0, [1])])
        self.assertEqual(rates(optimizer), [])
        optimizer.param_groups[1].update(lr=0.25)
        self.assertEqual(rates(optimizer), [0.5, 0.25, 0.0])
        optimizer.param_groups[2] |= {"lr": 0.125}
        self.assertEqual(rates(optimizer), [0.5, 0.25, 0.125])
        names = [name for name, _ in model.named_parameters()]
        optimizer.load_state_dict({"state": {}, "param_groups": [{"params": names}], "clock": 1})  # of version 0.1
        self.assertEqual(rates(optimizer), [0.5, 0.25, 0.125])

    def test_state_keeps_the_rates_that_the_script_has_set(self):
        worker = lambda: slackline.connect("127.0.0.1:1", str(self.job()), log="nothing")  # noqa: E731
        optimizer, other = (slackline.Optimizer(self.network(), worker()) for _ in range(2))
        other.load_state_dict(optimizer.state_dict())
        self.assertEqual(rates(other), [])
        schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
        rate = optimizer.param_groups[0]["lr"]
        optimizer._opt_called = True
        schedule.step()
        other.load_state_dict(json.loads(json.dumps(optimizer.state_dict())))
        self.assertEqual(rates(other), [rate / 2])
        self.assertEqual(lr_scheduler.ExponentialLR(other, 0.5, last_epoch=1).base_lrs, [rate])

    def test_a_wrong_rate_is_an_error_and_changes_nothing(self):
        model = self.network()
        with self.brief_cluster(BSP) as cluster, cluster.connect(log="warning") as worker:
            optimizer = slackline.Optimizer(model, worker)
            batches = worker.batches(DataLoader(data(), batch_size=8, sampler=worker.sampler(48)))
            x, y = next(batches)
            before = copy.deepcopy(model.state_dict())
            ((model(x) - y) ** 2).mean().backward()
            for rate in (-0.1, math.nan, math.inf, 1e39):
                optimizer.param_groups[0]["lr"] = rate
                with self.assertRaisesRegex(ValueError, r"param_groups\[0\] \(\*\) has lr=.*; allowed is a finite number from 0"):
                    optimizer.step()
                self.assertEqual(worker.clock, 0)
            optimizer.param_groups[0]["lr"] = 0.0
            optimizer.step()
            self.assertEqual(worker.clock, 1)
            for name, value in model.state_dict().items():
                self.assertTrue(torch.equal(value, before[name]), name)

    def test_gradients_that_are_clipped_after_they_left_are_an_error(self):
        for overlap in (True, False):
            large = nn.Sequential(nn.Linear(4, 1024), nn.Tanh(), nn.Linear(1024, 4200), nn.Tanh(), nn.Linear(4200, 1))
            with self.subTest(overlap=overlap), self.brief_cluster(BSP) as cluster:
                with cluster.connect(log="nothing") as worker:
                    optimizer = slackline.Optimizer(large, worker, overlap=overlap)
                    x, y = next(iter(DataLoader(data(), batch_size=8, sampler=worker.sampler(48))))
                    ((large(x) - y) ** 2).mean().backward()
                    nn.utils.clip_grad_norm_(large.parameters(), 1e-3)
                    if overlap:
                        with self.assertRaisesRegex(RuntimeError, "was changed after it had left .* overlap=False"):
                            optimizer.step()
                    else:
                        optimizer.step()
                    self.assertEqual(worker.clock, 0 if overlap else 1)

    def test_what_only_the_job_sets_is_said(self):
        worker = slackline.connect("127.0.0.1:1", str(self.job()), log="nothing")
        optimizer = slackline.Optimizer(self.network(), worker)
        with self.assertRaisesRegex(ValueError, "must support momentum or beta"):
            lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=30)
        with self.assertWarnsRegex(UserWarning, "weight_decay is the job's: optimizer.weight_decay"):
            optimizer.param_groups[0]["weight_decay"] = 0.1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.param_groups[0]["lr"] = 0.1

    def test_a_resumed_run_goes_on_where_it_was(self):
        """A run of two epochs that is resumed for two more ends with the weights of a run of four."""
        script = self.folder / "small.py"
        script.write_text(SCRIPT)
        job = self.job(BSP + "optimizer: {momentum: 0.9}\n")
        slackline_program = f"{package_test.PROGRAMS}/slackline"

        def run(*arguments):
            said = subprocess.run([slackline_program, *arguments], capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)

        folders = [self.folder / "whole", self.folder / "resumed"]
        for folder, epochs in zip(folders, (4, 2)):
            options = ["--servers=2", "--workers=1", f"--run-folder={folder}", f"--python={sys.executable}"]
            run("launch", str(script), str(job), *options, "--set", f"training.epochs={epochs}")
        run("resume", str(folders[1]), "--set", "training.epochs=4")
        weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
        header = [8 + int.from_bytes(one[:8], "little") for one in weights]
        self.assertEqual(weights[0][header[0] :], weights[1][header[1] :])


# Its tests are package_test.py's.
del Base

if __name__ == "__main__":
    main()
