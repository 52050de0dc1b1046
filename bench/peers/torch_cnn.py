"""The CNN of bench/script_step.py by what PyTorch has for several processes: DistributedDataParallel over Gloo, or a parameter
server on torch.distributed.rpc that each worker sends its gradient to, and that answers with the weights.

    torch_cnn.py --how ddp|rpc [--workers 2] [--images 12800]

Samples a second of all workers together, after the first ten steps of each.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as distributed
import torch.distributed.rpc as rpc
import torch.multiprocessing as processes
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from child import end_with_parent, report

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from script_step import BATCH, as_the_worker_sees, network, training_data  # noqa: E402

EPOCHS, WARM_UP, LR, TIMEOUT_S = 2, 10, 0.01, 120


def train(options: argparse.Namespace, rank: int, model: nn.Module, after_backward) -> float:
    """Samples a second of this worker, whose share of each epoch is a part of the samples."""
    data, loss = training_data(options.images), nn.CrossEntropyLoss()
    generator = torch.Generator().manual_seed(1)
    taken, begin = 0, 0.0
    steps = 0
    for _ in range(EPOCHS):
        order = torch.randperm(options.images, generator=generator)
        # The same number of steps everywhere.
        for round_at in range(0, options.images - options.workers * BATCH + 1, options.workers * BATCH):
            at = round_at + rank * BATCH
            if steps == WARM_UP:
                taken, begin = 0, time.perf_counter()
            inputs, labels = data[order[at : at + BATCH]]
            for one in model.parameters():
                one.grad = None
            error = loss(model(as_the_worker_sees(inputs)), labels)
            error.backward()
            error.item()
            after_backward()
            steps += 1
            taken += BATCH
    return taken / (time.perf_counter() - begin)


def run_ddp(rank: int, options: argparse.Namespace, meeting: str, rates: "processes.SimpleQueue") -> None:
    end_with_parent()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=options.workers)
    model = DistributedDataParallel(network(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    rates.put(train(options, rank, model, optimizer.step))
    distributed.barrier()
    distributed.destroy_process_group()


class Server:
    """The weights, in the process of rank 0."""

    def __init__(self) -> None:
        self.weights = nn.utils.parameters_to_vector(network().parameters()).detach()
        self.lock = threading.Lock()

    def step(self, gradient: torch.Tensor) -> torch.Tensor:
        with self.lock:
            self.weights.add_(gradient, alpha=-LR)
        return self.weights


server: Server


def step(gradient: torch.Tensor) -> torch.Tensor:
    return server.step(gradient)


def work_rpc(options: argparse.Namespace, rank: int) -> float:
    model = network()
    parameters = list(model.parameters())

    def exchange() -> None:
        gradient = torch.cat([one.grad.view(-1) for one in parameters])
        weights = rpc.rpc_sync("ps", step, args=(gradient,))
        nn.utils.vector_to_parameters(weights, parameters)

    return train(options, rank, model, exchange)


def run_rpc(rank: int, options: argparse.Namespace, meeting: str, rates: "processes.SimpleQueue") -> None:
    global server
    end_with_parent()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    backend = rpc.TensorPipeRpcBackendOptions(rpc_timeout=TIMEOUT_S, init_method=f"file://{meeting}")
    if rank == 0:
        server = Server()
    rpc.init_rpc("ps" if rank == 0 else f"worker-{rank}", rank=rank, world_size=options.workers + 1,
                 rpc_backend_options=backend)
    if rank > 0:
        rates.put(work_rpc(options, rank - 1))
    rpc.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--how", choices=("ddp", "rpc"), required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=12800)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rates = processes.get_context("spawn").SimpleQueue()
        run, count = (run_ddp, options.workers) if options.how == "ddp" else (run_rpc, options.workers + 1)
        processes.spawn(run, args=(options, os.path.join(folder, "meeting"), rates), nprocs=count)
        total = sum(rates.get() for _ in range(options.workers))
        report("DDP over Gloo" if options.how == "ddp" else "torch.distributed.rpc", workers=options.workers,
               samples_per_second=total)


if __name__ == "__main__":
    main()
