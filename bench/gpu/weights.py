"""A script of a Slackline job that trains a second network beside the first, on the same batches by torch.optim.SGD, and
compares their weights after each step. The network is large enough that gradients leave during backward.

--scaler trains in fp16 with a torch.amp.GradScaler; some steps overflow, and must be left out. --half has parameters in
bfloat16, of which the servers keep float32. --node-group makes the script a node group of one process.
"""

import argparse
import copy
import json
import math
import pathlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import slackline

IMAGES = 256
# float32 has 1.2e-7; backward of convolutions adds in any order.
TOLERANCE = 1e-4
# Values that differ by TOLERANCE may be rounded to either side: fp16 has 4.9e-4, and bfloat16 3.9e-3.
HALF_TOLERANCE = 1e-2
LEARNING_RATE = 0.05  # also in the job
# Steps whose loss is infinite, from 1; for --scaler.
OVERFLOWS = (3, 7)


class Rounded(torch.optim.SGD):
    """SGD on float32 copies of parameters in bfloat16."""

    def __init__(self, parameters: "list[nn.Parameter]") -> None:
        self._halves = parameters
        self._wholes = [one.detach().float() for one in parameters]
        super().__init__(self._wholes, lr=LEARNING_RATE)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for one in self._halves:
            one.grad = None

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for half, whole in zip(self._halves, self._wholes):
            whole.grad = half.grad.float()
        super().step(closure)
        for half, whole in zip(self._halves, self._wholes):
            half.copy_(whole)


def connect(node_group: bool, device: str) -> slackline.Worker:
    if not node_group:
        return slackline.connect()
    distributed = torch.distributed
    backend = "nccl" if device.startswith("cuda") else "gloo"
    distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)
    return slackline.connect(node_group=distributed.group.WORLD)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    for name in ("scaler", "half", "node-group"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    kind = torch.device(options.device).type
    torch.manual_seed(1)
    torch.backends.cudnn.deterministic = True
    images, labels = torch.randn(IMAGES, 3, 16, 16), torch.randint(10, (IMAGES,))
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.Identity() if options.half else nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 256, 600), nn.ReLU(), nn.Linear(600, 10),
    ).to(options.device)
    if options.half:
        model, images = model.bfloat16(), images.bfloat16()
    reference = copy.deepcopy(model)
    start = copy.deepcopy(reference.state_dict())
    parameters = list(reference.parameters())
    plain = Rounded(parameters) if options.half else torch.optim.SGD(parameters, lr=LEARNING_RATE)
    loss = nn.CrossEntropyLoss()
    elements = sum(parameter.numel() for parameter in model.parameters())
    half = torch.float16 if kind == "cuda" else torch.bfloat16
    scalers = [torch.amp.GradScaler(kind, enabled=options.scaler, init_scale=256.0) for _ in range(2)]

    def step(network: nn.Module, optimizer, scaler, index: torch.Tensor, overflows: bool) -> None:
        optimizer.zero_grad()
        with torch.autocast(kind, half, enabled=options.scaler):
            found = loss(network(images[index].to(options.device)), labels[index].to(options.device))
        scaler.scale(found * math.inf if overflows else found).backward()
        scaler.step(optimizer)
        scaler.update()

    def differences() -> "dict[str, float]":
        """Of each tensor, relative to how far it has moved."""
        found = {}
        for name, want in reference.state_dict().items():
            if want.is_floating_point():
                moved = (want - start[name]).float().norm().item()
                found[name] = (model.state_dict()[name] - want).float().norm().item() / max(moved, 1e-6)
        return found

    tolerance = HALF_TOLERANCE if options.half or options.scaler else TOLERANCE
    with connect(options.node_group, options.device) as worker:
        optimizer = slackline.Optimizer(model, worker, overlap=not options.scaler)
        loader = DataLoader(TensorDataset(torch.arange(IMAGES)), batch_size=16, sampler=worker.sampler(IMAGES))
        for steps, (index,) in enumerate(worker.batches(loader), start=1):
            overflows = options.scaler and steps in OVERFLOWS
            if options.half:
                # Else a weight that is rounded to the other side changes all later gradients.
                reference.load_state_dict(model.state_dict())
            step(model, optimizer, scalers[0], index, overflows)
            step(reference, plain, scalers[1], index, overflows)
            # Here and not after the loop: the job may be over then.
            found = differences()
            said = {"steps": steps, "pushes": worker.clock, "elements": elements, "worst": max(found.values()),
                    "scale": scalers[0].get_scale(), "relative_difference": found}
            options.out.write_text(json.dumps(said))
            if not said["worst"] <= tolerance:
                raise AssertionError(f"step {steps}: a tensor differs by {said['worst']:.2e} of its movement; "
                                     f"allowed is {tolerance}: {found}")
            if scalers[0].get_scale() != scalers[1].get_scale():
                raise AssertionError(f"step {steps}: the scale is {scalers[0].get_scale()}; plain PyTorch has {scalers[1].get_scale()}")


if __name__ == "__main__":
    main()
