#!/usr/bin/env python3
"""Trains a job of `slackline experiment` without Slackline: one process, plain PyTorch, the same images, model, batch and optimizer.

usage: plain_loop.py JOB --run-folder FOLDER

JOB has every setting. It may have a cnn, resnet18 or resnet34 on prepared images (uint8), and SGD. FOLDER gets summary.json and epochs.csv
with the fields that a run of Slackline has. Energy is not metered. Needs torch, numpy and PyYAML. A script of your own for another job does
the same.
"""

import csv
import json
import pathlib
import sys
import time

import numpy
import torch
import yaml
from torch import nn

EVALUATION_BATCH = 500


class Block(nn.Module):
    """He et al. 2016, figure 2, with a projection where the shape changes."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)) if changes else nn.Identity()

    def forward(self, x):
        inner = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(inner)) + self.shortcut(x))


def resnet(blocks, channels, classes):
    layers = [nn.Conv2d(channels, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate(blocks):
        for index in range(count):
            layers.append(Block(inputs, 64 * 2**stage, 2 if stage > 0 and index == 0 else 1))
            inputs = 64 * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def cnn(filters, hidden, shape, classes):
    """Convolutions with ReLU and pooling, then fully connected layers."""
    layers, (channels, height, width) = [], shape
    for outputs in filters:
        layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()]
        channels, height, width = outputs, height // 2, width // 2
    layers.append(nn.Flatten())
    inputs = channels * height * width
    for outputs in hidden:
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


def make_model(job, shape):
    model = job["model"]
    if model["kind"] == "cnn":
        return cnn(model["filters"] or [32, 64], model["hidden"] or [128], shape, model["classes"])
    return resnet({"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}[model["kind"]], shape[0], model["classes"])


# Values of the settings that this loop supports. It refuses a job with any other.
ALLOWED = {"model.kind": ("cnn", "resnet18", "resnet34"), "model.batch_norm": (False,), "model.weights": ("",), "data.format": ("prepared",),
           "data.train_images_max": (0,), "data.sampling": ("uniform",), "data.augment.flip": ("none",), "data.augment.crop_padding": (0,),
           "data.augment.crop_area_min": (1,), "training.accumulate": (1,), "training.early_stopping.patience": (0,),
           "optimizer.kind": ("sgd",), "optimizer.nesterov": (False,), "optimizer.clip_norm": (0,), "optimizer.ema": (0,),
           "optimizer.schedule.kind": ("constant",), "worker.precision": ("float32",)}


def check(job):
    """Ends the process where the job has what this loop does not do."""
    for key, allowed in ALLOWED.items():
        found = job
        for name in key.split("."):
            found = found[name]
        if found not in allowed:
            sys.exit(f"plain_loop.py: {key}: found {found}; allowed is {' or '.join(map(str, allowed))}")


class Images:
    """A split of prepared images, normalised."""

    def __init__(self, folder, split, device, memory_format):
        index = json.loads((folder / "index.json").read_text())
        if index.get("dtype", "uint8") != "uint8":
            sys.exit(f"plain_loop.py: data.path: found {index['dtype']} in {folder}; allowed is uint8")
        shards = [numpy.load(path) for path in sorted(folder.glob(f"{split}-*.images.npy"))]
        if not shards:
            sys.exit(f"plain_loop.py: data.path: found no split {split} in {folder}")
        self.pixels = torch.from_numpy(numpy.concatenate(shards))
        self.labels = torch.from_numpy(numpy.concatenate([numpy.load(path) for path in sorted(folder.glob(f"{split}-*.labels.npy"))]))
        self.mean = torch.tensor(index["mean"]).view(-1, 1, 1)
        self.deviation = torch.tensor(index["deviation"]).view(-1, 1, 1)
        self.device, self.memory_format = device, memory_format

    def batch(self, indices):
        pixels = (self.pixels[indices].float() / 255 - self.mean) / self.deviation
        return pixels.to(self.device, memory_format=self.memory_format), self.labels[indices].to(self.device)


def evaluate(model, images):
    """Loss, accuracy and seconds."""
    begin, loss, right = time.monotonic(), 0.0, 0
    model.eval()
    with torch.no_grad():
        for indices in torch.arange(len(images.labels)).split(EVALUATION_BATCH):
            pixels, labels = images.batch(indices)
            outputs = model(pixels)
            loss += nn.functional.cross_entropy(outputs, labels, reduction="sum").item()
            right += int((outputs.argmax(1) == labels).sum())
    model.train()
    return loss / len(images.labels), right / len(images.labels), time.monotonic() - begin


def train_epoch(model, optimizer, images, batch_size):
    """Loss and accuracy, as means over the images; steps."""
    loss_sum, right, order = 0.0, 0, torch.randperm(len(images.labels))
    batches = order.split(batch_size)
    for indices in batches:
        pixels, labels = images.batch(indices)
        outputs = model(pixels)
        loss = nn.functional.cross_entropy(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * len(indices)
        right += int((outputs.argmax(1) == labels).sum())
    return loss_sum / len(order), right / len(order), len(batches)


def run(job):
    """The summary, and the rows of epochs.csv."""
    torch.manual_seed(job["seed"])
    if job["worker"]["threads"] > 0:
        torch.set_num_threads(job["worker"]["threads"])
    device = torch.device((job["worker"]["devices"] or ["cpu"])[0])
    memory_format = torch.channels_last if job["worker"]["channels_last"] else torch.contiguous_format
    train, held_out, last = (Images(pathlib.Path(job["data"]["path"]), split, device, memory_format) for split in (
        "train", job["data"]["evaluation_split"], "test" if job["data"]["test_at_end"] else job["data"]["evaluation_split"]))
    model = make_model(job, train.pixels.shape[1:]).to(device, memory_format=memory_format)
    optimizer = torch.optim.SGD(model.parameters(), lr=job["optimizer"]["lr"], momentum=job["optimizer"]["momentum"],
                                weight_decay=job["optimizer"]["weight_decay"])
    epochs, every = job["training"]["epochs"], job["training"]["evaluate_every_epochs"]
    rows, evaluations, steps, train_s, begin = [], [], 0, 0.0, time.monotonic()
    for epoch in range(1, epochs + 1):
        before = time.monotonic()
        loss, accuracy, made = train_epoch(model, optimizer, train, job["training"]["batch_size"])
        steps += made
        end = time.monotonic()
        row = {"epoch": epoch, "end_s": end - begin, "train_s": end - before, "validation_s": 0, "test_s": 0, "loss": loss, "accuracy": accuracy}
        final = epoch == epochs
        if final:
            train_s = end - begin
        if final or (every > 0 and epoch % every == 0):
            images = last if final else held_out
            test_loss, test_accuracy, seconds = evaluate(model, images)
            row |= {"test_s" if final else "validation_s": seconds, "test_loss": test_loss, "test_accuracy": test_accuracy}
            evaluations.append({"epoch": epoch, "time_s": end - begin, "samples": epoch * len(train.labels),
                                "samples_applied": epoch * len(train.labels), "accuracy": test_accuracy, "loss": test_loss,
                                "tested": len(images.labels), "seconds": seconds, "seconds_per_sample": seconds / len(images.labels),
                                "apart": final and job["data"]["test_at_end"], "values": {}})
        rows.append(row)
    samples = epochs * len(train.labels)
    best = max((one["accuracy"] for one in evaluations if not one["apart"]), default=evaluations[-1]["accuracy"])
    return {"name": job["name"], "state": "done", "reason": "", "mode": "plain", "seed": job["seed"], "workers": 1, "servers": 0,
            "epochs": epochs, "time_s": time.monotonic() - begin, "train_s": train_s, "samples": samples, "samples_applied": samples,
            "epoch_samples": len(train.labels), "steps": steps, "samples_per_second": samples / train_s, "loss": rows[-1]["loss"],
            "test_accuracy": evaluations[-1]["accuracy"], "test_loss": evaluations[-1]["loss"], "best_test_accuracy": best,
            "energy": None, "evaluations": evaluations}, rows


def main():
    if len(sys.argv) != 4 or sys.argv[2] != "--run-folder":
        print(__doc__, file=sys.stderr)
        return 2
    job = yaml.safe_load(pathlib.Path(sys.argv[1]).read_text())
    check(job)
    summary, rows = run(job)
    folder = pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True)
    with (folder / "epochs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[-1]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    # Last: it says that all is there.
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(f"test accuracy {summary['test_accuracy']:.4f}, {summary['samples_per_second']:.0f} samples/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
