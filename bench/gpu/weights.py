"""A script of a Slackline job that trains a second network beside the first, on the same batches by torch.optim.SGD, and
compares their weights after each step. The network is large enough that gradients leave during backward."""

import argparse
import copy
import json
import pathlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import slackline

IMAGES = 256
# float32 has 1.2e-7; backward of convolutions adds in any order.
TOLERANCE = 1e-4
LEARNING_RATE = 0.05  # also in the job


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cudnn.deterministic = True
    images, labels = torch.randn(IMAGES, 3, 16, 16), torch.randint(10, (IMAGES,))
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 256, 600), nn.ReLU(), nn.Linear(600, 10),
    ).to(options.device)
    reference = copy.deepcopy(model)
    start = copy.deepcopy(reference.state_dict())
    plain = torch.optim.SGD(reference.parameters(), lr=LEARNING_RATE)
    loss = nn.CrossEntropyLoss()
    elements = sum(parameter.numel() for parameter in model.parameters())

    def step(network: nn.Module, optimizer, index: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss(network(images[index].to(options.device)), labels[index].to(options.device)).backward()
        optimizer.step()

    def differences() -> "dict[str, float]":
        """Of each tensor, relative to how far it has moved."""
        found = {}
        for name, want in reference.state_dict().items():
            if want.is_floating_point():
                moved = (want - start[name]).norm().item()
                found[name] = (model.state_dict()[name] - want).norm().item() / max(moved, 1e-6)
        return found

    with slackline.connect() as worker:
        optimizer = slackline.Optimizer(model, worker)
        loader = DataLoader(TensorDataset(torch.arange(IMAGES)), batch_size=16, sampler=worker.sampler(IMAGES))
        for steps, (index,) in enumerate(worker.batches(loader), start=1):
            step(model, optimizer, index)
            step(reference, plain, index)
            # Here and not after the loop: the job may be over then.
            found = differences()
            said = {"steps": steps, "elements": elements, "worst": max(found.values()), "relative_difference": found}
            options.out.write_text(json.dumps(said))
            if said["worst"] > TOLERANCE:
                raise AssertionError(f"step {steps}: a tensor differs by {said['worst']:.2e} of its movement; "
                                     f"allowed is {TOLERANCE}: {found}")


if __name__ == "__main__":
    main()
