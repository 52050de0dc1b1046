#!/usr/bin/env python3
"""How long equal workers wait for the last of them at the end of training, simulated.

Plays a job without gradients in virtual time: --workers of one speed, which take 10 ms an image. Says for each mode how long the
first worker without work waited until the last one was done, in batches; how much longer training took than all images at
full speed; and the share of waiting. The figures depend on the job alone, not on the machine.

  bench/epoch_tail.py --build build/release

Exit codes: 0 nobody waited longer than --batches-max, 1 somebody did, 2 something is missing.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

MS_PER_IMAGE = 10
MODES = ("async", "ssp", "bsp")


def moment(line):
    """Seconds since the run began, of a line of events.log."""
    return datetime.datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S.%f").timestamp()


def play(options, mode, folder):
    settings = (f"data.train_images_max={options.images}", f"training.epochs={options.epochs}",
                f"training.batch_size={options.batch}", f"cluster.workers={options.workers}", f"consistency.mode={mode}",
                f"simulation.compute_us_per_sample={1000 * MS_PER_IMAGE}", "training.evaluate_every_epochs=0",
                # Events are told at the scheduler's ticks, twice in a heartbeat.
                "timeouts.heartbeat_ms=20")
    job = folder / "job.yaml"
    job.write_text("name: epoch-tail\n")
    command = [options.build / "bin" / "slackline", "simulate", job, "--no-gradients", "--quiet", "--run-folder", folder / mode,
               *(word for setting in settings for word in ("--set", setting))]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
    summary = json.loads((folder / mode / "summary.json").read_text(encoding="utf-8"))
    lines = (folder / mode / "events.log").read_text(encoding="utf-8").splitlines()
    begun = next(moment(line) for line in lines if "training begins" in line)
    idle = [moment(line) - begun for line in lines if "stands by: nothing to do" in line]
    return summary, min(idle, default=summary["train_s"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--batches-max", type=float, default=1.5)
    options = parser.parse_args()
    if not (options.build / "bin" / "slackline-simulator").exists():
        print(f"found no simulator in {options.build}/bin; build the target slackline-simulator", file=sys.stderr)
        return 2
    batch_s = options.batch * MS_PER_IMAGE / 1000
    ideal_s = options.epochs * options.images * MS_PER_IMAGE / 1000 / options.workers
    print(f"{options.workers} workers, {options.epochs} epochs of {options.images} images in batches of {options.batch}")
    print(f"{'mode':8}{'wait at the end, batches':>26}{'time / ideal':>14}{'share of waiting':>18}")
    late = False
    with tempfile.TemporaryDirectory() as folder:
        for mode in MODES:
            summary, idle_s = play(options, mode, pathlib.Path(folder))
            tail = max(0, summary["train_s"] - idle_s) / batch_s
            waited, computed = (sum(worker[key] for worker in summary["worker_list"])
                                for key in ("wait_seconds", "compute_seconds"))
            print(f"{mode:8}{tail:26.2f}{summary['train_s'] / ideal_s:14.3f}{waited / (waited + computed):18.1%}")
            late = late or tail > options.batches_max
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
