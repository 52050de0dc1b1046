"""Which wrappers of torch around a model the optimizer takes, and which it refuses, with two processes on one device.

    wrappers.py --device cuda:0      # prints JSON: {wrapper: "accepted", or the error}
"""

import argparse
import json
import pathlib
import tempfile

import torch
from torch import distributed, multiprocessing, nn
from torch.distributed.fsdp import fully_shard

import slackline

JOB = "name: wrappers\nmodel: {kind: external}\n"
WANTED = {"fully_shard": "TypeError", "DistributedDataParallel": "ValueError", "torch.compile": "accepted"}


def take_part(rank: int, folder: str, device: str) -> None:
    # Gloo, because NCCL wants a device for each process.
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = distributed.device_mesh.init_device_mesh(torch.device(device).type, (2,))
    wrappers = {
        "fully_shard": lambda model: fully_shard(model, mesh=mesh),
        "DistributedDataParallel": nn.parallel.DistributedDataParallel,
        "torch.compile": torch.compile,
    }
    # The worker joins no job: the optimizer refuses before.
    worker = slackline.connect("127.0.0.1:1", f"{folder}/job.yaml", log="nothing")
    said = {}
    for name, wrap in wrappers.items():
        try:
            worker._optimizer = None
            slackline.Optimizer(wrap(nn.Linear(4, 4).to(device)), worker)
            said[name] = "accepted"
        except (TypeError, ValueError) as error:
            said[name] = f"{type(error).__name__}: {error}"
        distributed.barrier()
    if rank == 0:
        pathlib.Path(folder, "said.json").write_text(json.dumps(said))
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "job.yaml").write_text(JOB)
        multiprocessing.spawn(take_part, (folder, options.device), nprocs=2)
        said = json.loads(pathlib.Path(folder, "said.json").read_text())
    print(json.dumps(said))
    wrong = {name: said[name] for name, want in WANTED.items() if not said[name].startswith(want)}
    if wrong:
        raise SystemExit(f"found {wrong}; allowed is {WANTED}")


if __name__ == "__main__":
    main()
