"""A parameter server on torch.distributed.rpc: each worker sends a gradient, the server takes an SGD step under a lock
and answers with the weights.

    torch_rpc.py --elements 25000000 --seconds 3 --workers 1
"""

import argparse
import os
import tempfile
import threading

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as processes

from child import end_with_parent, rate, report

TIMEOUT_S = 120
THREADS = 8


class Server:
    """The weights, in the process of rank 0."""

    def __init__(self, elements: int):
        self.weights = torch.ones(elements)
        self.lock = threading.Lock()

    def step(self, gradient: torch.Tensor) -> torch.Tensor:
        with self.lock:
            self.weights.add_(gradient, alpha=-1e-6)
        return self.weights


server: Server


def serve(elements: int) -> None:
    global server
    server = Server(elements)


def step(gradient: torch.Tensor) -> torch.Tensor:
    return server.step(gradient)


def work(options: argparse.Namespace) -> float:
    gradient = torch.full((options.elements,), 0.5)
    return rate(options.seconds, lambda: rpc.rpc_sync("ps", step, args=(gradient,)))


def run(rank: int, options: argparse.Namespace, meeting: str, rates: "processes.SimpleQueue") -> None:
    end_with_parent()
    torch.set_num_threads(1)
    backend = rpc.TensorPipeRpcBackendOptions(num_worker_threads=THREADS, rpc_timeout=TIMEOUT_S,
                                              init_method=f"file://{meeting}")
    if rank == 0:
        serve(options.elements)
    rpc.init_rpc("ps" if rank == 0 else f"worker-{rank}", rank=rank, world_size=options.workers + 1,
                 rpc_backend_options=backend)
    if rank > 0:
        rates.put(work(options))
    rpc.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=25_000_000)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rates = processes.get_context("spawn").SimpleQueue()
        processes.spawn(run, args=(options, os.path.join(folder, "meeting"), rates), nprocs=options.workers + 1)
        report("torch.distributed.rpc", workers=options.workers,
               rounds_per_s=sum(rates.get() for _ in range(options.workers)))


if __name__ == "__main__":
    main()
