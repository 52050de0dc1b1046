#!/usr/bin/env python3
"""Kills and stops the processes of a job at random, and counts afterwards what became of every push.

    bench/soak/soak.py [--programs BIN_FOLDER] [--seconds N] [--workers N] [--servers N] [--mode async|ssp] [--seed N]
                       [--durability snapshot|replicated] [--heartbeat-ms N] [--step-ms N] [--elastic]
                       [--kill ROLE,ROLE | --kill-at ROLE:POINT:N] [--keep FOLDER] [--reference]

The workers are ledger-worker: each of a worker's pushes adds 1 to elements of its own, so that the final weights say which shards
have applied it, and how often; a ledger says which were answered. Kills come every 0.5 to 3 s: kill -9, or SIGSTOP for up to 6 s.
`slackline train` starts again what died.

With --kill-at nobody is killed at random (but servers, where the point comes after their deaths): a process of the
role kills itself when it comes to a point for the Nth time in its life, the first few times that one is started (see
common/process/kill_point.h; only builds for tests have such points).

With --reference the workers are reference_ledger.py, which pushes as ledger-worker does, and shares no code with it: the client in plain
Python of examples/python/. Its modules must be there: run soak.py with .cache/venv/bin/python.

With --elastic servers are added and drained at random, too: between 1 and 4 of them. With --kill '' nobody dies, and then nothing
may be lost.

Checkpoints are made all the while, and all that are there at the end must be whole.

Doubled is what the weights have of a push beyond its answers. Lost is what was answered as applied and is not in the weights; with
durability.mode snapshot some is, and a worker that was never killed must have been told of exactly that. With replicated nothing is;
servers die only while each has a backup in step.

Exit codes: 0 nothing doubled, nothing lost (without a word), and the job done; 1 otherwise; 2 wrong use; 77 something is missing.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# As ledger_worker.cc has them.
WORKERS_MAX = 4
SLOTS = 16384
SHARDS = 4
NEEDED = ("slackline", "slackline-scheduler", "slackline-ps", "ledger-worker")
# What reference_ledger.py imports.
REFERENCE_MODULES = ("grpc", "google.protobuf", "numpy", "safetensors", "yaml")
REFERENCE = """#!/bin/sh
exec {python} -B {script} --slackline {slackline} "$@"
"""
IMAGES = 6000
BATCH = 10

# In the place of a program.
STARTS_WITH_KILL_AT = 6
KILL_AT = """#!/bin/sh
echo >> {count}
[ $(wc -l < {count}) -gt {most} ] && exec {real} "$@"
exec {real} "$@" --kill-at {at}
"""

JOB = """
name: soak
model: {{kind: mlp}}
data: {{train_images_max: {images}}}
training: {{epochs: {epochs}, batch_size: {batch}, evaluate_every_epochs: 0}}
optimizer: {{lr: 1, schedule: {{kind: constant}}}}
consistency: {{mode: {mode}, weighting: uniform}}
cluster: {{servers: {servers}, workers: {workers}, shards_per_server: {each}, worker_restarts_max: 100000, server_restarts_max: 100000,
  scheduler_restarts_max: 100000}}
durability: {{mode: {durability}, snapshot_every_s: 0.5}}
checkpoint: {{every_s: 0.7, keep: 2}}
timeouts: {{heartbeat_ms: {heartbeat_ms}}}
output: {{report_every_ms: 200, tensorboard: false}}
"""


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--mode", choices=("async", "ssp"), default="ssp")
    parser.add_argument("--durability", choices=("snapshot", "replicated"), default="snapshot",
                        help="replicated: each server has a backup, and nothing may be lost")
    parser.add_argument("--heartbeat-ms", type=int, default=100, help="timeouts.heartbeat_ms; a job's default is 300")
    parser.add_argument("--step-ms", type=float, default=None,
                        help="of a worker, about: the job has as many steps as fit into the seconds; 6, with --reference 55")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kill", default="server,worker,scheduler", help="roles that die")
    parser.add_argument("--reference", action="store_true", help="workers are the client in plain Python")
    parser.add_argument("--elastic", action="store_true", help="servers are added and drained all the while")
    parser.add_argument("--keep", type=pathlib.Path, default=None, help="leave the run in this new folder")
    parser.add_argument("--kill-at", default="", metavar="ROLE:POINT:N",
                        help="each process of the role (ps or scheduler) dies at this point")
    options = parser.parse_args()
    options.kill_at = options.kill_at.split(":") if options.kill_at else []
    if options.kill_at:
        if len(options.kill_at) != 3 or options.kill_at[0] not in ("ps", "scheduler"):
            parser.error(f"--kill-at: found {':'.join(options.kill_at)}; allowed is ps:POINT:N or scheduler:POINT:N")
        options.kill = "server" if options.kill_at[1] in ("restore", "take-over") else ""
    if options.step_ms is None:
        options.step_ms = 55 if options.reference else 6
    options.roles = options.kill.split(",") if options.kill else []
    unknown = set(options.roles) - {"server", "worker", "scheduler"}
    if unknown:
        parser.error(f"--kill: found {', '.join(sorted(unknown))}; allowed are server, worker, scheduler")
    if options.servers not in (1, 2, 4):
        parser.error(f"--servers: found {options.servers}; allowed are 1, 2, 4, so that there are {SHARDS} shards")
    if options.elastic and options.durability == "replicated":
        parser.error("--elastic: shards that have backups cannot move; allowed is --durability snapshot")
    if not 1 <= options.workers <= WORKERS_MAX:
        parser.error(f"--workers: found {options.workers}; allowed are 1 to {WORKERS_MAX}")
    return options


class Run:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder / "run"
        self.replicated = options.durability == "replicated"
        self.random = random.Random(options.seed)
        self.kills = {}  # (role, how): number
        self.server_deaths = []  # times of servers that were killed or stopped
        self.first_killed = self.ended = 0.0  # monotonic: of the servers and schedulers; of the job
        self.stopped = {}  # pid: when it goes on
        self.changes = {}  # of servers, that were taken: number
        programs = folder / "bin"
        programs.mkdir()
        # `slackline` starts the programs beside it.
        shutil.copy(options.programs / "slackline", programs / "slackline")
        for name in ("slackline-scheduler", "slackline-ps"):
            real = (options.programs / name).resolve()
            if options.kill_at and name == f"slackline-{options.kill_at[0]}":
                (programs / name).write_text(KILL_AT.format(
                    count=folder / "starts", most=STARTS_WITH_KILL_AT, real=real, at=":".join(options.kill_at[1:])))
                (programs / name).chmod(0o755)
            else:
                (programs / name).symlink_to(real)
        if options.reference:
            (programs / "slackline-worker").write_text(REFERENCE.format(
                python=sys.executable, script=ROOT / "bench/soak/reference_ledger.py", slackline=programs / "slackline"))
            (programs / "slackline-worker").chmod(0o755)
        else:
            (programs / "slackline-worker").symlink_to((options.programs / "ledger-worker").resolve())
        steps = options.seconds * options.workers * 1000 / options.step_ms
        job = folder / "job.yaml"
        job.write_text(JOB.format(images=IMAGES, batch=BATCH, epochs=max(2, round(steps * BATCH / IMAGES)), mode=options.mode, each=SHARDS // options.servers,
                                  durability=options.durability, heartbeat_ms=options.heartbeat_ms,
                                  servers=options.servers, workers=options.workers))
        self.out = folder / "stdout"
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen([programs / "slackline", "train", job, "--run-folder", self.folder], stdout=out,
                                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=folder)

    def events(self):
        path = self.folder / "events.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def members(self):
        path = self.folder / "processes.json"
        return json.loads(path.read_text()) if path.exists() else []

    def await_durable(self):
        """Or until the job is done: a scheduler that dies at the wrong moment takes what it was about to say with it."""
        deadline = time.monotonic() + 60
        begun = self.all_backed if self.replicated else lambda: "all shards are on disk" in self.events()
        while not begun() and self.process.poll() != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the job has not begun:\n{self.out.read_text(errors='replace')[-3000:]}")
            self.pause(0.05)
        nobody = set(self.options.roles) - {m["role"] for m in self.members()}
        if nobody:
            raise SystemExit(f"no process has a role that is to die: {', '.join(sorted(nobody))}")

    def all_backed(self):
        """Each server has a backup that can take over: nobody else is killed before, since two at once are one too many."""
        return self.slackline("status", self.folder).stdout.count(" in step ") == self.options.servers

    def pause(self, seconds):
        """Or until the job has ended."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass

    def disturb(self):
        """One process, at random."""
        living = [m for m in self.members() if m["state"] == "running" and m["role"] in self.options.roles and
                  m["pid"] not in self.stopped]
        if not living:
            return
        victim = self.random.choice(living)
        if self.replicated and victim["role"] == "server" and not self.all_backed():
            return
        stop = self.random.random() < 0.3
        if not send(victim["pid"], signal.SIGSTOP if stop else signal.SIGKILL):
            return
        if stop:
            self.stopped[victim["pid"]] = time.monotonic() + self.random.uniform(0.05, 6)
        elif victim["role"] != "worker" and not self.first_killed:
            self.first_killed = time.monotonic()
        if victim["role"] == "server":
            self.server_deaths.append(time.time())
        key = (victim["role"], "stopped" if stop else "killed")
        self.kills[key] = self.kills.get(key, 0) + 1

    def change_servers(self):
        """One more, or one less, where that is possible now."""
        status = self.slackline("status", self.folder).stdout
        there = re.findall(r"^ +(ps-\d+) +(live|joining)", status, re.MULTILINE)
        live = [name for name, state in there if state == "live"]
        if len(live) > 1 and (len(there) == SHARDS or self.random.random() < 0.5):
            what, change = "drained", ("drain", self.folder, self.random.choice(live))
        elif len(there) < SHARDS:
            what, change = "added", ("add", self.folder)
        else:
            return
        done = self.slackline("servers", *change, "--wait", "0")
        # The scheduler may be dead just now, or know of a change that the status did not have yet.
        if done.returncode == 0:
            self.changes[what] = self.changes.get(what, 0) + 1

    def slackline(self, *arguments):
        return subprocess.run([self.options.programs / "slackline", *arguments], capture_output=True, text=True, timeout=60)

    def wake(self, all_of_them=False):
        for pid, at in list(self.stopped.items()):
            if all_of_them or time.monotonic() > at:
                send(pid, signal.SIGCONT)
                del self.stopped[pid]

    def play(self):
        end = time.monotonic() + self.options.seconds
        due = change_due = 0
        while time.monotonic() < end and self.process.poll() is None:
            self.wake()
            if self.options.roles and time.monotonic() > due:
                self.disturb()
                due = time.monotonic() + self.random.uniform(0.5, 3)
            if self.options.elastic and time.monotonic() > change_due:
                self.change_servers()
                change_due = time.monotonic() + self.random.uniform(0.2, 2)
            self.pause(0.02)
        self.wake(all_of_them=True)
        try:
            code = self.process.wait(self.options.seconds + 240)
            self.ended = time.monotonic()
            return code
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "no end"


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def read_weights(path):
    data = path.read_bytes()
    header = int.from_bytes(data[:8], "little")
    body = data[8 + header:]
    return struct.unpack(f"<{len(body) // 4}f", body)


class Push:
    """What the ledger says of one: how many shards have applied it; None where not all have answered."""

    def __init__(self, slot):
        self.slot = slot
        self.applied = None


class Ledger:
    def __init__(self, path):
        self.lives = self.lost = 0
        self.pushes = []
        self.waits = []
        self.ends = []
        for line in path.read_text().splitlines():
            word, *numbers = line.split()
            if word == "life":
                self.lives += 1
            elif word == "begin":
                self.pushes.append(Push(int(numbers[0])))
            elif word == "end":
                self.pushes[-1].applied = int(numbers[0])
                self.lost += int(numbers[2])
                self.waits.append(float(numbers[3]))
                self.ends.append(float(numbers[4]))

    def longest_at(self, moment):
        """Of the steps that were under way at this moment, or in the tenth of a second that followed."""
        return max((wait for wait, end in zip(self.waits, self.ends) if end >= moment and end - wait <= moment + 0.1), default=0.0)

    def by_slot(self):
        """Pushes that share a place in the weights."""
        slots = {}
        for push in self.pushes:
            slots.setdefault(push.slot % SLOTS, []).append(push)
        return slots


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else 0.0


def what_is_missing(options):
    """Names of programs and modules."""
    needed = [name for name in NEEDED if name != "ledger-worker" or not options.reference]
    lacks = [name for name in needed if not (options.programs / name).exists()]
    if options.reference:
        lacks += [name for name in REFERENCE_MODULES if not is_module(name)]
        lacks += [] if shutil.which("protoc") else ["protoc"]
    return lacks


def is_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a package that is not there
        return False


def main():
    options = parse()
    if lacks := what_is_missing(options):
        print(f"SKIP: found no {', '.join(lacks)}; programs are looked for in {options.programs}, and ./test --all installs the modules")
        return 77
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {options.seed}, {options.seconds:g} s, {options.servers} servers, {options.workers} workers, {options.mode}",
          flush=True)
    if options.keep:
        options.keep.mkdir(parents=True)
        return soak(options, options.keep.resolve())
    with tempfile.TemporaryDirectory(prefix="slackline-soak-") as folder:
        return soak(options, pathlib.Path(folder))


def soak(options, folder):
    run = Run(options, folder)
    try:
        run.await_durable()
        began = time.monotonic()
        code = run.play()
        took = time.monotonic() - began
    finally:
        run.wake(all_of_them=True)
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
    for (role, how), count in sorted(run.kills.items()):
        print(f"{role} {how}: {count}")
    for what, count in sorted(run.changes.items()):
        print(f"servers {what}: {count}")
    if code != 0:
        print(f"the job ended with {code} after {took:.0f} s:\n{run.out.read_text(errors='replace')[-4000:]}\n{run.events()[-3000:]}")
        return 1
    return reckon(options, run, folder, took)


def reckon(options, run, folder, took):
    weights = read_weights(folder / "run" / "model.safetensors")
    size = len(weights) // SHARDS
    answered = applied = lost = doubled = silent = unbroken = 0
    waits, bad = [], []
    pauses = [0.0] * len(run.server_deaths)
    for number in range(1, options.workers + 1):
        ledger = Ledger(folder / f"ledger.worker-{number}")
        pauses = [max(pause, ledger.longest_at(at)) for pause, at in zip(pauses, run.server_deaths)]
        gone = 0
        for slot, pushes in ledger.by_slot().items():
            places = [weights[shard * size + slot * WORKERS_MAX + number % WORKERS_MAX] for shard in range(SHARDS)]
            # Of a push that is not answered by all, any shard may have it, once.
            known = sum(push.applied for push in pushes if push.applied is not None)
            most = known + SHARDS * sum(push.applied is None for push in pushes)
            doubled += max(0, sum(places) - most, *(place - len(pushes) for place in places))
            gone += max(0, known - sum(places))
        answered += SHARDS * sum(push.applied is not None for push in ledger.pushes)
        applied += sum(push.applied or 0 for push in ledger.pushes)
        lost += gone
        if ledger.lives == 1:
            unbroken += 1
            # A worker does not hear of losses after its last step. The scheduler counts them, and takes discarded pushes for lost ones.
            after = sum(int(count) for count in re.findall(
                rf"(\d+) answered sub-pushes of worker-{number} were lost, after its last step", run.events()))
            discarded = sum(SHARDS - push.applied for push in ledger.pushes if push.applied is not None) if after else 0
            silent += max(0, gone - ledger.lost - after, ledger.lost + after - gone - discarded)
        waits += ledger.waits
    # A backup that dies leaves a server that goes on without it, and is done with no word where the job ends first.
    goes_on = len(re.findall(r"goes on from its snapshots|has taken over|the scheduler goes on|goes on without its backup",
                             run.events()))
    print(f"{took:.0f} s, {len(waits) / took:.0f} pushes/s of all workers; step p50 {1000 * quantile(waits, 0.5):.1f} ms, "
          f"p99 {1000 * quantile(waits, 0.99):.1f} ms, longest {max(waits):.2f} s")
    if pauses:
        print(f"the longest step when a server was killed or stopped: p50 {quantile(pauses, 0.5):.2f} s, p99 {quantile(pauses, 0.99):.2f} s")
    print(f"sub-pushes answered {answered}, applied {applied}, lost {lost:.0f}, doubled {doubled:.0f}; told wrongly of their losses: "
          f"{silent:.0f} sub-pushes of {unbroken} workers that were never replaced")
    print(f"servers and schedulers that went on: {goes_on}")
    checked = subprocess.run([options.programs / "slackline", "checkpoints", folder / "run", "--verify"], capture_output=True,
                             text=True, timeout=300)
    print(f"{checked.stdout.count(' whole ')} checkpoints are whole")
    if checked.returncode != 0 or " whole " not in checked.stdout:
        bad.append(f"checkpoints:\n{checked.stdout}{checked.stderr}")
    if options.kill_at:
        deaths = run.out.read_text(errors="replace").count("killed by signal 9")
        print(f"deaths at {':'.join(options.kill_at)}: {deaths}")
        if deaths < 1:
            bad.append("nobody has come to that point")
    if doubled:
        bad.append(f"{doubled:.0f} sub-pushes were applied twice")
    if lost and run.replicated:
        bad.append(f"{lost:.0f} sub-pushes were answered as applied and are lost")
    if lost and not run.kills and not options.kill_at:
        bad.append(f"{lost:.0f} sub-pushes were answered as applied and are lost, and nobody has died")
    if options.elastic:
        moved = run.events().count(": moved, ")
        print(f"moves of shards: {moved}")
        if moved < 1:
            bad.append("no shards have moved")
    if options.roles and not run.kills:
        bad.append("nobody was killed")
    if silent:
        bad.append(f"{silent:.0f} sub-pushes are gone that their worker was not told of, or are there although it was")
    if not goes_on and run.first_killed and run.ended - run.first_killed > 5:
        bad.append("nobody who was killed has gone on")
    for what in bad:
        print(f"WRONG: {what}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
