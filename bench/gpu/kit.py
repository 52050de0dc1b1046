"""Runs every check that needs a GPU, the most informative first, each with a time limit of its own. OUT/results.jsonl gets a
line for each figure at once, and one for each check that ends, because such a machine may be gone at any time.

    ./run --out results                     # all; see --list
    ./run --out results --only resnet50     # by parts of names
    ./run --out results --seconds 240       # ends within four minutes

Exit codes: 0 all passed or were skipped, 1 a check failed, 2 wrong use.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable

import kit_correct
import kit_speed
from kit_context import KIT, PROBE_S, Context, Skip, find_environment


@dataclass(frozen=True)
class Check:
    name: str
    # Seconds on an H100. A check begins if so many are left, and is ended after twice as many.
    takes_s: float
    run: Callable[[Context], None]
    what: str


def describe(context: Context) -> None:
    said = subprocess.run(
        [sys.executable, "-c", "import json, torch; print(json.dumps({'torch': torch.__version__, 'gpus': "
         "[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())], 'cudnn': "
         "torch.backends.cudnn.version() if torch.cuda.is_available() else None, 'nccl': "
         "'.'.join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else None}))"],
        capture_output=True, text=True, check=True, timeout=PROBE_S)
    facts: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    facts |= {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    facts |= json.loads((KIT / "kit.json").read_text())
    if shutil.which("nvidia-smi"):
        query = "driver_version,memory.total,power.limit,clocks.max.sm"
        facts["nvidia_smi"] = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
                                             capture_output=True, text=True, timeout=PROBE_S).stdout.strip()
    context.add("facts", facts)
    if context.has_gpu and not facts["gpus"]:
        raise RuntimeError("PyTorch finds no GPU here; allowed is --device cpu, which runs what needs none")


CHECKS = (
    Check("machine", 10, describe, "card, driver, versions"),
    Check("gpu_tests", 25, kit_correct.gpu_tests, "tests of worker/cuda: kernels, groups, gradients against the CPU"),
    Check("gradients", 45, kit_correct.gradients, "gradients of each kind of model against the CPU and plain PyTorch"),
    Check("resnet50", 75, kit_speed.throughput("resnet50", 2), "ResNet-50, bf16: worker, script and plain PyTorch; energy, memory"),
    Check("vit_base", 70, kit_speed.throughput("vit_base", 2), "ViT-base, bf16: the same"),
    Check("hf_trainer", 45, kit_speed.hf_trainer, "ViT-base in Hugging Face's Trainer, with and without Slackline"),
    Check("kernels", 22, kit_speed.kernels, "encode kernels and copies against a copy on the device"),
    Check("timeline", 30, kit_speed.timeline, "when backward, copies and pushes begin and end"),
    Check("script_weights", 45, kit_correct.script_weights, "weights of scripts against torch.optim.SGD: GradScaler, halves, NCCL"),
    Check("wrappers", 20, kit_correct.wrappers, "FSDP, DDP and torch.compile around a model"),
    Check("graphs", 60, kit_speed.graphs, "CUDA graphs on and off"),
    Check("pinned", 60, kit_speed.pinned, "pinned against pageable memory"),
    Check("stages", 50, kit_speed.stages, "two stages on two GPUs"),
    Check("two_scripts", 75, kit_speed.two_scripts, "two scripts on one GPU, and as a node group"),
    Check("local_gpt", 90, kit_speed.local_gpt, "a GPT of a billion parameters with local rounds: bytes and stall"),
    Check("settings", 30, kit_correct.settings, "networks learn with each precision, encoding, ..."),
    Check("memcheck", 30, kit_correct.sanitizer("memcheck"), "compute-sanitizer over the tests"),
    Check("racecheck", 60, kit_correct.sanitizer("racecheck"), "compute-sanitizer over the tests"),
    Check("window_1", 75, kit_speed.throughput("resnet50", 1), "ResNet-50 without a push in flight during computing"),
)


def run_check(check: Check, context: Context, limit_s: float) -> dict[str, Any]:
    begin = time.monotonic()
    context.begin(check.name, limit_s)
    result: dict[str, Any] = {"check": check.name}
    try:
        check.run(context)
        result["state"] = "passed"
    except Skip as reason:
        result |= {"state": "skipped", "reason": str(reason)}
    except (Exception, SystemExit) as error:  # pylint: disable=broad-except
        result |= {"state": "failed", "reason": f"{type(error).__name__}: {error}"}
    return {**result, "seconds": round(time.monotonic() - begin, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="checks whose name has this part")
    parser.add_argument("--device", default="cuda:0", help="cpu: shows that everything runs")
    parser.add_argument("--seconds", type=float, default=480, help="time for all checks; those that do not fit are skipped")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{check.name:16} {check.takes_s:4.0f} s  {check.what}" for check in CHECKS))
        return 0
    chosen = [check for check in CHECKS if not options.only or any(part in check.name for part in options.only)]
    if not chosen:
        parser.error(f"--only {' '.join(options.only)}: allowed are {', '.join(check.name for check in CHECKS)}")
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    context = Context(out, options.device, environment=find_environment())
    # SIGTERM raises KeyboardInterrupt, so that run() ends the command of the check in progress.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    end, failed = time.monotonic() + options.seconds, False
    for check in chosen:
        left_s = end - time.monotonic()
        if left_s < check.takes_s:
            result = {"check": check.name, "state": "skipped", "reason": "too little time was left"}
        else:
            # A CPU may need any share of the time that is left.
            result = run_check(check, context, min(left_s, 2 * check.takes_s) if context.has_gpu else left_s)
        context.write(result)
        failed |= result["state"] == "failed"
        if failed and check.run is describe:
            break
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
