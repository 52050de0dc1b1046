"""Scripts that give the servers' optimizer as one of torch.optim (like=), against that optimizer.

    like_test.py --programs FOLDER [TEST...]

Skipped (77) without PyTorch or without the package.
"""

import contextlib
import copy
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import package_test
from package_test import Base, DataLoader, data, main, nn, slackline, torch

lr_scheduler = torch.optim.lr_scheduler

BSP = "consistency: {mode: bsp}\n"
# Differences of float32 rounding over 12 steps: the servers' kernels round in another order than torch's.
CLOSE = {"rtol": 2e-5, "atol": 1e-7}


def network():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def by_dimension(model, **vectors):
    """Groups of matrices with weight decay, and of vectors with other settings."""
    matrices = [one for one in model.parameters() if one.dim() >= 2]
    others = [one for one in model.parameters() if one.dim() < 2]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0, **vectors}]


# A script for `slackline launch`: its learning rate, then names of programs that it kills at steps 6 and 12.
SCRIPT = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent.resolve())!r})
import torch, slackline
from like_test import kill, network
from package_test import data

rate, *programs = sys.argv[1:]
with slackline.connect() as worker:
    model = network()
    like = torch.optim.SGD(model.parameters(), lr=float(rate), momentum=0.9)
    optimizer = slackline.Optimizer(model, worker, like=like)
    loader = torch.utils.data.DataLoader(data(), batch_size=8, sampler=worker.sampler(48))
    for x, y in worker.batches(loader):
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
        if worker.clock in (6, 12) and programs:
            kill(programs.pop(0))
"""


def kill(program):
    """Kills a process of this program that `slackline launch` has started beside this one. A server is one whose backup is in step."""
    events = pathlib.Path(os.environ["SLACKLINE_JOB"]).parent / "events.log"
    deadline = time.monotonic() + 30
    backed = []
    while program == "slackline-ps" and not backed and time.monotonic() < deadline:
        threading.Event().wait(0.05)
        backed = re.findall(r"is in step with (\S+) and", events.read_text())
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            words = (process / "cmdline").read_text().split("\0")
            if parent == os.getppid() and program in words[0] and (not backed or backed[0] in words):
                return os.kill(int(process.name), signal.SIGKILL)
    raise LookupError(f"{program} {backed}")


class Like(Base):
    def train(self, worker, *both, further=(), after=None):
        """Trains models by optimizers, all on the same batches."""
        loader = DataLoader(data(), batch_size=8, sampler=worker.sampler(48))
        for x, y in worker.batches(loader):
            for model, optimizer in both:
                optimizer.zero_grad()
                ((model(x) - y) ** 2).mean().backward()
                optimizer.step()
            for one in further:
                one.step()
            if after is not None:
                after()

    def check(self, make, text=BSP, schedule=None):
        """The servers take the steps of the optimizer that `make` returns for a model."""
        model = network()
        twin = copy.deepcopy(model)
        with self.brief_cluster(text, servers=2) as cluster, cluster.connect(log="warning") as worker:
            both = [(model, slackline.Optimizer(model, worker, like=make(model))), (twin, make(twin))]
            further = [schedule(optimizer) for _, optimizer in both] if schedule else []
            self.train(worker, *both, further=further)
            self.assertEqual(worker.clock, 12)
        for name, value in twin.state_dict().items():
            torch.testing.assert_close(model.state_dict()[name], value, **CLOSE, msg=name)

    def test_each_optimizer_is_that_of_torch(self):
        optim = torch.optim
        cases = {
            "SGD": lambda model: optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
            "plain SGD": lambda model: optim.SGD(model.parameters(), lr=0.05, dampening=0.5),
            "Adam": lambda model: optim.Adam(model.parameters(), lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
            "AdamW": lambda model: optim.AdamW(model.parameters(), lr=torch.tensor(0.02)),
        }
        for name, make in cases.items():
            with self.subTest(name):
                self.check(make)

    def test_groups_differ_in_rate_and_weight_decay(self):
        self.check(lambda model: torch.optim.AdamW(by_dimension(model, lr=0.001), lr=0.02, betas=(0.9, 0.95)))
        self.check(
            lambda model: torch.optim.AdamW(by_dimension(model), lr=0.02),
            schedule=lambda optimizer: lr_scheduler.LambdaLR(optimizer, [lambda n: 0.9**n, lambda n: 1 / (1 + n)]),
        )

    def test_the_job_file_may_name_the_same_and_more(self):
        text = "optimizer: {kind: sgd, lr: 0.05, clip_norm: 1e6, schedule: {kind: step, every_epochs: 1000}}\n"
        self.check(lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), BSP + text)

    def test_the_job_file_decides(self):
        model = network()
        worker = self.unconnected("optimizer: {kind: adamw, lr: 0.002, weight_decay: 0.1}\n")
        with self.assertRaises(slackline.InvalidArgumentError) as raised:
            slackline.Optimizer(model, worker, like=torch.optim.SGD(model.parameters(), lr=0.05))
        said = str(raised.exception)
        self.assertIn("optimizer.kind: the job file says adamw, and the script's optimizer sgd.", said)
        self.assertIn("optimizer.lr: the job file says 0.002, and the script's optimizer 0.05.", said)
        self.assertIn("Take optimizer.weight_decay out of the job file to use the script's, or say the same in both", said)
        worker = self.unconnected('optimizer: {groups: [{match: "*.bias", weight_decay: 0}]}\n')
        with self.assertRaisesRegex(ValueError, "Take optimizer.groups out of the job file"):
            slackline.Optimizer(model, worker, like=torch.optim.SGD(model.parameters(), lr=0.05))

    def test_param_groups_are_those_of_torch(self):
        model = network()
        model[0].bias.requires_grad_(False)
        groups = [{"params": [model[0].bias], "name": "frozen"}, *by_dimension(model, lr=0.0)]
        groups[2]["params"] = [model[2].bias]
        optimizer = slackline.Optimizer(model, self.unconnected(), like=torch.optim.AdamW(groups, lr=0.02))
        found = [(group["name"], group["lr"], len(group["params"])) for group in optimizer.param_groups]
        self.assertEqual(found, [("frozen", 0.02, 0), ("group 1", 0.02, 2), ("group 2", 0.0, 1)])
        rates = lambda: optimizer._job_groups.rates(optimizer.param_groups)  # noqa: E731
        self.assertEqual(rates(), [])
        optimizer.param_groups[2]["lr"] = 0.5
        self.assertEqual(rates(), [0.02, 0.5])
        optimizer.load_state_dict(json.loads(json.dumps(optimizer.state_dict())))
        with self.assertRaisesRegex(ValueError, "found weight_decay=0.5 for the group group 2; allowed is 0.0, as like= said"):
            optimizer.param_groups[2]["weight_decay"] = 0.5
        with self.assertRaisesRegex(ValueError, "cycle_momentum=False"):
            lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=30)

    def test_what_servers_do_not_have_is_refused(self):
        model, optim = network(), torch.optim
        own = list(model.parameters())
        stepped = optim.Adam(own, lr=0.1)
        model(torch.ones(1, 4)).sum().backward()
        stepped.step()
        scheduled = optim.Adam(own, lr=0.1)
        lr_scheduler.ExponentialLR(scheduled, 0.9)
        cases = [
            (optim.RMSprop(own), TypeError, "found like=torch.optim.rmsprop.RMSprop; allowed are torch.optim.SGD, "),
            (optim.Adam(own, amsgrad=True), ValueError, r"Adam with amsgrad=True in param_groups\[0\]; allowed is amsgrad=False"),
            (optim.SGD(own, lr=0.1, maximize=True), ValueError, "maximize=True"),
            (optim.SGD(own, lr=0.1, momentum=0.9, dampening=0.1), ValueError, "dampening=0.1 .* allowed is dampening=0"),
            (optim.AdamW(by_dimension(model, betas=(0.5, 0.9))), ValueError, r"groups of the servers differ in lr and weight_decay"),
            (optim.SGD(own[:-1], lr=0.1), ValueError, "parameter 2.bias requires a gradient and is in no group of like=; 1 are"),
            (optim.SGD([*own, nn.Parameter(torch.ones(1))], lr=0.1), ValueError, "like= has 1 parameters that are not the model's"),
            (optim.SGD(by_dimension(model, lr=0.1), lr=0.0), ValueError, "allowed is a first group with a learning rate above 0"),
            (optim.SGD(own, lr=2000.0), ValueError, "optimizer.lr: found '2000.0'; allowed is a number from 0 to 1000"),
            (stepped, ValueError, "has taken steps; allowed is a new one"),
            (scheduled, ValueError, "make the scheduler of the slackline.Optimizer"),
        ]
        for like, error, words in cases:
            with self.subTest(words), self.assertRaisesRegex(error, words):
                slackline.Optimizer(model, self.unconnected(), like=like)

    def test_another_worker_gives_the_same(self):
        with self.cluster() as cluster, cluster.connect(name="first", log="warning") as first:
            model = network()
            slackline.Optimizer(model, first, like=torch.optim.SGD(model.parameters(), lr=0.1))
            next(iter(first.sampler(48)))
            self.wait_for_event(cluster, "the optimizer is that of the script: sgd, lr 0.1, weight_decay 0")
            for like, words in (
                (torch.optim.SGD(model.parameters(), lr=0.2), "the script of worker second gives optimizer.lr: 0.2, but that"),
                (torch.optim.AdamW(by_dimension(model), lr=0.1), "gives optimizer.kind: adamw, but that of worker first"),
                (None, "gives no settings of the optimizer, but that of worker first, the first one, sgd, lr 0.1"),
            ):
                with self.subTest(words), cluster.connect(name="second", log="nothing") as second:
                    slackline.Optimizer(model, second, like=like)
                    with self.assertRaisesRegex(ValueError, words):
                        next(iter(second.sampler(48)))

    def test_a_server_that_is_started_again_keeps_it(self):
        """It would not take the snapshots of another kind of optimizer."""
        text = "durability: {snapshot_every_s: 0.05}\n"
        with self.cluster(text, overrides=["training.epochs=30"]) as cluster, cluster.connect(log="nothing") as worker:
            model = network()
            optimizer = slackline.Optimizer(model, worker, like=torch.optim.AdamW(by_dimension(model), lr=0.02))
            steps = 0

            def kill_once():
                nonlocal steps
                steps += 1
                if steps != 20:
                    return
                self.wait_for_event(cluster, "all shards are on disk")
                name, server = cluster._processes[1]
                server.send_signal(signal.SIGKILL)
                server.wait()
                cluster._start(name, "slackline-ps", "--scheduler", cluster.address, "--name", name)

            self.train(worker, (model, optimizer), after=kill_once)
            self.assertIn("complete", worker.reason)
            self.wait_for_event(cluster, "goes on from its snapshots")

    def run_command(self, *arguments):
        command = [f"{package_test.PROGRAMS}/slackline", *map(str, arguments)]
        said = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)

    def launch(self, name, *arguments, settings=()):
        """Launches SCRIPT, and returns its run folder."""
        script = self.folder / "small.py"
        script.write_text(SCRIPT)
        folder = self.folder / name
        options = ["--servers=2", "--workers=1", f"--run-folder={folder}", f"--python={sys.executable}"]
        options += [word for one in settings for word in ("--set", one)]
        self.run_command("launch", script, self.job(BSP), *options, "--", *arguments)
        return folder

    def check_optimizer(self, folder):
        optimizer = json.loads((folder / "summary.json").read_text())["optimizer"]
        self.assertEqual(optimizer, "sgd, lr 0.05, momentum 0.9, weight_decay 0")

    def check_equal_runs(self, *folders):
        """They end with the same weights, by the same optimizer."""
        for folder in folders:
            self.check_optimizer(folder)
        weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
        header = [8 + int.from_bytes(one[:8], "little") for one in weights]
        self.assertEqual(weights[0][header[0] :], weights[1][header[1] :])

    def test_a_resumed_run_takes_it_from_the_script(self):
        """A run of two epochs that is resumed for two more ends with the weights of a run of four."""
        whole, resumed = (self.launch(f"of-{epochs}", 0.05, settings=[f"training.epochs={epochs}"]) for epochs in (4, 2))
        self.run_command("resume", resumed, "--set", "training.epochs=4")
        self.check_equal_runs(whole, resumed)

    def test_a_backup_keeps_it(self):
        settings = ["training.epochs=4", "durability.mode=replicated"]
        calm = self.launch("calm", 0.05, settings=settings)
        killed = self.launch("killed", 0.05, "slackline-ps", settings=settings)
        self.assertIn("has taken over", (killed / "events.log").read_text())
        self.check_equal_runs(calm, killed)

    def test_a_restarted_scheduler_keeps_it(self):
        killed = self.launch("killed", 0.05, "slackline-scheduler", settings=["training.epochs=4"])
        self.assertIn("the scheduler goes on with", (killed / "events.log").read_text())
        # A scheduler that restarts may hand out a range again, so the weights are not those of a calm run.
        self.check_optimizer(killed)


# Its tests are package_test.py's.
del Base

if __name__ == "__main__":
    main()
