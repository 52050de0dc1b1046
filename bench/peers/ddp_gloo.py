"""Two processes with DistributedDataParallel over Gloo: a step of a model whose computing is next to nothing, so that
what is timed is the exchange of its gradient and the SGD step.

    ddp_gloo.py --elements 25000000 --seconds 3
"""

import argparse
import os
import tempfile
import time

import torch
import torch.distributed as distributed
import torch.multiprocessing as processes
from torch.nn.parallel import DistributedDataParallel

from child import end_with_parent, rate, report

LAYERS = 4


def build_model(elements: int) -> torch.nn.Module:
    width = int((elements / LAYERS) ** 0.5)
    return torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(LAYERS)])


def run(rank: int, options: argparse.Namespace, meeting: str) -> None:
    end_with_parent()
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=options.processes)
    model = DistributedDataParallel(build_model(options.elements), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    inputs = torch.ones(1, next(model.parameters()).shape[1])

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(inputs).sum().backward()
        optimizer.step()

    # The same number of steps everywhere: each waits for the other's.
    steps = torch.tensor([max(3.0, options.seconds * rate(0, step))])
    distributed.broadcast(steps, 0)
    count = int(steps)
    begin = time.perf_counter()
    for _ in range(count):
        step()
    per_s = count / (time.perf_counter() - begin)
    if rank == 0:
        report("DDP over Gloo", workers=options.processes, steps_per_s=per_s, step_ms=1e3 / per_s)
    distributed.barrier()
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=25_000_000)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(run, args=(options, os.path.join(folder, "meeting")), nprocs=options.processes)


if __name__ == "__main__":
    main()
