"""Checks whose figures are right or wrong: tests, gradients, weights, what networks learn, sanitizers."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

import kit_jobs
from kit_context import Context, Skip

# Programs that start at a time: they wait for the driver more than they compute.
AT_A_TIME = 4
# Else libraries round factors to TF32, which has 10 bits. Through the batch norms of a resnet50 that changes its first
# gradient by 70 %.
WITHOUT_TF32 = {"NVIDIA_TF32_OVERRIDE": "0"}


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


def gpu_tests(context: Context) -> None:
    """Each test in a process of its own: what CUDA says once, it says to all that come later."""
    program = context.program("worker_gpu_device_test")

    def run(test: str) -> str:
        log = f"test-{test.replace('/', '-')}"
        try:
            output = context.run(log, [program, f"--gtest_filter={test}"], **WITHOUT_TF32)
            state = "skipped" if "[  SKIPPED ] 1 test" in output else "passed"
            if f"[  {state.upper():7} ] 1 test" not in output:
                raise RuntimeError(f"it did not run: {output[-500:]}")
        except RuntimeError as error:
            state = "failed: " + str(error).split("[ RUN      ]")[-1][:1500]
        context.add(test, state)
        return state

    tests = tests_listed(context.run("gpu_tests", [program, "--gtest_list_tests"]))
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        states = list(pool.map(run, tests))
    failed = [test for test, state in zip(tests, states) if state.startswith("failed")]
    if failed:
        raise RuntimeError(f"these failed: {', '.join(failed)}")


def gradients(context: Context) -> None:
    """Each kind of model on the device, beside plain PyTorch there and on a CPU, by the error to float64."""
    folder = context.out / "gradients"
    some = () if context.has_gpu else ("--kinds", "cnn", "vit_tiny")
    context.run("gradients-make", context.python("gradients.py", "make", folder, *some))
    jobs = json.loads((folder / "jobs.json").read_text())

    def train(kind: str) -> str:
        name = f"gradient-{kind}"
        _, arguments = kit_jobs.job(context, name, {**jobs[kind], "worker.devices": context.device})
        try:
            context.run(name, [context.program("slackline"), "train", *arguments, "--quiet"], **WITHOUT_TF32)
        except RuntimeError as error:
            return f"problem: {error}"
        return ""

    with ThreadPoolExecutor(AT_A_TIME if context.has_gpu else 1) as pool:
        problems = {kind: problem for kind, problem in zip(jobs, pool.map(train, jobs)) if problem}
    for kind, problem in problems.items():
        context.add(kind, problem)
    trained = [kind for kind in jobs if kind not in problems]
    far = sorted(problems)
    if trained:
        output = context.run("gradients-compare", context.python(
            "gradients.py", "compare", folder, "--kinds", *trained, "--runs", context.out / "runs", "--device", context.device))
        for line in output.splitlines():
            if not line.startswith("{"):
                continue
            for kind, figure in json.loads(line).items():
                context.add(kind, figure)
                far += [] if figure["close"] else [kind]
    if far:
        raise RuntimeError(f"the worker's gradient is farther from the true one than plain PyTorch's: {', '.join(far)}")


# Ways to train beside torch.optim.SGD, by the options of weights.py.
WEIGHTS = {
    "float32": (), "GradScaler with overflows": ("--scaler",), "bfloat16 parameters": ("--half",),
    "node group of one process (NCCL)": ("--node-group",),
}


def script_weights(context: Context) -> None:
    """After some steps a script's weights are those of torch.optim.SGD."""
    context.need_package()
    problems = []
    for number, (name, options) in enumerate(WEIGHTS.items()):
        out = context.out / f"weights-{number}.json"
        _, arguments = kit_jobs.job(context, f"weights-{number}", {
            "model.kind": "external", "training.batch_size": 16, "training.epochs": 2, "consistency.mode": "bsp",
            "optimizer.lr": 0.05, "optimizer.momentum": 0})
        command = kit_jobs.launch(context, arguments, "weights.py", "--device", context.device, "--out", out, *options)
        try:
            context.run(f"weights-{number}", command)
            context.add(name, json.loads(out.read_text()))
        except (RuntimeError, OSError) as error:
            context.add(name, {"problem": str(error)[-1500:]})
            problems.append(name)
    if problems:
        raise RuntimeError(f"weights differ, or training failed: {', '.join(problems)}")


def wrappers(context: Context) -> None:
    context.need_package()
    output = context.run("wrappers", context.python("wrappers.py", "--device", context.device), GLOO_SOCKET_IFNAME="lo")
    for name, said in json.loads(next(line for line in output.splitlines() if line.startswith("{"))).items():
        context.add(name, said)


# Settings of a worker; with each of them the network must learn.
SETTINGS: "dict[str, dict[str, object]]" = {
    "float32": {},
    "resnet18 of 10 classes": {"model.kind": "resnet18", "data.train_images_max": 5000},
    "bf16": {"worker.precision": "bf16"},
    "fp16": {"worker.precision": "fp16"},
    "int8": {"wire.encoding": "int8", "wire.same_host": "tcp"},
    "topk": {"wire.encoding": "topk:0.05", "wire.same_host": "tcp"},
    "accumulate 2": {"training.accumulate": 2},
    "two workers on one GPU": {"cluster.workers": 2, "cluster.servers": 2, "consistency.mode": "bsp"},
    "a GPU and a CPU": {"worker.devices": None, "worker.groups": "[{devices: cuda:0, batch: 64}, {devices: cpu, batch: 16}]",
                        "cluster.workers": 2},
}


def settings(context: Context) -> None:
    chosen = {name: own for name, own in SETTINGS.items() if context.has_gpu or name in ("float32", "int8")}

    def train(name: str) -> bool:
        try:
            accuracy = kit_jobs.train_fashion(context, "settings-" + name.replace(" ", "-"), chosen[name])[1]["test_accuracy"]
            context.add(name, accuracy)
            # After one epoch on a CPU a network has learnt little.
            return accuracy >= (0.6 if context.has_gpu else 0.2)
        except RuntimeError as error:
            context.add(name, str(error)[-400:])
            return False

    with ThreadPoolExecutor(AT_A_TIME if context.has_gpu else 1) as pool:
        bad = [name for name, good in zip(chosen, pool.map(train, chosen)) if not good]
    if bad:
        raise RuntimeError(f"networks did not learn with these: {', '.join(bad)}")


def sanitizer(tool: str) -> "Callable[[Context], None]":
    def check(context: Context) -> None:
        program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
        if program is None:
            raise Skip("there is no compute-sanitizer")
        context.need_gpu()
        # Large models take minutes here.
        command = [program, "--tool", tool, "--error-exitcode", "9", context.program("worker_gpu_device_test")]
        output = context.run(f"sanitizer_{tool}", [*command, "--gtest_filter=-*GpuModel*"], allowed=(0, 1, 9))
        summary = [line for line in output.splitlines() if "SUMMARY" in line]
        context.add("said", summary)
        # A test that fails is not this check's business.
        context.add("tests_passed", re.findall(r"\[  PASSED  \] (\d+) test", output))
        if not any(re.search(r"SUMMARY: 0 (errors|hazards)", line) for line in summary):
            raise RuntimeError(output[:4000])

    return check
