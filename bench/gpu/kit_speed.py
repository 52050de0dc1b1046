"""Checks whose figures are rates, times and bytes."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re
import statistics
from typing import Any, Callable

import kit_jobs
from kit_context import Context, Skip
from kit_jobs import by_script, by_worker, plain

# The part of the speed of the same loop in plain PyTorch that each way should reach at least.
BARS = {"worker": 0.97, "script": 0.97, "Trainer": 0.95}


class Parts:
    """Measures the parts of a check, each of which may fail without the others."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._problems: "list[str]" = []

    def measure(self, name: str, part: "Callable[[], dict[str, Any]]") -> "dict[str, Any]":
        try:
            figure = part()
        except Skip as reason:
            figure = {"skipped": str(reason)}
        except (Exception, SystemExit) as error:  # pylint: disable=broad-except
            figure = {"problem": f"{type(error).__name__}: {error}"[-1500:]}
            self._problems.append(name)
        self._context.add(name, figure)
        return figure

    def end(self) -> None:
        if self._problems:
            raise RuntimeError(f"these failed: {', '.join(self._problems)}")


def beside(peer: "dict[str, Any]", figure: "dict[str, Any]", bar: float) -> "dict[str, Any]":
    if "samples_per_second" not in peer:
        return figure
    ratio = figure["samples_per_second"] / peer["samples_per_second"]
    return {**figure, "ratio": ratio, "bar": bar, "reached": ratio >= bar}


def throughput(model: str, window: int) -> "Callable[[Context], None]":
    """Samples per second of the C++ worker and of a script, beside the same loop in plain PyTorch."""

    def check(context: Context) -> None:
        parts = Parts(context)
        wire = {"wire.window": window}

        def script() -> "dict[str, Any]":
            context.need_package()
            times = context.out / f"{name}-script-times.json"
            figure = by_script(context, model, f"{name}-script", wire, "--times", times)
            return {**beside(peer, figure, BARS["script"]), "milliseconds": json.loads(times.read_text())}

        name = f"{model}-window{window}"
        peer = parts.measure("plain", lambda: plain(context, model, f"{name}-plain"))
        parts.measure(f"worker, window {window}",
                      lambda: beside(peer, by_worker(context, model, f"{name}-worker", wire), BARS["worker"]))
        parts.measure(f"script, window {window}", script)
        parts.end()

    return check


def hf_trainer(context: Context) -> None:
    """Hugging Face's Trainer as a worker, beside itself without Slackline."""
    context.need_package()
    for module in ("transformers", "accelerate"):
        if importlib.util.find_spec(module) is None:
            raise Skip(f"there is no {module}")
    parts = Parts(context)
    peer = parts.measure("plain", lambda: plain(context, "vit_base", "trainer-plain", "--trainer"))
    parts.measure("Trainer, window 2", lambda: beside(
        peer, by_script(context, "vit_base", "trainer", {"wire.window": 2}, "--trainer"), BARS["Trainer"]))
    parts.end()


def kernels(context: Context) -> None:
    output = context.run("kernels", [context.program("gpu_codec_bench"), "--benchmark_repetitions=3"])
    context.add("gb_per_second", {name: float(rate) for name, rate in re.findall(r"^(\S+) +([0-9.]+) GB/s$", output, re.M)})
    context.add("ratios", {f"{name} / {peer}": float(ratio) for name, peer, ratio in
                           re.findall(r"^ratio (\S+) +/ (\S+) +([0-9.]+)$", output, re.M)})


def overlaps_of(trace: pathlib.Path) -> "dict[str, Any]":
    """From a worker's trace: medians over its steps, in milliseconds. The parts of exchanges that lie within computing are hidden."""
    events = json.loads(trace.read_text())["traceEvents"]
    computing = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["name"] in ("forward", "backward")]
    begun = {(e["cat"], e["id"]): e["ts"] for e in events if e["ph"] == "b"}
    spans: "dict[str, list[tuple[float, float]]]" = {}
    for event in events:
        if event["ph"] == "e":
            what = re.sub(r" \d+$", "", event["name"])
            spans.setdefault(what, []).append((begun[event["cat"], event["id"]], event["ts"]))
    figures: "dict[str, Any]" = {}
    for what in ("step", "forward", "backward"):
        lengths = [e["dur"] / 1e3 for e in events if e["ph"] == "X" and re.fullmatch(what + r"( \d+)?", e["name"])]
        figures[f"{what}_ms"] = statistics.median(lengths) if lengths else None
    for what, own in spans.items():
        whole = sum(end - begin for begin, end in own)
        hidden = sum(max(0, min(end, last) - max(begin, first)) for begin, end in own for first, last in computing)
        figures[f"{what} hidden"] = hidden / whole if whole else None
        figures[f"{what}_ms"] = statistics.median((end - begin) / 1e3 for begin, end in own)
    return figures


def timeline(context: Context) -> None:
    """When backward, copies and pushes of a step begin and end; traces for Perfetto lie beside the results."""

    def worker() -> "dict[str, Any]":
        settings = {"wire.window": 2, "worker.trace": context.out / "trace.json"}
        if context.has_gpu:
            settings["data.train_images_max"] = 40 * 256
        by_worker(context, "resnet50", "timeline-worker", settings)
        return overlaps_of(next(context.out.glob("trace*.json")))

    def script() -> "dict[str, Any]":
        context.need_package()
        size = kit_jobs.size_of(context, "resnet50")
        out = context.out / "script-timeline.json"
        run, arguments = kit_jobs.job(context, "timeline-script", {
            "model.kind": "external", "training.batch_size": size.batch, "training.epochs": 1, "wire.window": 2})
        images = 24 * size.batch
        context.run("timeline-script", kit_jobs.launch(
            context, arguments, "script_timeline.py", "--device", context.device, "--model", size.model, "--batch", size.batch,
            "--images", images, "--out", out))
        steps = json.loads(out.read_text())["steps"]
        worker = kit_jobs.summary_of(run)["worker_list"][0]
        return {**{name: statistics.median(step[name] for step in steps) for name in steps[0]},
                "push_ms": 1e3 * worker["push_seconds"] / worker["steps"]}

    parts = Parts(context)
    parts.measure("script", script)
    parts.measure("worker", worker)
    parts.end()


def graphs(context: Context) -> None:
    """Steps that are replayed as CUDA graphs, beside the same ones that are not."""
    context.need_gpu()
    parts = Parts(context)

    def worker(on: bool) -> "dict[str, Any]":
        name = f"graphs-worker-{on}"
        try:
            run, _ = kit_jobs.train_fashion(context, name, {
                "training.epochs": 20, "training.evaluate_every_epochs": 0, "worker.cuda_graphs": str(on).lower()})
        except RuntimeError as error:
            # The worker refuses an old LibTorch by this text.
            refused = re.search(r"LibTorch \S+ has no graphs for cuda devices", str(error))
            raise Skip(refused[0]) if refused else error from None
        return kit_jobs.figures_of(run)

    def script(*options: str) -> "dict[str, Any]":
        context.need_package()
        return by_script(context, "small", f"graphs-script-{len(options)}", {"wire.window": 1}, *options)

    parts.measure("worker", lambda: worker(False))
    parts.measure("worker, graphs", lambda: worker(True))
    for name, options in (("", ()), (", graphs", ("--graphs",))):
        parts.measure(f"plain{name}", lambda: plain(context, "small", f"graphs-plain-{len(options)}", *options))
        parts.measure(f"script{name}", lambda: script(*options))
    parts.end()


def pinned(context: Context) -> None:
    """Batches in pinned memory beside batches in ordinary memory."""
    context.need_gpu()
    parts = Parts(context)
    for name, options in (("pinned", ()), ("pageable", ("--pageable",))):
        parts.measure(f"plain, {name}", lambda: plain(context, "resnet50", f"{name}-plain", *options))
        parts.measure(f"script, {name}", lambda: by_script(context, "resnet50", f"{name}-script", {"wire.window": 2}, *options))
    parts.end()


def stages(context: Context) -> None:
    """A model in two stages on two devices, beside the whole model on one."""
    second = "cpu"
    if context.has_gpu:
        second = "cuda:1"
        if context.gpus() < 2:
            raise Skip("there is one GPU, and a job names each once; of gpu_tests, StagesHaveTheGradientsOfACpu has two stages there")
    parts = Parts(context)
    settings = {"wire.window": 2, "worker.cudnn_benchmark": None}
    parts.measure("one stage", lambda: by_worker(context, "vit_base", "stages-1", settings))
    parts.measure("two stages", lambda: by_worker(context, "vit_base", "stages-2", {
        **settings, "worker.stages": 2, "worker.devices": f"[{context.device}, {second}]"}))
    parts.end()


def two_scripts(context: Context) -> None:
    """Two scripts on one device, or on one each: each a worker of its own, and both as one node group."""
    context.need_package()
    parts = Parts(context)
    name = "two-scripts"
    several = ("--per-node", "2")

    def group() -> "dict[str, Any]":
        try:
            return by_script(context, "resnet50", f"{name}-group", {"wire.window": 1}, several=(*several, "--node-group"), scripts=2)
        except RuntimeError as error:
            logs = "".join(log.read_text(errors="replace") for log in context.out.glob(f"runs/{name}-group/logs/*.log"))
            refused = re.search(r"Duplicate GPU detected[^\n]*|ncclInvalidUsage[^\n]*", logs + str(error))
            raise Skip(f"NCCL takes one process for each GPU: {refused[0]}") if refused else error from None

    parts.measure("one script", lambda: by_script(context, "resnet50", f"{name}-1", {"wire.window": 1}))
    parts.measure("two scripts", lambda: by_script(
        context, "resnet50", f"{name}-2", {"wire.window": 1, "cluster.workers": 2}, several=several, scripts=2))
    parts.measure("node group of two", group)
    parts.end()


def local_gpt(context: Context) -> None:
    """A GPT whose worker takes many steps between two pushes: bytes, and the share of time in which it waits."""
    folder = context.out / "gpt"
    sizes = () if context.has_gpu else ("--width", 32, "--layers", 2, "--heads", 2)
    images, batch, steps = 128, 4, 16
    output = context.run("gpt", context.python("gpt.py", folder, "--images", images, *sizes))
    # Warnings may stand before it.
    parameters = json.loads(output.splitlines()[-1])["parameters"]
    context.add("parameters", parameters)
    run, arguments = kit_jobs.job(context, "gpt", {
        "model.kind": "torchscript", "model.torchscript": folder / "gpt.pt", "data.path": folder, "data.mean": 0.5,
        "data.deviation": 0.25, "training.batch_size": batch, "training.epochs": 1, "worker.devices": context.device,
        "consistency.mode": "bsp", "local.steps": steps, "local.lr": 0.001, "optimizer.lr": 0.7, "cluster.servers": 2})
    figures = kit_jobs.run_job(context, run, "gpt-train", [context.program("slackline"), "train", *arguments, "--quiet"])
    worker = kit_jobs.summary_of(run)["worker_list"][0]
    for name, figure in {
        "steps": images // batch, "rounds": worker["steps"], "pushed_bytes": worker["pushed_bytes"],
        "pulled_bytes": worker["pulled_bytes"],
        # Pushing after each step would send the model as often as there are steps.
        "pushed_bytes_without_rounds": images // batch * parameters * 4,
        "stall": worker["wait_seconds"] / (worker["wait_seconds"] + worker["compute_seconds"]),
    }.items():
        context.add(name, figure)
    context.add("run", figures)
