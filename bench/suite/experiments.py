"""What `bench/run` measures: the programs, and how each is asked."""

import json
import re
import shutil
import socket
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Optional

from suite import programs
from suite.programs import Program

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Scale:
    """How much of everything; --quick shrinks it."""

    seconds: float = 2
    megabytes: float = 100
    large_megabytes: float = 3000
    memory_megabytes: float = 1000
    memory_workers: int = 8
    race_rounds_seconds: float = 15
    race_epochs: int = 2


QUICK = Scale(seconds=0.3, megabytes=20, large_megabytes=60, memory_megabytes=20, memory_workers=3,
              race_rounds_seconds=2, race_epochs=1)


@dataclass(frozen=True)
class Setting:
    binaries: Path
    scale: Scale


@dataclass(frozen=True)
class Experiment:
    name: str
    group: str
    program: Callable[[Setting], Program]
    parse: Callable[[str], tuple[dict, ...]] = programs.parse_rows
    # Measured in each repeat, or only in the first: what takes long and is a ratio by itself.
    every_repeat: bool = True
    # Memory in GB that must be free, for a model of a given size in MB.
    needs_gb: Callable[[Scale], float] = lambda scale: 0.0
    # Returns why it cannot be measured here, or nothing.
    obstacle: Callable[[], str] = lambda: ""


def binary(name: str, *options: str) -> Callable[[Setting], Program]:
    def make(setting: Setting) -> Program:
        return Program((str(setting.binaries / name), "--json", "--repeats", "1", "--seconds",
                        str(setting.scale.seconds), *options))
    return make


def sized(name: str, *options: str) -> Callable[[Setting], Program]:
    def make(setting: Setting) -> Program:
        program = binary(name, *options)(setting)
        return replace(program, command=(*program.command, "--megabytes", str(setting.scale.megabytes)))
    return make


def exchange(name: str, *options: str) -> Experiment:
    return Experiment(name, "exchange", sized("exchange_bench", *options))


def exchange_of(megabytes: Callable[[Scale], float], *options: str) -> Callable[[Setting], Program]:
    def make(setting: Setting) -> Program:
        program = binary("exchange_bench", *options)(setting)
        return replace(program, timeout_s=900, command=(*program.command, "--megabytes",
                                                        str(megabytes(setting.scale))))
    return make


def memory_use(setting: Setting) -> Program:
    workers = setting.scale.memory_workers
    return exchange_of(lambda scale: scale.memory_megabytes, "--workers", str(workers), "--stalled-readers", "4",
                       "--memory", "--optimizer", "momentum")(setting)


# --- programs that are not ours to the letter -------------------------------------------------------------------------

def iperf3(setting: Setting) -> Program:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    # The server ends after one client; the client asks until it is there.
    script = ('iperf3 -s -1 -p "$0" >/dev/null & for try in 1 2 3 4 5 6 7 8 9 10; do '
              'iperf3 -c 127.0.0.1 -p "$0" -t "$1" -l 1M -J && break; read -r -t 0.2 <> <(:); done')
    return Program(("bash", "-c", script, port, str(max(1, round(setting.scale.seconds)))), timeout_s=60)


def parse_iperf3(text: str) -> tuple[dict, ...]:
    """The last report; a client that came too early has printed one of its own before."""
    start = text.rfind('{\n\t"start"')
    if start < 0:
        return ()
    end = json.loads(text[start:]).get("end", {})
    received = end.get("sum_received", {}).get("bits_per_second")
    return ({"what": "tcp stream", "gb_per_s": received / 8e9},) if received else ()


# ResNet-18 sees some 500 images/s on two cores: a part of them is enough to measure.
RESNET_IMAGES = ("--set", "data.train_images_max=15000")


def race(model: str, *options: str) -> Callable[[Setting], Program]:
    def make(setting: Setting) -> Program:
        return Program((sys.executable, str(ROOT / "bench/race_plain_loop.py"), "--build",
                        str(setting.binaries.parent), "--model", model, "--batch", "128", "--rounds", "1", "--minimum",
                        "0", "--seconds", str(setting.scale.race_rounds_seconds), "--epochs",
                        str(setting.scale.race_epochs), *options), timeout_s=1800)
    return make


def parse_race(text: str) -> tuple[dict, ...]:
    found = re.search(r"median ratio ([0-9.]+)", text)
    return ({"what": "race", "ratio": float(found.group(1))},) if found else ()


def shaped(*options: str) -> Callable[[Setting], Program]:
    def make(setting: Setting) -> Program:
        program = sized("exchange_bench", *options)(setting)
        return replace(program, command=(str(ROOT / "bench/shaped_link"), *program.command))
    return make


def shaped_link_obstacle() -> str:
    outcome = programs.output_of(Program((str(ROOT / "bench/shaped_link"), "--probe"), timeout_s=30))
    return "" if outcome[0] == 0 else programs.last_words(outcome[2])


def iperf3_obstacle() -> str:
    return "" if shutil.which("iperf3") else "iperf3 is not installed"


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment("memory", "ceilings", sized("memory_ceiling")),
    Experiment("sockets", "ceilings", binary("socket_ceiling")),
    Experiment("iperf3", "ceilings", iperf3, parse_iperf3, obstacle=iperf3_obstacle),
    Experiment("grpc", "ceilings", sized("grpc_ceiling")),
    exchange("tcp", "--transport", "tcp"),
    exchange("tcp-window2", "--transport", "tcp", "--window", "2"),
    exchange("tcp-bf16", "--transport", "tcp", "--wire", "bf16"),
    exchange("tcp-bf16-feedback", "--transport", "tcp", "--wire", "bf16", "--error-feedback", "always"),
    exchange("tcp-fp16", "--transport", "tcp", "--wire", "fp16"),
    exchange("tcp-int8", "--transport", "tcp", "--wire", "int8"),
    exchange("tcp-topk", "--transport", "tcp", "--wire", "topk:0.01"),
    exchange("tcp-momentum", "--transport", "tcp", "--optimizer", "momentum"),
    exchange("tcp-adam", "--transport", "tcp", "--optimizer", "adam"),
    exchange("tcp-2-workers", "--transport", "tcp", "--workers", "2"),
    exchange("tcp-4-servers", "--transport", "tcp", "--servers", "4", "--shards", "2"),
    exchange("tcp-1000-tensors", "--transport", "tcp", "--tensors", "1000"),
    exchange("unix", "--transport", "unix"),
    exchange("unix-window2", "--transport", "unix", "--window", "2"),
    exchange("shm", "--transport", "shm"),
    exchange("shm-window2", "--transport", "shm", "--window", "2"),
    exchange("shm-2-workers", "--transport", "shm", "--workers", "2"),
    exchange("tcp-backward", "--transport", "tcp", "--backward-ms", "100"),
    Experiment("tcp-3gb", "large", exchange_of(lambda scale: scale.large_megabytes, "--transport", "tcp"),
               every_repeat=False, needs_gb=lambda scale: 5.5 * scale.large_megabytes / 1000),
    Experiment("memory-use", "large", memory_use, every_repeat=False,
               # Weights, superseded versions, momentum, what is staged for each worker, and what the workers share.
               needs_gb=lambda scale: (6 + scale.memory_workers) * scale.memory_megabytes / 1000),
    Experiment("pulls", "pulls", sized("exchange_bench", "--pusher-beside", "--transport", "tcp")),
    Experiment("pulls-shm", "pulls", sized("exchange_bench", "--pusher-beside", "--transport", "shm")),
    Experiment("faulty-peers", "faulty-peers", binary("faulty_peers")),
    Experiment("replication-tcp", "replication", binary("replication_bench", "--transport", "tcp")),
    Experiment("replication-shm", "replication", binary("replication_bench", "--transport", "shm")),
    Experiment("latency", "latency", binary("latency_bench", "--transport", "tcp")),
    Experiment("latency-unix", "latency", binary("latency_bench", "--transport", "unix")),
    Experiment("latency-pipelined", "latency", binary("latency_bench", "--transport", "tcp", "--window", "64")),
    Experiment("kernels", "kernels", sized("optimizer_bench")),
    Experiment("link", "link", shaped("--transport", "tcp"), obstacle=shaped_link_obstacle),
    Experiment("link-bf16", "link", shaped("--transport", "tcp", "--wire", "bf16"), obstacle=shaped_link_obstacle),
    Experiment("race-cnn", "race", race("cnn"), parse_race),
    Experiment("race-resnet18", "race", race("resnet18", *RESNET_IMAGES), parse_race),
    Experiment("race-resnet18-tcp", "race", race("resnet18", *RESNET_IMAGES, "--set", "wire.same_host=tcp"), parse_race),
)

GROUPS = tuple(dict.fromkeys(experiment.group for experiment in EXPERIMENTS))


def free_gb() -> float:
    text = Path("/proc/meminfo").read_text()
    found = re.search(r"MemAvailable:\s+(\d+)", text)
    return int(found.group(1)) / 1e6 if found else 0.0


def obstacle_of(experiment: Experiment, scale: Scale) -> Optional[str]:
    needed, free = experiment.needs_gb(scale), free_gb()
    if needed > free:
        return f"needs {needed:.0f} GB of memory, {free:.0f} are free"
    return experiment.obstacle() or None
