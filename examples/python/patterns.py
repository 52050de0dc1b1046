"""Trains a small network on pictures that it draws itself: ten patterns under noise. Needs no download.

slackline launch examples/python/patterns.py --servers 2 --workers 2 examples/python/patterns.yaml
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import slackline

CLASSES, SIDE = 10, 12


def pictures(count, noise, seed):
    """`count` pictures of SIDE x SIDE, and which pattern each shows; the patterns are the same for every seed."""
    patterns = torch.randn(CLASSES, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return TensorDataset(patterns[labels] + noise * torch.randn(count, 1, SIDE, SIDE, generator=generator), labels)


def network():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * (SIDE // 2) ** 2, CLASSES),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=4000, help="to train on")
    parser.add_argument("--noise", type=float, default=2.0, help="deviation, where the patterns have 1")
    options = parser.parse_args()

    train, test = pictures(options.pictures, options.noise, seed=1), pictures(1000, options.noise, seed=2)
    with slackline.connect() as worker:
        torch.manual_seed(worker.seed)  # all workers begin alike
        model, loss = network(), nn.CrossEntropyLoss()
        optimizer = slackline.Optimizer(model, worker)

        def measure():
            inputs, labels = test.tensors
            outputs = model(inputs)
            accuracy = (outputs.argmax(1) == labels).float().mean()
            return {"loss": loss(outputs, labels).item(), "accuracy": accuracy.item()}

        worker.evaluation(measure, samples=len(test))
        loader = DataLoader(train, batch_size=worker.batch_size, sampler=worker.sampler(len(train)))
        for inputs, labels in worker.batches(loader):
            optimizer.zero_grad()
            outputs = model(inputs)
            error = loss(outputs, labels)
            error.backward()
            accuracy = (outputs.argmax(1) == labels).float().mean()
            worker.report(loss=error.item(), accuracy=accuracy.item())
            optimizer.step()
        print(f"{worker.name} took {worker.clock} steps: {worker.reason}")


if __name__ == "__main__":
    main()
