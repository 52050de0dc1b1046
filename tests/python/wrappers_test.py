"""What torch puts around a model: torch.compile(), DistributedDataParallel, FSDP.

    wrappers_test.py --programs FOLDER [TEST...]

Skipped (77) without PyTorch or without the package.
"""

import os
import subprocess
import sys
import unittest
from unittest import mock

from package_test import Base, DataLoader, Tied, data, main, nn, slackline, torch

distributed = torch.distributed

# A script that runs as one of two processes. It joins no job: the optimizer is refused before.
SHARDED = """
import os, sys, torch, torch.distributed as distributed, slackline
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

store, job, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
wrappers = {
    "fully_shard": fully_shard,
    "FSDP": lambda model: FullyShardedDataParallel(model, device_id=torch.device("cpu")),
    "DDP": nn.parallel.DistributedDataParallel,
    "a part": lambda model: nn.Sequential(nn.parallel.DistributedDataParallel(model), nn.Linear(4, 1)),
}
worker = slackline.connect("127.0.0.1:1", job, log="nothing")
for name, wrapper in wrappers.items():
    try:
        slackline.Optimizer(wrapper(nn.Linear(4, 4)), worker)
        print(f"{name}: accepted")
    except (TypeError, ValueError) as error:
        print(f"{name}: {type(error).__name__}: {error}")
    distributed.barrier()
distributed.destroy_process_group()
"""


def layers():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))


NAMES = ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias", "1.running_mean", "1.running_var"]


def names(optimizer):
    return [name for name, _, _ in optimizer.tensors]


@unittest.skipUnless(hasattr(torch, "compile"), "this torch compiles nothing")
class Compiled(Base):
    def test_compiled_model_trains_as_the_model_does(self):
        model = torch.compile(Tied())
        # Compilers take minutes on a busy machine, and a worker that has joined is missed.
        model(torch.zeros(8, 4)).sum().backward()
        self.check_against_sgd(model)

    def test_model_that_is_compiled_in_place(self):
        model = Tied()
        model.compile(backend="aot_eager")
        self.check_against_sgd(model)

    def test_names_are_those_of_the_model(self):
        part = layers()
        part[3] = torch.compile(part[3])
        for model in (torch.compile(layers()), part, torch.compile(part)):
            with self.subTest(type(model)), slackline.connect("127.0.0.1:1", self.job(), log="nothing") as worker:
                optimizer = slackline.Optimizer(model, worker)
                self.assertEqual(names(optimizer), NAMES)
                self.assertEqual(optimizer.state_dict()["param_groups"][0]["params"], NAMES[:6])

    def test_several_pushes_in_flight(self):
        # The weights go through three memories, and the compiled code must follow.
        with self.brief_cluster("wire: {window: 3}\noptimizer: {lr: 1}\n") as cluster, cluster.connect(log="warning") as worker:
            model = nn.Linear(1, 1, bias=False)
            nn.init.zeros_(model.weight)
            compiled = torch.compile(model, backend="aot_eager")
            optimizer = slackline.Optimizer(compiled, worker)
            outputs = []
            for x in worker.batches(DataLoader(torch.ones(96, 1), batch_size=8, sampler=worker.sampler(96))):
                optimizer.zero_grad()
                output = compiled(x).mean()
                outputs.append(output.item())
                self.assertEqual(output.item(), model.weight.item())
                output.backward()
                optimizer.step()
            self.assertEqual((worker.clock, model.weight.item()), (24, -24.0))
            self.assertLess(outputs[-1], -20)


@unittest.skipUnless(distributed.is_available(), "this torch has no torch.distributed")
class Parallel(Base):
    def one_process(self):
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        self.addCleanup(distributed.destroy_process_group)

    def test_one_process_trains_as_the_model_does(self):
        self.one_process()
        for options in ({"find_unused_parameters": True}, {"find_unused_parameters": True, "gradient_as_bucket_view": True}):
            with self.subTest(options):
                self.check_against_sgd(nn.parallel.DistributedDataParallel(Tied(), **options))
        with slackline.connect("127.0.0.1:1", self.job(), log="nothing") as worker:
            optimizer = slackline.Optimizer(torch.compile(nn.parallel.DistributedDataParallel(layers())), worker)
            self.assertEqual(names(optimizer), NAMES)

    def test_data_parallel_names(self):
        with slackline.connect("127.0.0.1:1", self.job(), log="nothing") as worker:
            self.assertEqual(names(slackline.Optimizer(nn.DataParallel(layers()), worker)), NAMES)

    def test_shards_and_averages_of_two_processes_are_refused(self):
        job, store = str(self.job()), str(self.folder / "store")
        environment = dict(os.environ, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
        processes = [subprocess.Popen([sys.executable, "-B", "-W", "ignore", "-c", SHARDED, store, job, str(rank)], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) for rank in range(2)]
        for process in processes:
            self.addCleanup(process.kill)
        for process in processes:
            said = process.communicate(timeout=120)[0]
            self.assertEqual(process.returncode, 0, said)
            for line in (
                "fully_shard: TypeError: parameter weight is a DTensor, of which each process has a part; allowed are whole tensors",
                "FSDP: TypeError: parameter _fsdp_wrapped_module._flat_param is a FlatParameter, of which each process has a part",
                "DDP: ValueError: found a DistributedDataParallel over 2 processes; allowed is one",
                "a part: ValueError: found a DistributedDataParallel over 2 processes",
            ):
                self.assertIn(line, said)

    def test_model_that_is_sharded_after_its_optimizer(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.one_process()
        with self.brief_cluster() as cluster, cluster.connect(log="warning") as worker:
            model = nn.Linear(4, 1)
            slackline.Optimizer(model, worker)
            fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
            with self.assertRaisesRegex(RuntimeError, "weight is another tensor than when the optimizer was made"):
                next(iter(worker.sampler(48)))

    def test_tensors_made_of_others_are_refused(self):
        model = nn.Linear(4, 1)
        with slackline.connect("127.0.0.1:1", self.job(), log="nothing") as worker:
            with mock.patch.object(nn.Parameter, "__tensor_flatten__", create=True):
                with self.assertRaisesRegex(TypeError, "parameter weight is a Parameter, which is made of other tensors"):
                    slackline.Optimizer(model, worker)


# Its tests are package_test.py's.
del Base

if __name__ == "__main__":
    main()
