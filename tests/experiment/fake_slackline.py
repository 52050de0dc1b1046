#!/usr/bin/env python3
"""Stands in for the `slackline` program: understands check, train, launch, simulate, slurm submit and --version, and writes run folders.

Its job file is flat: dotted keys with values. Settings of its own, which a job never has, steer it:
  fake.refuse    check fails with this text
  fake.not-here  check --for fails with this text
  fake.not-simulated  simulate --check fails with this text
  fake.fail      train fails with this text
  fake.hang      unless it is 0, and until there is a file `free` beside the job, train waits for
                 SIGINT, or with 2 for nothing
  fake.objects    what was measured is mean average precision
  fake.unmetered  summary.json has no energy
  fake.break     a field of summary.json gets a wrong type
  fake.not_submitted  slurm submit fails with this text
Every call is a line of calls.log in the folder of the job file. A job that was submitted is a line of `queue` in the folder in which
the program runs, as squeue shows it, and its job is in submit/job.json of the run folder.
"""
import json
import math
import os
import pathlib
import random
import signal
import sys

import yaml

DEFAULTS = {"name": "fake", "seed": 1, "cluster.workers": 2, "consistency.staleness_max": 4, "optimizer.lr": 0.1}
CLASSES = ("shirt", "shoe", "bag")
DEVICES = ("package-0", "gpu-0000:65:00.0")


def read_job(path, overrides):
    job = dict(DEFAULTS)
    text = yaml.safe_load(path.read_text()) or {}
    job.update(text)
    for override in overrides:
        key, value = override.split("=", 1)
        job[key] = yaml.safe_load(value)
    return job


def options_of(arguments):
    overrides, folder = [], None
    for flag, value in zip(arguments[::2], arguments[1::2]):
        if flag == "--set":
            overrides.append(value)
        elif flag == "--run-folder":
            folder = pathlib.Path(value)
        else:
            sys.exit(f"fake: found the flag {flag}")
    return overrides, folder


def evaluations_of(job, random_of):
    workers, bound = job["cluster.workers"], job["consistency.staleness_max"]
    rate = 3000 * workers ** 0.85 * (1 + 0.04 * bound) * random_of.uniform(0.97, 1.03)
    best = 0.915 - 0.004 * bound - 0.002 * workers
    return rate, [{"epoch": epoch, "time_s": epoch * 6000 / rate, "samples": epoch * 6000,
                   "samples_applied": epoch * 5700, "accuracy": best - 0.35 * math.exp(-0.9 * epoch) + random_of.gauss(0, 0.0038 + 0.0002 * workers), "loss": 1 / epoch,
                   "tested": 1000, "seconds": 0.5, "seconds_per_sample": 0.0005}
                  for epoch in range(1, 7)]


def write_run(job, mode, folder):
    random_of = random.Random(job["seed"])
    rate, evaluations = evaluations_of(job, random_of)
    bound, workers, last = job["consistency.staleness_max"], job["cluster.workers"], evaluations[-1]
    width = 1 + bound / 4
    histogram = [[value, int(1000 * math.exp(-0.5 * (value - bound / 2) ** 2 / width) * random_of.uniform(0.9, 1.1))]
                 for value in range(bound + 1)]
    summary = {
        "name": job["name"], "state": "done", "reason": "", "mode": mode, "seed": job["seed"], "workers": workers,
        "servers": 2, "time_s": last["time_s"], "samples": 36000, "samples_applied": 34200, "epoch_samples": 6000,
        "steps": 563, "samples_per_second": rate, "epochs": 6,
        "loss": 0.3, "test_accuracy": last["accuracy"], "test_loss": 0.35,
        "best_test_accuracy": max(one["accuracy"] for one in evaluations),
        "staleness": {"mean": bound / 2, "max": bound, "histogram": histogram}, "slack_max": bound,
        "worker_list": [{"name": f"worker-{number}", "samples": 18000, "steps": 281, "compute_seconds": 8.0,
                         "wait_seconds": 2.0 / (1 + bound), "pushes_applied": 280, "pushes_discarded": 1,
                         "pushes_lost": 0, "pushed_bytes": 281_000, "pulled_bytes": 562_000}
                        for number in range(1, workers + 1)],
        "energy": {"joules": 1000.0 * workers, "edp": 1000.0 * workers * last["time_s"], "training": 900.0 * workers,
                   "validation": 60.0 * workers, "test": 40.0 * workers, "other": 0.0,
                   "above_idle": 600.0 * workers, "devices": [
                       {"node": "n1", "device": device, "joules": 500.0 * workers, "mean_watts": 50.0 * workers,
                        "min_watts": 45.0, "max_watts": 60.0 * workers, "idle_watts": 20.0} for device in DEVICES]},
        "deaths": 0, "samples_given_twice": 0, "evaluations": evaluations, "a_field_of_the_future": {"x": 1}}
    if job.get("fake.objects"):
        summary["test_metric"] = "map"
    if job.get("fake.unmetered"):
        summary["energy"] = None
    if "fake.break" in job:
        summary[job["fake.break"]] = ["not", "a", "number"]
    many = [{"label": label, "name": f"work-{label}", "precision": 0.5, "recall": 0.5, "f1": label / job["fake.classes"]}
            for label in range(job.get("fake.classes", 0))]
    (folder / "report.json").write_text(json.dumps(
        {"accuracy": last["accuracy"], "top5_accuracy": 0.99, "f1_macro": last["accuracy"], "classes": many or [
            {"label": label, "name": name, "precision": 0.9, "recall": 0.8, "f1": 0.85}
            for label, name in enumerate(CLASSES)]}))
    rows = [f"{one['time_s']:.3f},{one['epoch']},{one['epoch'] * 94},{one['samples']},{one['loss']},0.9,"
            f"{one['accuracy']},{rate:.1f},{bound / 2},{bound},{bound},{workers}" for one in evaluations]
    rows.append(f"{last['time_s'] + 1:.3f},6,563,36000,0.3,0.91,,{rate:.1f},1,1,1,{workers}")
    (folder / "metrics.csv").write_text(
        "time_s,epoch,step,samples,loss,accuracy,test_accuracy,samples_per_second,staleness_mean,staleness_max,slack,"
        "live_workers\n" + "\n".join(rows) + "\n")
    (folder / "epochs.csv").write_text(
        "epoch,end_s,train_s,validation_s,test_s,loss,accuracy,test_loss,test_accuracy,top5_accuracy,joules\n" + "".join(
            f"{one['epoch']},{one['time_s']:.3f},{6000 / rate:.3f},0.5,0,{one['loss']},0.9,0.4,{one['accuracy']},,"
            f"{'' if job.get('fake.unmetered') else 150}\n" for one in evaluations))
    (folder / "confusion.csv").write_text(
        "label," + ",".join(CLASSES) + "\n" + "".join(
            f"{label}," + ",".join("80" if label == other else "10" for other in CLASSES) + "\n" for label in CLASSES))
    if summary["energy"]:
        (folder / "power.csv").write_text("time_s,node,device,watts\n" + "".join(
            f"{step / 10 - 5:.3f},n1,{device},{20 if step < 50 else 50 + step % 7}\n" for step in range(1000) for device in DEVICES))
    # Last, as the real one does: it says that all is there.
    (folder / "summary.json").write_text(json.dumps(summary))


def submit(arguments):
    """`slackline slurm submit`: the queue grows by a pending job."""
    end = arguments.index("--")
    words, sbatch = arguments[:end], arguments[end + 1:]
    flags = [word for word in words if word in ("--dry-run", "--resume", "--no-requeue") or word.startswith("--srun-option=")]
    words = [word for word in words if word not in flags]
    path = None if "--resume" in flags else pathlib.Path(words.pop(0))
    values = {name: words[words.index(name) + 1] for name in ("--stop-before", "--interface") if name in words}
    for name in values:
        del words[words.index(name):words.index(name) + 2]
    overrides, folder = options_of(words)
    stored = folder / "submit" / "job.json"
    job = json.loads(stored.read_text()) if path is None else read_job(path, overrides)
    if "fake.not_submitted" in job and "--dry-run" not in flags:
        sys.exit(job["fake.not_submitted"])
    if "--dry-run" in flags:
        print(f"#!/bin/bash\nexec slackline slurm run {folder}")
        return
    with pathlib.Path("calls.log").open("a+") as calls:
        calls.seek(0)
        number = 1 + sum('"mode": "submit"' in line for line in calls)
        calls.write(json.dumps({"mode": "submit", "job": job, "flags": flags, "values": values, "sbatch": sbatch, "number": number}) + "\n")
    stored.parent.mkdir(parents=True, exist_ok=path is None)
    stored.write_text(json.dumps(job))
    (folder / "submit" / "job-id").write_text(f"{number}\n")
    with pathlib.Path("queue").open("a") as queue:
        queue.write(f"{number}|PENDING|Priority\n")
    print(f"Submitted job {number}; run folder {folder}")


def wait_for_interrupt(folder, deaf):
    """Until SIGINT, which is blocked since the start, or ten minutes; a deaf run takes no notice."""
    (folder / "hanging.new").write_text(str(os.getpid()))
    (folder / "hanging.new").rename(folder / "hanging")
    if signal.sigtimedwait([signal.SIGUSR1 if deaf else signal.SIGINT], 600) is not None:
        (folder / "summary.json").write_text(json.dumps({"state": "stopped", "reason": "Ctrl-C"}))
        print("fake: stopped in good order", flush=True)
    sys.exit(1)


def main():
    if sys.argv[1:] == ["--version"]:
        print("slackline 9.9.9 (fake)")
        return
    if sys.argv[1:3] == ["slurm", "submit"]:
        submit(sys.argv[3:])
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    script = None
    if sys.argv[1] == "launch":
        end = sys.argv.index("--")
        at = sys.argv.index("--python")
        script = {"path": sys.argv[2], "python": sys.argv[at + 1], "arguments": sys.argv[end + 1:]}
        del sys.argv[at:], sys.argv[2]
    mode, path = sys.argv[1], pathlib.Path(sys.argv[2])
    purpose = sys.argv[4] if sys.argv[3:4] == ["--for"] else None
    if purpose:
        del sys.argv[3:5]
    only_check = sys.argv[3:4] == ["--check"]
    overrides, folder = options_of(sys.argv[4 if only_check else 3:])
    job = read_job(path, overrides)
    if only_check:
        sys.exit(f"fake: {job['fake.not-simulated']}" if "fake.not-simulated" in job else 0)
    if mode == "check":
        if "fake.refuse" in job:
            lines = [number for number, line in enumerate(path.read_text().splitlines(), 1) if "fake.refuse" in line]
            sys.exit(f"{path}:{lines[0] if lines else 0}: {job['fake.refuse']}")
        if purpose and "fake.not-here" in job:
            sys.exit(f"{path}: {job['fake.not-here']} ({purpose})")
        print(yaml.safe_dump(job) + f"# OK: {path} is a valid job.")
        return
    with (path.parent / "calls.log").open("a") as calls:
        calls.write(json.dumps({"mode": mode, "job": job, "folder": str(folder), "script": script}) + "\n")
    folder.mkdir(parents=True)
    if "fake.fail" in job:
        sys.exit(f"some words\nfake: {job['fake.fail']}")
    if job.get("fake.hang") and not (path.parent / "free").exists():
        wait_for_interrupt(folder, job["fake.hang"] == 2)
    write_run(job, mode, folder)


if __name__ == "__main__":
    main()
