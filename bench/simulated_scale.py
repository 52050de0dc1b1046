#!/usr/bin/env python3
"""What many workers cost, simulated: processor time, memory, and the time that a job takes to end.

Plays jobs without gradients in virtual time: a step takes a worker a second, the model is small, and two servers have eight shards
each. The scheduler's controller, the consistency engine and the workers' sessions are those of a real run. --steps is for all
workers together; short runs cost more a step, because workers join and leave. The end is the wall time from the line "training is complete" until the process is gone.

  bench/simulated_scale.py --workers 1000 4000
  bench/simulated_scale.py --workers 13900 --steps 1200000

Exit codes: 0 all is well, 1 the last size costs more than 1.5 times the processor time of the first, or more than 1 GB, or ends
later than after 5 s, 2 something is missing.
"""

import argparse
import contextlib
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

RATIO_MAX, GIGABYTES_MAX, END_S_MAX = 1.5, 1.0, 5.0
DEADLINE_S = 3600
WORKERS_MAX = 65_536


def settings(workers, epochs):
    return (f"cluster.workers={workers}", "cluster.servers=2", f"limits.streams_max={workers}", f"training.epochs={epochs}",
            "training.batch_size=1", "training.evaluate_every_epochs=0", "model.hidden=[8]", "simulation.compute_us_per_step=1000000",
            "simulation.compute_us_per_sample=1000", "simulation.jitter=0.3")


def play(simulator, images, steps, workers, folder):
    """(processor seconds, gigabytes at most of this job and those before it, seconds of the end) of a job."""
    job = folder / "job.yaml"
    job.write_text(f"name: simulated-scale\ndata: {{train_images_max: {images}}}\n")
    run = folder / str(workers)
    command = [simulator, job, "--no-gradients", "--quiet", "--run-folder", run,
               *(word for setting in settings(workers, steps // images) for word in ("--set", setting))]
    complete, events = None, None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    begun = time.monotonic()
    while process.returncode is None:
        if time.monotonic() - begun > DEADLINE_S:
            process.kill()
            process.wait()
            sys.exit(f"the simulator of {workers} workers was not done after {DEADLINE_S} s")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
        if events is None and (run / "events.log").exists():
            events = (run / "events.log").open(encoding="utf-8")
        if complete is None and events is not None and "training is complete" in events.read():
            complete = time.monotonic()
    if process.returncode != 0 or complete is None:
        sys.exit(f"the simulator ended with exit code {process.returncode}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return cpu, used.ru_maxrss / 1e6, time.monotonic() - complete


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"), help="default: %(default)s")
    parser.add_argument("--workers", type=int, nargs="+", default=[1000, 4000],
                        help=f"sizes of the jobs, 1 to {WORKERS_MAX}; one size is compared with nothing. Default: 1000 4000")
    parser.add_argument("--steps", type=int, default=60_000, help="of each job, a multiple of --images. Default: %(default)s")
    parser.add_argument("--images", type=int, default=60_000, help="steps in an epoch, 1 to 60000. Default: %(default)s")
    options = parser.parse_args()
    for workers in options.workers:
        if not 1 <= workers <= WORKERS_MAX:
            parser.error(f"--workers: found {workers}; allowed is 1 to {WORKERS_MAX}")
    if not 1 <= options.images <= 60_000:
        parser.error(f"--images: found {options.images}; allowed is 1 to 60000")
    if options.steps < options.images or options.steps % options.images:
        parser.error(f"--steps: found {options.steps}; allowed are multiples of --images ({options.images})")
    simulator = options.build / "bin" / "slackline-simulator"
    if not simulator.exists():
        print(f"found no {simulator}; build the target slackline-simulator", file=sys.stderr)
        return 2
    print(f"{'workers':>8}{'steps':>10}{'CPU s':>8}{'GB':>7}{'end s':>7}{'us a step':>11}")
    costs = []
    for workers in sorted(options.workers):
        with tempfile.TemporaryDirectory() as folder:
            cpu, gigabytes, end = play(simulator, options.images, options.steps, workers, pathlib.Path(folder))
        costs.append(cpu)
        print(f"{workers:8}{options.steps:10}{cpu:8.1f}{gigabytes:7.2f}{end:7.2f}{1e6 * cpu / options.steps:11.0f}", flush=True)
    return 1 if costs[-1] > RATIO_MAX * costs[0] or gigabytes > GIGABYTES_MAX or end > END_S_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
