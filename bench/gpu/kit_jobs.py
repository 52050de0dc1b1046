"""Runs of one worker, and of the same loop in plain PyTorch, with their figures."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from kit_context import KIT, Context, Meter, Skip

Settings = Mapping[str, object]


@dataclass(frozen=True)
class Size:
    model: str
    batch: int
    images: int
    epochs: int


def size_of(context: Context, model: str) -> Size:
    if not context.has_gpu:
        # Shows that everything runs.
        return Size("tiny", 8, 64, 2)
    # Whole batches: cuDNN tries its algorithms for each size of a batch. About 10 s on an H100.
    return {"resnet50": Size("resnet50", 256, 140 * 256, 1), "vit_base": Size("vit_base", 128, 110 * 128, 1),
            "small": Size("small", 32, 2000 * 32, 1)}[model]


def synthetic_images(context: Context, images: int) -> pathlib.Path:
    """Prepared images of 3 x 224 x 224 in 16 classes: at least that many train. Each is there several times, by links to
    its file."""
    count = min(images + images // 20 + 8, 4096)
    folder, prepared = context.out / "pictures", context.out / f"prepared-{count}"
    whole = prepared / "whole"
    if not whole.exists():
        shutil.rmtree(prepared, ignore_errors=True)
        context.run("pictures", context.python("pictures.py", folder, "--count", count))
        context.run("prepare", [context.program("slackline"), "prepare", str(folder), str(prepared), "--size", "224",
                                "--split", "train=0.98,test=0.02", "--seed", "1"])
        shutil.rmtree(folder)
        index = json.loads((prepared / "index.json").read_text())
        train = index["splits"]["train"]
        times = -(-images // train["images"])
        shards = []
        for shard in train["shards"]:
            for number in range(times):
                copy = {"rows": shard["rows"]}
                for part in ("images", "labels"):
                    name = shard[part]["name"].replace("train-", f"train-{number}-")
                    os.link(prepared / shard[part]["name"], prepared / name)
                    copy[part] = {**shard[part], "name": name}
                shards.append(copy)
        train |= {"images": times * train["images"], "shards": shards,
                  "class_counts": [times * images_of_class for images_of_class in train["class_counts"]]}
        (prepared / "index.json").write_text(json.dumps(index))
        whole.touch()
    return prepared


def job(context: Context, name: str, settings: Settings) -> "tuple[pathlib.Path, list[str]]":
    """The run folder, and the arguments of `slackline train` or `launch`. A setting of None keeps the job's default."""
    run = context.out / "runs" / name
    shutil.rmtree(run, ignore_errors=True)
    run.parent.mkdir(exist_ok=True)
    file = context.out / "runs" / f"{name}.yaml"
    file.write_text(f"name: {name}\n")
    settings = {
        "training.evaluate_every_epochs": 0, "cluster.workers": 1, "cluster.servers": 1, "consistency.mode": "async",
        "durability.mode": "none", "optimizer.lr": 0.001, "optimizer.momentum": 0.9, "output.report_every_ms": 200, **settings,
    }
    overrides = [part for key, value in settings.items() if value is not None for part in ("--set", f"{key}={value}")]
    return run, [str(file), "--run-folder", str(run), *overrides]


def summary_of(run: pathlib.Path) -> "dict[str, Any]":
    return json.loads((run / "summary.json").read_text())


def figures_of(run: pathlib.Path) -> "dict[str, Any]":
    from race_plain_loop import rate_of

    summary = summary_of(run)
    try:
        rate = rate_of(run / "metrics.csv", warmup_seconds=3)
    except SystemExit:  # shorter than the warm-up, as without a GPU
        rate = summary["samples_per_second"]
    energy = summary.get("energy") or {}
    return {"samples_per_second": rate, "train_s": summary["train_s"], "joules": energy.get("joules")}


def run_job(context: Context, run: pathlib.Path, name: str, command: Sequence[str]) -> "dict[str, Any]":
    with Meter(context) as meter:
        try:
            context.run(name, command)
        except RuntimeError as error:
            # A script that lacks a library says so in its log, whose end is in the message.
            lacks = re.search(r"SKIP: ([^\n]*)", str(error))
            raise Skip(lacks[1]) if lacks else error from None
    return figures_of(run) | meter.figures(summary_of(run)["time_s"])


def by_worker(context: Context, model: str, name: str, settings: Settings) -> "dict[str, Any]":
    size = size_of(context, model)
    tiny = {"model.kind": "cnn", "model.filters": "[2, 2]", "model.hidden": "[8]"}
    run, arguments = job(context, name, {
        "training.batch_size": size.batch, "training.epochs": size.epochs,
        **(tiny if size.model == "tiny" else {"model.kind": size.model}), "model.classes": 16, "worker.devices": context.device,
        "worker.precision": "bf16", "worker.cudnn_benchmark": "true", "data.format": "prepared", "data.threads": 8,
        "data.train_images_max": size.images, "data.path": synthetic_images(context, size.images), **settings})
    return run_job(context, run, name, [context.program("slackline"), "train", *arguments, "--quiet"])


def launch(context: Context, arguments: Sequence[str], script: str, *options: object, several: Sequence[str] = ()) -> "list[str]":
    """The command of a job whose workers are a script of the kit."""
    command = context.python(script, *options)
    return [context.program("slackline"), "launch", command[1], *arguments, *several, "--quiet", "--python", command[0], "--",
            *command[2:]]


def by_script(context: Context, model: str, name: str, settings: Settings, *options: object,
              several: Sequence[str] = (), scripts: int = 1) -> "dict[str, Any]":
    """`scripts` share the batch, if they are several on this machine."""
    size = size_of(context, model)
    run, arguments = job(context, name, {
        "model.kind": "external", "training.batch_size": size.batch, "training.epochs": size.epochs, **settings})
    command = launch(context, arguments, "network.py", "--script", "--device", context.device, "--model", size.model, "--batch",
                     size.batch // scripts, "--images", size.images, *options, several=several)
    return run_job(context, run, name, command)


def plain(context: Context, model: str, name: str, *options: object) -> "dict[str, Any]":
    size = size_of(context, model)
    seconds, warm_up = (6, 10) if context.has_gpu else (1, 2)
    command = context.python("network.py", "--device", context.device, "--model", size.model, "--batch", size.batch,
                             "--seconds", seconds, "--warm-up", warm_up, *options)
    output = context.run(name, command)
    # A progress bar may stand on the same line.
    said = re.search(r'{"samples_per_second".*?}', output)
    if said is None:
        raise RuntimeError(f"{name} says no rate: {output[-1000:]}")
    return json.loads(said[0])


def train_fashion(context: Context, name: str, settings: Settings) -> "tuple[pathlib.Path, dict[str, Any]]":
    """A small network on 10,000 images of Fashion-MNIST. Returns the run folder and its summary."""
    epochs = 4 if context.has_gpu else 1
    run, arguments = job(context, name, {
        "model.kind": "cnn", "training.batch_size": 64, "training.epochs": epochs, "training.evaluate_every_epochs": epochs,
        "worker.devices": context.device, "data.path": KIT / "images", "optimizer.lr": 0.05, "optimizer.momentum": 0, **settings})
    context.run(name, [context.program("slackline"), "train", *arguments, "--quiet"])
    return run, summary_of(run)
