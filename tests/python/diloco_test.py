"""Scripts that train in rounds of their own steps (slackline.DiLoCo), against the same in plain torch.

    diloco_test.py --programs FOLDER [TEST...]

Skipped (77) without PyTorch or without the package.
"""

import copy
import json
import pathlib
import signal
import sys

import launch_test
import package_test
from package_test import Base, DataLoader, data, nn, slackline, torch

ROUNDS = "local: {steps: 4}\nconsistency: {mode: bsp}\n"
# Differences of float32 rounding: the servers' kernels round in another order than torch's.
CLOSE = {"rtol": 2e-5, "atol": 1e-7}
# 48 samples in batches of 8, so the second round of each of both epochs is shorter.
PUSHES = [4, 2, 4, 2]


def network(norm=False):
    torch.manual_seed(5)
    middle = nn.BatchNorm1d(8) if norm else nn.Tanh()
    return nn.Sequential(nn.Linear(4, 8), middle, nn.Linear(8, 1))


class PlainDiLoCo:
    """Of one worker: the inner optimizer moves the model, the outer one a copy of it."""

    def __init__(self, model, outer):
        self.model = model
        self.start = copy.deepcopy(model)
        self.outer = outer(self.start.parameters())

    def end_round(self):
        with torch.no_grad():
            for start, own in zip(self.start.parameters(), self.model.parameters()):
                start.grad = start - own
            self.outer.step()
            for start, own in zip(self.start.parameters(), self.model.parameters()):
                own.copy_(start)


# A script for `slackline launch`. Its arguments: what it is killed by, after so many steps of the first worker.
SCRIPT = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent.resolve())!r})
import os, torch, slackline
from diloco_test import network
from package_test import data

with slackline.connect() as worker:
    model = network()
    inner = torch.optim.AdamW(model.parameters(), lr=0.002)
    outer = slackline.DiLoCo(model, worker)
    loader = torch.utils.data.DataLoader(data(960), batch_size=8, sampler=worker.sampler(960))
    worker.evaluation(lambda: {{"loss": sum(((model(x) - y) ** 2).sum().item() for x, y in data(960)) / 960}}, samples=960)
    for steps, (x, y) in enumerate(worker.batches(loader)):
        loss = ((model(x) - y) ** 2).mean()
        worker.report(loss=loss.item())
        loss.backward()
        inner.step()
        inner.zero_grad()
        outer.step()
        if worker.rank == 0 and sys.argv[1:] == [str(steps)]:
            os.kill(os.getpid(), 9)
    print("weights", [one.sum().item() for one in model.parameters()], flush=True)
"""


class Rounds(Base):
    def check(self, make_inner, outer=None, text=ROUNDS, plain_outer=None, norm=False, servers=2, every=None, rounds=PUSHES):
        """One worker does what the same script does in plain torch. `rounds`: steps of each."""
        model = network(norm)
        twin = PlainDiLoCo(copy.deepcopy(model), plain_outer or (lambda own: torch.optim.SGD(own, lr=0.7, momentum=0.9, nesterov=True)))
        with self.brief_cluster(text, servers=servers) as cluster, cluster.connect(log="warning") as worker:
            both = [(one, make_inner(one.parameters())) for one in (model, twin.model)]
            exchange = slackline.DiLoCo(model, worker, outer=None if outer is None else outer(model.parameters()), every=every)
            self.assertEqual(worker.local_steps, 4)
            loader = DataLoader(data(), batch_size=8, sampler=worker.sampler(48))
            pushes, steps, losses, places, reported = [], 0, [], [], []
            push = worker._step

            def note_loss(*arguments):
                reported.append(worker._loss)
                return push(*arguments)

            worker._step = note_loss
            for x, y in worker.batches(loader):
                clock = worker.clock
                places.append(worker.progress)
                for one, inner in both:
                    inner.zero_grad()
                    loss = ((one(x) - y) ** 2).mean()
                    loss.backward()
                    inner.step()
                losses.append(loss.item())
                worker.report(loss=losses[-1])
                exchange.step()
                steps += 1
                if worker.clock > clock:
                    twin.end_round()
                    pushes.append(steps)
                    steps = 0
                for name, value in twin.model.state_dict().items():
                    torch.testing.assert_close(model.state_dict()[name], value, **CLOSE, msg=name)
            self.assertEqual(pushes, rounds)
            # In each epoch the place moves on with every batch, as that of a scheduler of the script's must.
            self.assertEqual(places, sorted(set(places)))
        self.assertIn("complete", worker.reason)
        return losses, reported

    def test_adamw_inside_nesterov_outside(self):
        losses, reported = self.check(lambda own: torch.optim.AdamW(own, lr=0.01))
        ends = [sum(PUSHES[: i + 1]) for i in range(len(PUSHES))]
        for count, end, loss in zip(PUSHES, ends, reported):
            self.assertAlmostEqual(loss, sum(losses[end - count : end]) / count)

    def test_settings_of_the_outer_optimizer(self):
        sgd = lambda own: torch.optim.SGD(own, lr=0.05, momentum=0.5)  # noqa: E731
        self.check(sgd, plain_outer=lambda own: torch.optim.SGD(own, lr=1.0), text=ROUNDS + "optimizer: {lr: 1}\n")
        adam = lambda own: torch.optim.Adam(own, lr=0.02)  # noqa: E731
        self.check(sgd, outer=adam, plain_outer=adam)

    def test_a_round_ends_after_fewer_steps_or_some_time(self):
        adamw = lambda own: torch.optim.AdamW(own, lr=0.01)  # noqa: E731
        for every, rounds in ((3, [3, 1, 2] * 2), ("1h", PUSHES), ("0.001ms", [1] * 12)):
            with self.subTest(every=every):
                self.check(adamw, every=every, rounds=rounds)

    def test_running_statistics_are_those_of_the_end_of_a_round(self):
        self.check(lambda own: torch.optim.SGD(own, lr=0.05), norm=True)

    def test_a_model_in_bfloat16_that_stands_still_stays_as_it_is(self):
        """What its rounding has cost is not pushed: the servers keep the weights that they have."""
        model = network().to(torch.bfloat16)
        with self.brief_cluster(ROUNDS + "optimizer: {lr: 1}\n") as cluster, cluster.connect(log="warning") as worker:
            inner = torch.optim.SGD(model.parameters(), lr=0.0)
            outer = slackline.DiLoCo(model, worker)
            loader = DataLoader(data(), batch_size=8, sampler=worker.sampler(48))
            start = None
            with self.assertWarnsRegex(UserWarning, "no parameter has changed in the 4 steps of a round"):
                for x, y in worker.batches(loader):
                    if start is None:
                        # Weights between those of bfloat16, as other workers' rounds leave them.
                        outer._flats[0].mul_(1 + 2**-10)
                        start = outer._flats[0].clone()
                        with torch.no_grad():
                            for own, flat in zip(model.parameters(), outer._weights[0]):
                                own.copy_(flat)
                    ((model(x.bfloat16()) - y) ** 2).mean().backward()
                    inner.step()
                    pushed = outer._gradients
                    outer.step()
                    self.assertFalse(any(one.any() for one in pushed))

    def test_a_stream_is_trained_to_its_last_record(self):
        model = network()
        text, run = "local: {steps: 50}\nconsistency: {mode: async}\n", self.folder / "run"
        with self.cluster(text, run_folder=str(run)) as cluster, cluster.connect(log="warning") as worker:
            inner = torch.optim.SGD(model.parameters(), lr=0.01)
            outer = slackline.DiLoCo(model, worker)
            parts = [10, 7, 30]
            stream = worker.stream(parts, lambda part: iter(data(part)), samples=1000, passes=1)
            steps = 0
            for x, y in worker.batches(DataLoader(stream, batch_size=8)):
                inner.zero_grad()
                ((model(x) - y) ** 2).mean().backward()
                inner.step()
                outer.step()
                steps += 1
            self.assertEqual((steps, worker.clock), (7, 1))
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual((summary["samples"], summary["worker_list"][0]["local_steps"]), (sum(parts), 7))

    def test_what_does_not_go_is_refused(self):
        model = network()
        plain = self.unconnected()
        with self.assertRaisesRegex(slackline.FailedPreconditionError, "found local.steps: 0 in the job; allowed with slackline.DiLoCo is .*--set local.steps=500"):
            slackline.DiLoCo(model, plain)
        rounds = self.unconnected(ROUNDS)
        with self.assertRaisesRegex(slackline.FailedPreconditionError, "found local.steps: 4 in the job; .*slackline.DiLoCo trains in rounds"):
            slackline.Optimizer(model, rounds)
        for every in (0, 5, -1, True, 1.5, "30", "s", "0s", "-1s", "30 days", ""):
            with self.subTest(every=every), self.assertRaisesRegex(ValueError, r"every: found .*allowed is a number of steps, 1 to 4 \(local"):
                slackline.DiLoCo(model, rounds, every=every)
        outer = slackline.DiLoCo(model, rounds)
        for arguments in ({"closure": lambda: None}, {"samples": 3}):
            with self.assertRaisesRegex(ValueError, "allowed is none"):
                outer.step(**arguments)
        for text, words in (
            ("local: {steps: 4, lr: 0.1}\n", "local.lr: found a value together with external; allowed is only with .*an inner optimizer of its own"),
            ("local: {epochs: 1}\n", "local.epochs: found a value together with external"),
            ("local: {steps: 4, optimizer: adamw}\n", "local.optimizer: found a value together with external"),
            (ROUNDS + "wire: {window: 2}\n", "wire.window: found a value together with local training"),
        ):
            with self.subTest(text), self.assertRaisesRegex(slackline.InvalidArgumentError, words):
                self.unconnected(text)

    def test_a_step_that_is_not_called_is_named(self):
        with self.cluster(ROUNDS) as cluster, cluster.connect(log="warning") as worker:
            slackline.DiLoCo(network(), worker)
            with self.assertRaisesRegex(slackline.FailedPreconditionError, "has had the same 32 samples 16 times, and no step came: call step()"):
                for _ in worker.batches(DataLoader(data(), batch_size=8, sampler=worker.sampler(48))):
                    pass

    def test_weights_that_are_not_finite_are_not_pushed(self):
        model = network()
        with self.cluster(ROUNDS) as cluster, cluster.connect(log="warning") as worker:
            outer = slackline.DiLoCo(model, worker)
            loader = DataLoader(data(), batch_size=8, sampler=worker.sampler(48))
            with self.assertRaisesRegex(slackline.InternalError, "is nan; nothing of it was applied"):
                for _ in worker.batches(loader):
                    with torch.no_grad():
                        model[0].weight[0, 0] = float("nan")
                    outer.step()


class Launched(launch_test.Launched):
    def start(self, *arguments, epochs=4, flags=()):
        script = self.folder / "script.py"
        script.write_text(SCRIPT)
        job = self.folder / "job.yaml"
        job.write_text("model: {kind: external}\ntraining: {epochs: %d, batch_size: 8}\n" % epochs + ROUNDS)
        return self.launch(script, "--servers", "2", "--workers", "2", *flags, job=job, arguments=arguments)

    def run_script(self, *arguments, **options):
        run = self.start(*arguments, **options)
        self.assertEqual(run.wait(120), 0, run.diagnosis())
        return run

    def test_two_workers_end_with_the_same_weights(self):
        run = self.run_script()
        weights = {line for name in ("worker-1", "worker-2") for line in self.log(run, name).splitlines() if "weights [" in line}
        self.assertEqual(len({line[line.index("weights") :] for line in weights}), 1, run.diagnosis())
        summary = json.loads((run.folder / "summary.json").read_text())
        self.assertEqual(summary["samples"], 4 * 960)
        # 30 rounds of 32 samples an epoch.
        self.assertLessEqual(summary["steps"], 4 * 30 + 8)
        self.assertLess(summary["test_loss"], 1.2)

    def test_a_worker_that_is_killed_in_the_middle_of_a_round(self):
        # So many that the restarted script still finds samples.
        run = self.run_script("41", epochs=80, flags=["--set", "cluster.worker_restarts_max=1"])
        summary = json.loads((run.folder / "summary.json").read_text())
        self.assertGreaterEqual(summary["samples"], 80 * 960)
        self.assertEqual(summary["samples_applied"], summary["samples"])
        self.assertIn("killed by signal 9", (run.folder / "events.log").read_text() + run.diagnosis())

    def test_every_kind_of_process_is_killed_over_replicated_servers(self):
        flags = ["--set", "durability.mode=replicated", "--set", "consistency.mode=async", "--set", "cluster.worker_restarts_max=1"]
        run = self.start(epochs=100000, flags=flags)
        run.wait_for_training()
        wait_for = run.programs.wait_for
        wait_for("backups in step", lambda: run.events().count(" is in step with ") >= 2, 60, run.process)
        # Four server processes: two have shards, the others follow them.
        serving = next(name for name in ("ps-1", "ps-2", "ps-3", "ps-4") if " info: holds " in self.log(run, name))
        for name, event in (
            (serving, "has taken over"),
            ("scheduler", "the scheduler goes on with"),
            ("worker-2", "worker-2 is dead: killed by signal 9"),
        ):
            run.kill(name)
            wait_for(lambda: f"{event!r}\n{run.diagnosis()}", lambda: event in run.events(), 60, run.process)
            samples = int(run.rows()[-1]["samples"])
            run.wait_for_training(samples + 9600)
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(60), 1, run.diagnosis())
        self.assertIn("stopped", run.stderr())


if __name__ == "__main__":
    package_test.PROGRAMS = sys.argv[sys.argv.index("--programs") + 1]
    torch.set_num_threads(1)
    sys.exit(launch_test.main())
