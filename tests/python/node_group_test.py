"""Several processes that are one worker: steps, samples, weights, failures.

    node_group_test.py --programs FOLDER [TEST...]

Skipped (77) without PyTorch or without the package. Most tests have threads in the place of processes. Values are small
integers, and shares of batches powers of two, so that all sums are exact and weights can be compared bit by bit.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
from unittest import mock

import package_test
from package_test import DataLoader, TensorDataset, nn, slackline, torch

from slackline import _node_group, _node_job

JOB = "consistency: {mode: async}\noptimizer: {lr: 0.5, momentum: 0}\n"

SCRIPT = """
import os, sys, threading, torch, slackline
address, job, store, rank = sys.argv[1:5]
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=3)
group = torch.distributed.group.WORLD
with slackline.connect(address, job, overrides=sys.argv[5:], log="nothing", node_group=group) as worker:
    optimizer = slackline.Optimizer(torch.nn.Linear(4, 1), worker)
    data = torch.utils.data.TensorDataset(torch.ones(48, 4))
    for (x,) in worker.batches(torch.utils.data.DataLoader(data, worker.batch_size, sampler=worker.sampler(48))):
        optimizer.zero_grad()
        optimizer._model(x).square().mean().backward()
        optimizer.step()
        if worker.clock == 3:
            print(worker.local_rank, worker.local_world_size, worker.rank, flush=True)
"""


def integers(samples):
    generator = torch.Generator().manual_seed(5)
    return TensorDataset(
        torch.randint(-1, 2, (samples, 4), generator=generator).float(),
        torch.randint(-2, 3, (samples, 1), generator=generator).float(),
    )


def zeros(dtype=torch.float32):
    model = nn.Linear(4, 1).to(dtype)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


class Node:
    """Processes that are threads, each with a worker that is a part of one."""

    def __init__(self, cluster, size):
        self.folder = tempfile.mkdtemp(dir=cluster.run_folder)
        self.size = size
        self.cluster = cluster
        self.results = {}

    def train(self, rank, body, **options):
        worker = self.cluster.connect(log="nothing", **options)
        worker.local_rank, worker.local_world_size = rank, self.size
        try:
            worker._join_node(None, self.folder)
            with worker:
                self.results[rank] = body(worker, rank)
        except Exception as error:  # pylint: disable=broad-except
            self.results[rank] = error

    def run(self, body, **options):
        threads = [threading.Thread(target=self.train, args=(rank, body), kwargs=options) for rank in range(self.size)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(120)
        return [self.results.get(rank) for rank in range(self.size)]


def train(worker, data, model=None, before_step=None, weight_decay=None):
    """Returns the weights, the clock, and why it ended. With `weight_decay`, the script gives the optimizer."""
    model = model or zeros()
    like = None if weight_decay is None else torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=weight_decay)
    optimizer = slackline.Optimizer(model, worker, like=like)
    loader = DataLoader(data, batch_size=worker.batch_size, sampler=worker.sampler(len(data)))
    for x, y in worker.batches(loader):
        optimizer.zero_grad()
        loss = (model(x.to(model.weight.dtype)).float() - y).square().mean()
        loss.backward()
        worker.report(loss=loss.item())
        if before_step is not None:
            before_step(worker, optimizer)
        optimizer.step()
    return torch.cat([one.detach().flatten().float() for one in model.parameters()]), worker.clock, worker.reason


class NodeGroups(package_test.Base):
    def trained(self, size, body, text="", epochs=1):
        with self.cluster(JOB + text, overrides=[f"training.epochs={epochs}"]) as cluster:
            if size > 1:
                return Node(cluster, size).run(body)
            with cluster.connect(log="nothing") as worker:
                return [body(worker, 0)]

    def check_like_one_process(self, samples, size):
        def body(worker, rank):
            del rank
            return train(worker, integers(samples))

        weights, clock, _ = self.trained(1, body)[0]
        self.assertGreater(weights.abs().sum(), 0)
        for result in self.trained(size, body):
            self.assertNotIsInstance(result, Exception, result)
            self.assertEqual(result[1:], (clock, "training is complete"))
            self.assertEqual(result[0].tolist(), weights.tolist())

    def test_steps_of_two_processes_are_those_of_one(self):
        self.check_like_one_process(24, 2)

    def test_steps_of_four_processes_are_those_of_one(self):
        self.check_like_one_process(24, 4)

    def test_weights_go_tensor_by_tensor_as_between_gpus(self):
        with mock.patch.object(_node_job.NodeJob, "_pull", _node_job.NodeJob._pull_tensors):
            self.check_like_one_process(24, 2)

    def test_last_batch_is_smaller(self):
        self.check_like_one_process(20, 4)

    def test_last_batch_has_samples_for_some_only(self):
        self.check_like_one_process(18, 4)

    def test_last_batch_has_none_for_the_leader(self):
        self.check_like_one_process(17, 2)

    def test_schedule_and_named_figures_are_those_of_the_node(self):
        def body(worker, rank):
            steps = iter(range(100))
            places = progress[worker.local_world_size, rank] = []

            def before_step(worker, optimizer):
                places.append(worker.progress)
                worker.report(perplexity=10.0 + rank)
                optimizer.param_groups[0]["lr"] = 0.5 ** (1 + next(steps) // 4)

            return train(worker, integers(17), before_step=before_step)

        progress = {}
        weights, clock, _ = self.trained(1, body, epochs=3)[0]
        self.assertEqual(clock, 9)
        for result in self.trained(2, body, epochs=3):
            self.assertNotIsInstance(result, Exception, result)
            self.assertEqual((result[0].tolist(), result[1]), (weights.tolist(), clock))
        self.assertEqual(progress[1, 0], [place / 51 for place in (0, 8, 16, 17, 25, 33, 34, 42, 50)])
        self.assertEqual(progress[2, 1], progress[1, 0])
        # Process 0 has no sample of the last batch of an epoch.
        self.assertEqual(progress[2, 0], [place / 51 for place in (0, 8, 17, 25, 34, 42)])

    def test_figures_are_means_over_the_samples_of_those_who_report_them(self):
        step = {"overflowed": False, "loss": None, "accuracy": None, "rates": []}
        said = [
            {**step, "samples": 3, "values": {"perplexity": 10.0}, "rates": [1.0]},
            {"samples": None},
            {**step, "samples": 1, "values": {"perplexity": 30.0, "tokens": 7.0}, "rates": [0.5]},
        ]
        plan = _node_job._plan(said)
        self.assertEqual((plan["values"], plan["rates"]), ({"perplexity": 15.0, "tokens": 7.0}, [0.5]))

    def test_leader_that_waits_has_not_stalled(self):
        def body(worker, rank):
            def before_step(worker, optimizer):
                del optimizer
                if rank == 1 and worker.clock == 1:
                    threading.Event().wait(2.5)  # more than the leader may take for a step

            return train(worker, integers(24), before_step=before_step)

        for result in self.trained(2, body, text="timeouts: {stall_ms: 1000}\n"):
            self.assertNotIsInstance(result, Exception, result)
            self.assertEqual(result[1:], (3, "training is complete"))

    def test_shares_that_are_not_equal(self):
        shares = [_node_job._share(list(range(14)), 8, rank, 4) for rank in range(4)]
        self.assertEqual(shares, [[0, 1, 8], [2, 3, 9, 10], [4, 5, 11], [6, 7, 12, 13]])

    def test_parameters_in_bfloat16(self):
        results = self.trained(2, lambda worker, rank: train(worker, integers(24), zeros(torch.bfloat16)))
        whole = self.trained(1, lambda worker, rank: train(worker, integers(24), zeros(torch.bfloat16)))
        self.assertEqual(results[0][0].tolist(), results[1][0].tolist())
        torch.testing.assert_close(results[0][0], whole[0][0], rtol=0.05, atol=0.05)

    def test_process_that_overflows_leaves_the_step_out_for_all(self):
        def body(worker, rank):
            def overflow(worker, optimizer):
                optimizer.found_inf = torch.tensor(float(rank == 1 and optimizer.steps == 1))
                optimizer.grad_scale = torch.ones(())
                optimizer.steps += 1

            with mock.patch.object(slackline.Optimizer, "steps", 0, create=True):
                return train(worker, integers(24), before_step=overflow)

        # 24 samples are 3 batches.
        self.assertEqual([result[1:] for result in self.trained(2, body)], [(2, "training is complete")] * 2)

    def test_leader_evaluates(self):
        measured = []

        def body(worker, rank):
            worker.evaluation(lambda: measured.append(rank) or {"loss": 1.0, "accuracy": 0.5}, samples=3)
            return train(worker, integers(24))

        for result in self.trained(2, body, epochs=2):
            self.assertEqual(result[2], "training is complete")
        self.assertEqual(set(measured), {0})

    def test_process_that_raises_ends_all(self):
        def body(worker, rank):
            def fail(worker, optimizer):
                if rank == 2 and worker.clock == 1:
                    raise ValueError("no more")

            return train(worker, integers(24), before_step=fail)

        results = self.trained(4, body, epochs=100)
        self.assertIsInstance(results[2], ValueError)
        for rank in (0, 1, 3):
            self.assertIsInstance(results[rank], slackline.AbortedError, results[rank])
            self.assertRegex(str(results[rank]), r"process 2 of the node \(pid \d+\) failed: ValueError: no more")

    def test_process_that_leaves_ends_all_in_good_order(self):
        for leaver in (0, 1):
            with self.subTest(leaver):

                def body(worker, rank, leaver=leaver):
                    def leave(worker, optimizer):
                        if rank == leaver and worker.clock == 2:
                            # Samples that were in no step go back to the job, and none is trained twice.
                            self.assertEqual(worker._node._in_order, rank == 0)
                            worker.leave("enough")

                    return train(worker, integers(24), before_step=leave)

                results = self.trained(2, body, epochs=100)
                self.assertEqual(results[leaver][2], "enough")
                self.assertRegex(results[1 - leaver][2], rf"process {leaver} of the node \(pid \d+\) left: enough")

    def test_process_that_does_not_come_is_named(self):
        done = threading.Event()

        def body(worker, rank):
            def wait(worker, optimizer):
                if rank == 1:
                    done.wait(60)

            try:
                return train(worker, integers(24), before_step=wait)
            finally:
                done.set()

        with mock.patch.object(_node_group, "MEETING_S", 2.0):
            results = self.trained(2, body)
        self.assertIsInstance(results[0], slackline.DeadlineExceededError, results[0])
        self.assertEqual(str(results[0]), "waited 2 s for process 1 of the node to come to the next step")
        self.assertEqual(str(results[1]), str(results[0]))

    def test_models_that_differ_are_refused(self):
        def body(worker, rank):
            return train(worker, integers(24), nn.Linear(4, 1, bias=rank == 0))

        for result in self.trained(2, body):
            self.assertIsInstance(result, slackline.InvalidArgumentError, result)
            self.assertEqual(
                str(result), "process 1 of the node has the tensor none where process 0 has bias (1,)"
            )

    def test_processes_give_the_same_optimizer(self):
        weights, *_ = self.trained(1, lambda worker, rank: train(worker, integers(24), weight_decay=0.5))[0]
        for result in self.trained(2, lambda worker, rank: train(worker, integers(24), weight_decay=0.5)):
            torch.testing.assert_close(result[0], weights)
        for result in self.trained(2, lambda worker, rank: train(worker, integers(24), weight_decay=rank / 2)):
            self.assertIsInstance(result, slackline.InvalidArgumentError, result)
            self.assertEqual(str(result), "process 1 of the node gives other settings of the optimizer (like=) than process 0")

    def test_jobs_that_a_node_cannot_train_are_refused(self):
        for text, said in (
            ("training: {epochs: 2, batch_size: 9}\n", "training.batch_size: found 9; allowed is a multiple of 2"),
            ("wire: {window: 2}\n", "wire.window: found 2 with a node group; allowed is 1"),
        ):
            with self.subTest(said):
                path = self.folder / "refused.yaml"
                path.write_text("model: {kind: external}\n" + text)
                fake = argparse.Namespace(run_folder=self.folder, connect=lambda **more: slackline.connect("127.0.0.1:1", str(path), **more))
                for result in Node(fake, 2).run(lambda worker, rank: None):
                    self.assertIsInstance(result, slackline.InvalidArgumentError)
                    self.assertIn(said, str(result))

    def test_killed_process_ends_the_others(self):
        """With processes, and a group that the script has made."""
        with self.cluster(overrides=["training.epochs=100000", "training.batch_size=12"]) as cluster:
            command = [sys.executable, "-c", SCRIPT, cluster.address, cluster.job, str(self.folder / "store")]
            scripts = [
                subprocess.Popen(
                    [*command, str(rank), *cluster.overrides],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                )
                for rank in range(3)
            ]
            try:
                for rank, script in enumerate(scripts):
                    self.assertEqual(script.stdout.readline(), f"{rank} 3 0\n", rank)
                scripts[1].send_signal(signal.SIGKILL)
                for rank in (0, 2):
                    errors = scripts[rank].communicate(timeout=60)[1]
                    self.assertEqual(scripts[rank].returncode, 1, errors)
                    self.assertIn(f"AbortedError: process 1 of the node (pid {scripts[1].pid}) died", errors)
                self.wait_for_event(cluster, f"process 1 of the node (pid {scripts[1].pid}) died")
            finally:
                for script in scripts:
                    script.kill()
                    script.communicate()


if __name__ == "__main__":
    package_test.main()
