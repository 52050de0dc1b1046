"""Runs every check that needs a GPU, the most informative first, each with a time limit of its own. After each check a
line of JSON is added to OUT/results.jsonl at once, because such a machine may be gone at any time.

    ./run --out results                     # all; see --list
    ./run --out results --only resnet50     # by parts of names
    ./run --out results --seconds 240       # begins no check that may end later

Exit codes: 0 all passed or were skipped, 1 a check failed, 2 wrong use.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Callable, Optional

KIT = pathlib.Path(__file__).resolve().parent
# Exit code of a program that finds nothing to do here.
SKIPPED = 77
# Seconds that the driver may take for an answer.
PROBE_S = 50


class Skip(Exception):
    """Why a check does not run on this machine."""


@dataclass(frozen=True)
class Check:
    name: str
    limit_s: float
    run: "Callable[[Context], dict]"
    what: str


@dataclass
class Context:
    out: pathlib.Path
    device: str
    deadline: float = 0  # of the check that runs, by time.monotonic()
    environment: "dict[str, str]" = field(default_factory=dict)

    @property
    def has_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def has_package(self) -> bool:
        """Whether the kit has the Python package."""
        return (KIT / "python/slackline").exists()

    def program(self, name: str) -> str:
        """A program of the kit."""
        path = KIT / "bin" / name
        if not path.exists():
            raise Skip(f"this kit has no {name}")
        return str(path)

    def run(self, name: str, command: "list[str]", allowed: "tuple[int, ...]" = (0,)) -> str:
        """Runs a command until the deadline, with its output in OUT/NAME.log; returns the output."""
        log = self.out / f"{name}.log"
        with open(log, "w") as file:
            child = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                     env={**os.environ, **self.environment}, start_new_session=True, cwd=self.out)
            try:
                code = child.wait(timeout=max(1, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"{name} did not end within the check's time: {tail(log)}") from None
            finally:
                end(child)
        if code == SKIPPED:
            raise Skip(tail(log, 300))
        if code not in allowed:
            raise RuntimeError(f"{pathlib.Path(command[0]).name} ended with {code}: {tail(log)}")
        return log.read_text(errors="replace")


def end(child: subprocess.Popen) -> None:
    """Ends the program and what it has started: first kindly, because a launcher takes its children with it."""
    for number, patience_s in ((15, 5), (9, 5)):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            return
        try:
            child.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            continue


def tail(log: pathlib.Path, characters: int = 1500) -> str:
    return log.read_text(errors="replace").strip()[-characters:]


# --- what is there ---------------------------------------------------------------------------------------------------


def torch_folder() -> pathlib.Path:
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise SystemExit(f"./run: {sys.executable} has no PyTorch; call the kit with one that has: PYTHON=... ./run")
    return pathlib.Path(found.origin).parent


def environment() -> "dict[str, str]":
    """Where programs find their libraries: LibTorch and CUDA in the Python environment, all else in the kit."""
    site = torch_folder().parent
    folders = [KIT / "lib/slackline", torch_folder() / "lib", *sorted(site.glob("nvidia/*/lib"))]
    path = ":".join([*map(str, folders), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    python = ":".join([str(KIT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"LD_LIBRARY_PATH": path, "PYTHONPATH": python, "PYTHONUNBUFFERED": "1"}


def describe(context: Context) -> dict:
    said = subprocess.run(
        [sys.executable, "-c", "import json, torch; print(json.dumps({'torch': torch.__version__, 'gpus': "
         "[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())], 'cudnn': "
         "torch.backends.cudnn.version() if torch.cuda.is_available() else None}))"],
        capture_output=True, text=True, check=True, timeout=PROBE_S)
    facts = json.loads(said.stdout.splitlines()[-1])
    facts |= {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    facts |= json.loads((KIT / "kit.json").read_text())
    if shutil.which("nvidia-smi"):
        query = "driver_version,memory.total,power.limit,clocks.max.sm"
        facts["nvidia_smi"] = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
                                             capture_output=True, text=True, timeout=PROBE_S).stdout.strip()
    return facts


# --- tests -----------------------------------------------------------------------------------------------------------


def tests_listed(text: str) -> "list[str]":
    """Full names of the tests in the output of --gtest_list_tests."""
    tests, suite = [], ""
    for line in text.splitlines():
        name = line.split("#")[0].rstrip()
        if name.endswith(".") and not line.startswith(" "):
            suite = name
        elif line.startswith("  ") and suite:
            tests.append(suite + name.strip())
    return tests


def gpu_tests(context: Context) -> dict:
    """Each test in a process of its own: what CUDA says once, it says to all that come later."""
    program = context.program("worker_gpu_device_test")
    found: "dict[str, list[str]]" = {"passed": [], "skipped": []}
    failed: "dict[str, str]" = {}
    for test in tests_listed(context.run("gpu_tests", [program, "--gtest_list_tests"])):
        log = f"test-{test.replace('/', '-')}"
        try:
            output = context.run(log, [program, f"--gtest_filter={test}"])
            state = "skipped" if "[  SKIPPED ] 1 test" in output else "passed"
            if f"[  {state.upper():7} ] 1 test" not in output:
                raise RuntimeError(f"it did not run: {output[-500:]}")
            found[state].append(test)
        except RuntimeError as error:
            failed[test] = str(error).split("[ RUN      ]")[-1][:1500]
    if failed:
        raise RuntimeError(json.dumps({"failed": failed, **found}))
    return found


def sanitizer(tool: str) -> "Callable[[Context], dict]":
    def check(context: Context) -> dict:
        program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
        if program is None or not context.has_gpu:
            raise Skip("there is no compute-sanitizer" if program is None else "there is no GPU")
        # Large models take minutes here.
        command = [program, "--tool", tool, "--error-exitcode", "9", context.program("worker_gpu_device_test")]
        output = context.run(f"sanitizer_{tool}", [*command, "--gtest_filter=-*GpuModel*"], allowed=(0, 1, 9))
        summary = [line for line in output.splitlines() if "SUMMARY" in line]
        if not any(re.search(r"SUMMARY: 0 (errors|hazards)", line) for line in summary):
            raise RuntimeError(output[:4000])
        # A test that fails is not this check's business.
        return {"said": summary, "tests_passed": re.findall(r"\[  PASSED  \] (\d+) test", output)}

    return check


def kernels(context: Context) -> dict:
    output = context.run("kernels", [context.program("gpu_codec_bench"), "--benchmark_repetitions=3"])
    rates = {name: float(rate) for name, rate in re.findall(r"^(\S+) +([0-9.]+) GB/s$", output, re.M)}
    ratios = {f"{name} / {peer}": float(ratio) for name, peer, ratio in
              re.findall(r"^ratio (\S+) +/ (\S+) +([0-9.]+)$", output, re.M)}
    return {"gb_per_second": rates, "ratios": ratios}


# --- training --------------------------------------------------------------------------------------------------------


def synthetic_images(context: Context, images: int) -> pathlib.Path:
    """Prepared images of 3 x 224 x 224 in 16 classes: at least that many train. Each is there several times, by links to
    its file."""
    count = min(images + images // 20 + 8, 4096)
    folder, prepared = context.out / "pictures", context.out / f"prepared-{count}"
    whole = prepared / "whole"
    if not whole.exists():
        shutil.rmtree(prepared, ignore_errors=True)
        context.run("pictures", [sys.executable, str(KIT / "pictures.py"), str(folder), "--count", str(count)])
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
    # Whole batches: cuDNN tries its algorithms for each size of a batch.
    return {"resnet50": Size("resnet50", 256, 160 * 256, 1), "vit_base": Size("vit_base", 128, 120 * 128, 1)}[model]


def job(context: Context, size: Size, name: str, settings: "dict[str, object]") -> "tuple[pathlib.Path, list[str]]":
    run = context.out / "runs" / name
    shutil.rmtree(run, ignore_errors=True)
    run.parent.mkdir(exist_ok=True)
    file = context.out / "runs" / f"{name}.yaml"
    file.write_text(f"name: {name}\n")
    settings = {
        "training.batch_size": size.batch, "training.epochs": size.epochs, "training.evaluate_every_epochs": 0,
        "cluster.workers": 1, "cluster.servers": 1, "consistency.mode": "async", "durability.mode": "none",
        "optimizer.lr": 0.001, "optimizer.momentum": 0.9, "output.report_every_ms": 200, **settings,
    }
    overrides = [part for key, value in settings.items() if value is not None for part in ("--set", f"{key}={value}")]
    return run, [str(file), "--run-folder", str(run), *overrides]


class PowerMeter:
    """Mean power by nvidia-smi, while it is open."""

    def __enter__(self) -> "PowerMeter":
        self.watts: "list[float]" = []
        self._child = None
        if shutil.which("nvidia-smi"):
            command = ["nvidia-smi", "--query-gpu=power.draw.instant", "--format=csv,noheader,nounits", "-lms", "100"]
            self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._begin = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._begin
        if self._child is not None:
            self._child.terminate()
            lines = self._child.communicate(timeout=PROBE_S)[0].splitlines()
            self.watts = [float(line) for line in lines if re.fullmatch(r"[0-9.]+", line.strip())]

    @property
    def joules(self) -> Optional[float]:
        return sum(self.watts) / len(self.watts) * self.seconds if self.watts else None


def figures_of(run: pathlib.Path) -> dict:
    from race_plain_loop import rate_of

    summary = json.loads((run / "summary.json").read_text())
    try:
        rate = rate_of(run / "metrics.csv", warmup_seconds=3)
    except SystemExit:  # shorter than the warm-up, as without a GPU
        rate = summary["samples_per_second"]
    return {"samples_per_second": rate, "train_s": summary["train_s"], "energy": summary.get("energy")}


def by_worker(context: Context, model: str, window: int, name: str, settings: "dict[str, object]" = {}) -> dict:
    size = size_of(context, model)
    kind = {"tiny": "cnn"}.get(size.model, size.model)
    run, arguments = job(context, size, name, {
        "model.kind": kind, "model.classes": 16, "worker.devices": context.device, "worker.precision": "bf16",
        "worker.cudnn_benchmark": "true", "wire.window": window, "data.format": "prepared", "data.threads": 8,
        "data.train_images_max": size.images,
        "data.path": synthetic_images(context, size.images), **settings})
    with PowerMeter() as meter:
        context.run(name, [context.program("slackline"), "train", *arguments, "--quiet"])
    return figures_of(run) | {"nvidia_smi_joules": meter.joules}


def by_script(context: Context, model: str, window: int, name: str) -> dict:
    size = size_of(context, model)
    run, arguments = job(context, size, name, {"model.kind": "external", "wire.window": window,
                                               "data.train_images_max": size.images})
    command = [context.program("slackline"), "launch", str(KIT / "network.py"), *arguments, "--quiet", "--python",
               sys.executable, "--", "--script", "--device", context.device, "--model", size.model, "--batch",
               str(size.batch), "--images", str(size.images), "--times", str(context.out / f"{name}-times.json")]
    context.run(name, command)
    return figures_of(run) | {"milliseconds": json.loads((context.out / f"{name}-times.json").read_text())}


def plain(context: Context, model: str, name: str) -> dict:
    size = size_of(context, model)
    output = context.run(name, [sys.executable, str(KIT / "network.py"), "--device", context.device, "--model",
                                size.model, "--batch", str(size.batch), "--seconds", "8" if context.has_gpu else "2"])
    return json.loads(output.splitlines()[-1])


def throughput(model: str, windows: "tuple[int, ...]") -> "Callable[[Context], dict]":
    def check(context: Context) -> dict:
        figures = {"plain": plain(context, model, f"{model}-plain")}
        peer = figures["plain"]["samples_per_second"]
        ways = {"worker": by_worker, "script": by_script}
        if not context.has_package:
            del ways["script"]
        for window in windows:
            for way, run in ways.items():
                name = f"{model}-{way}-window{window}"
                try:
                    found = run(context, model, window, name)
                    found["ratio"] = found["samples_per_second"] / peer
                except (RuntimeError, SystemExit) as error:
                    found = {"problem": str(error)}
                figures[f"{way}, window {window}"] = found
                print(f"  {name}: {found}", flush=True)
        if any("problem" in found for found in figures.values()):
            raise RuntimeError(json.dumps(figures))
        return figures

    return check


def timeline(context: Context) -> dict:
    """A trace of a few steps of ResNet-50, for Perfetto."""
    trace = context.out / "trace.json"
    figures = by_worker(context, "resnet50", 2, "timeline", {"worker.trace": trace, "data.train_images_max": 40 * 256})
    return {**figures, "files": sorted(path.name for path in context.out.glob("trace*.json"))}


def train_fashion(context: Context, name: str, settings: "dict[str, object]") -> float:
    """Test accuracy of a small network on 10,000 images of Fashion-MNIST."""
    size = Size("cnn", 64, 10000, 4 if context.has_gpu else 1)
    run, arguments = job(context, size, name, {
        "model.kind": "cnn", "worker.devices": context.device, "data.path": KIT / "images", "optimizer.lr": 0.05,
        "optimizer.momentum": 0, "training.evaluate_every_epochs": size.epochs, **settings})
    context.run(name, [context.program("slackline"), "train", *arguments, "--quiet"])
    return json.loads((run / "summary.json").read_text())["test_accuracy"]


def accuracy(context: Context) -> dict:
    found = train_fashion(context, "fashion", {})
    if found < 0.7:
        raise RuntimeError(f"test accuracy is {found}; expected is at least 0.7")
    return {"test_accuracy": found}


# Settings of a worker; with each of them the network must learn.
SETTINGS: "dict[str, dict[str, object]]" = {
    "resnet18 of 10 classes": {"model.kind": "resnet18", "data.train_images_max": 5000},
    "bf16": {"worker.precision": "bf16"},
    "fp16": {"worker.precision": "fp16"},
    "int8": {"wire.encoding": "int8", "wire.same_host": "tcp"},
    "topk": {"wire.encoding": "topk:0.05", "wire.same_host": "tcp"},
    "accumulate 2": {"training.accumulate": 2},
    "two workers on one GPU": {"cluster.workers": 2, "cluster.servers": 2, "consistency.mode": "bsp"},
    "a GPU and a CPU": {"worker.devices": None, "worker.groups": "[{devices: cuda:0, batch: 64}, {devices: cpu, batch: 16}]",
                        "cluster.workers": 2},
    "CUDA graphs": {"worker.cuda_graphs": "true"},
}


def settings(context: Context) -> dict:
    found: "dict[str, object]" = {}
    for name, chosen in SETTINGS.items():
        if not context.has_gpu and ("GPU" in name or "fp16" in name or "CUDA" in name):
            continue
        try:
            found[name] = train_fashion(context, "settings-" + name.replace(" ", "-"), chosen)
        except RuntimeError as error:
            found[name] = str(error)[-400:]
    bad = [name for name, value in found.items() if not isinstance(value, float) or value < 0.6]
    # CUDA graphs need a newer LibTorch than the kit's; the worker refuses them by this text.
    bad = [name for name in bad if "found true; LibTorch" not in str(found[name])]
    # After one epoch on a CPU a network has learnt little.
    if bad if context.has_gpu else any(not isinstance(value, float) for value in found.values()):
        raise RuntimeError(json.dumps(found))
    return {"test_accuracy": found}


def script_weights(context: Context) -> dict:
    """After some steps a script's weights are those of torch.optim.SGD."""
    if not context.has_package:
        raise Skip("this kit has no Python package")
    run, arguments = job(context, Size("", 16, 256, 2), "weights", {
        "model.kind": "external", "consistency.mode": "bsp", "optimizer.lr": 0.05, "optimizer.momentum": 0,
        "data.train_images_max": 256})
    script = str(KIT / "weights.py")
    command = [context.program("slackline"), "launch", script, *arguments, "--quiet", "--python", sys.executable, "--",
               "--device", context.device, "--out", str(context.out / "weights.json")]
    context.run("weights", command)
    return json.loads((context.out / "weights.json").read_text())


CHECKS = (
    Check("machine", 60, describe, "card, driver, versions"),
    Check("gpu_tests", 90, gpu_tests, "tests of worker/cuda: kernels, groups, gradients against the CPU"),
    Check("script_weights", 30, script_weights, "a script's weights against torch.optim.SGD"),
    Check("fashion", 30, accuracy, "a small network learns"),
    Check("settings", 90, settings, "precisions, encodings, workers that share a GPU, ..."),
    Check("resnet50", 100, throughput("resnet50", (2,)), "ResNet-50, bf16: worker, script and plain PyTorch"),
    Check("vit_base", 100, throughput("vit_base", (2,)), "ViT-base, bf16: worker, script and plain PyTorch"),
    Check("memcheck", 50, sanitizer("memcheck"), "compute-sanitizer over the tests"),
    Check("kernels", 30, kernels, "encode kernels and copies against a copy on the device"),
    Check("timeline", 40, timeline, "a trace of ResNet-50"),
    Check("window_1", 100, throughput("resnet50", (1,)), "ResNet-50 without a push in flight during computing"),
    Check("racecheck", 120, sanitizer("racecheck"), "compute-sanitizer over the tests"),
)


def run_check(check: Check, context: Context) -> dict:
    begin = time.monotonic()
    context.deadline = begin + check.limit_s
    result: dict = {"check": check.name}
    try:
        result |= {"state": "passed", "figures": check.run(context)}
    except Skip as reason:
        result |= {"state": "skipped", "reason": str(reason)}
    except (RuntimeError, SystemExit, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        result |= {"state": "failed", "reason": f"{type(error).__name__}: {error}"}
    result["seconds"] = round(time.monotonic() - begin, 1)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="checks whose name has this part")
    parser.add_argument("--device", default="cuda:0", help="cpu: shows that everything runs")
    parser.add_argument("--seconds", type=float, default=3600, help="begins no check that may end later")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{check.name:16} {check.limit_s:4.0f} s  {check.what}" for check in CHECKS))
        return 0
    chosen = [check for check in CHECKS if not options.only or any(part in check.name for part in options.only)]
    if not chosen:
        parser.error(f"--only {' '.join(options.only)}: allowed are {', '.join(check.name for check in CHECKS)}")
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    context = Context(out, options.device, environment=environment())
    sys.path.insert(0, str(KIT))
    # SIGTERM raises KeyboardInterrupt, so that run() ends the command of the check in progress.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begin, failed = time.monotonic(), False
    for check in chosen:
        if time.monotonic() - begin + check.limit_s > options.seconds:
            result = {"check": check.name, "state": "skipped", "reason": "too little time was left"}
        else:
            result = run_check(check, context)
        with open(out / "results.jsonl", "a") as file:
            file.write(json.dumps(result) + "\n")
        print(json.dumps(result)[:2500], flush=True)
        failed |= result["state"] == "failed"
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
