"""The bars that Slackline is held to: the one place of their numbers.

A figure is named EXPERIMENT/WHAT/VALUE: the experiment of `bench/suite/experiments.py`, the name that its program gives to
the row, and the value in it. A bar compares two figures of the same run, or one figure with a number.
"""

from dataclasses import dataclass
from typing import Literal, Optional


@dataclass(frozen=True)
class Bar:
    measure: str
    figure: str
    # What it is divided by: a ceiling or a peer of the same run. Nothing: the figure is a ratio already.
    against: Optional[str]
    limit: float
    # Is the ratio to be at least the limit, or at most?
    wanted: Literal["at least", "at most"] = "at least"
    # Other figures that may stand in for `against`: the largest counts (the strongest opponent).
    or_against: tuple[str, ...] = ()
    # Factor on `against`, where the two count different things.
    factor: float = 1.0


STREAM = "sockets/tcp stream/gb_per_s"
IPERF3 = ("iperf3/tcp stream/gb_per_s",)
RPC = "peer-torch-rpc/torch.distributed.rpc/rounds_per_s"
RPC_TCMALLOC = "peer-torch-rpc-tcmalloc/torch.distributed.rpc/rounds_per_s"
PS_LITE = "peer-mxnet/MXNet dist_async (ps-lite)/rounds_per_s"
PS_LITE_TCMALLOC = "peer-mxnet-tcmalloc/MXNet dist_async (ps-lite)/rounds_per_s"
DDP = "peer-ddp/DDP over Gloo/steps_per_s"
TENSORFLOW = "peer-tensorflow/TensorFlow ParameterServerStrategy/rounds_per_s"


def exchange(experiment: str, value: str = "rounds_per_s") -> str:
    return f"{experiment}/exchange/{value}"


def kernel(name: str) -> Bar:
    return Bar(f"{name} kernel over a plain in-place read-modify-write loop over the same arrays",
               f"kernels/{name}/ratio", None, 0.9)


def faulty(kind: str) -> Bar:
    """Good workers beside faulty peers of one kind, over the same workers alone a moment before."""
    return Bar(f"two workers beside {kind}, over them alone", f"faulty-peers/beside {kind}/ratio", None, 0.5)


def replicated(transport: str) -> Bar:
    """Servers with backups on the same machine, over the same without a moment before."""
    return Bar(f"with backups, {transport}, over the same without", f"replication-{transport}/replicated/ratio", None, 0.55)


def per_byte(measure: str, experiment: str) -> Bar:
    return Bar(f"{measure}, per byte over the plain case", exchange(experiment, "gb_per_s"), exchange("tcp", "gb_per_s"),
               0.85)


BARS: tuple[Bar, ...] = (
    # 25 rounds/s of 0.2 GB where a TCP stream gives 6.3 GB/s.
    Bar("push + apply + pull, 100 MB, TCP, over a one-way TCP stream", exchange("tcp", "gb_per_s"), STREAM, 0.8,
        or_against=IPERF3),
    Bar("the same with two rounds in flight", exchange("tcp-window2", "gb_per_s"), STREAM, 0.9, or_against=IPERF3),
    Bar("the same over ps-lite", exchange("tcp"), PS_LITE, 1.0, or_against=(PS_LITE_TCMALLOC,)),
    Bar("the same over TensorFlow's ParameterServerStrategy, 2 workers", exchange("tcp-2-workers"), TENSORFLOW, 1.0),
    # 60 rounds/s of 0.2 GB where memcpy moves 38 GB/s, reads and writes counted.
    Bar("through shared memory, over memcpy", exchange("shm", "gb_per_s"), "memory/memcpy/gb_per_s", 12.0 / 38.0),
    Bar("through shared memory, over torch.distributed.rpc", exchange("shm"), RPC, 1.0, or_against=(RPC_TCMALLOC,)),
    Bar("bf16 over fp32, loopback", exchange("tcp-bf16"), exchange("tcp"), 1.3),
    Bar("bf16 with error feedback over fp32, loopback", exchange("tcp-bf16-feedback"), exchange("tcp"), 1.1),
    Bar("bf16 over fp32, link of 10 Gbit/s", exchange("link-bf16"), exchange("link"), 1.8),
    Bar("1 KiB exchanges pipelined, a second", "latency-pipelined/exchange/rounds_per_s", None, 90_000),
    Bar("1 KiB exchange over a bare stream's echo, time", "latency/exchange/p50_us", "latency/bare stream/p50_us", 1.3,
        wanted="at most"),
    kernel("sgd"),
    kernel("momentum"),
    kernel("adam"),
    kernel("adamw"),
    # 1.1 times the time of its bytes, which are 2 of gradient beside the weights'.
    Bar("SGD that decodes bf16 over such a loop over the same bytes", "kernels/bf16_sgd/ratio", None, 1 / 1.1),
    Bar("CPU seconds a GB over the bare stream with apply", exchange("tcp", "cpu_s_per_gb"),
        "grpc/tcp stream depth 1/cpu_s_per_gb", 1.2, wanted="at most"),
    Bar("a pull beside a pusher at full speed, over the pull alone", "pulls/pull beside a pusher/gb_per_s",
        "pulls/pull alone/gb_per_s", 0.45),
    Bar("peak memory over what invariant 7 allows (8 pushers, 4 stalled readers)", "memory-use/memory of server ps-0/ratio",
        None, 1.0, wanted="at most"),
    faulty("stalled readers"),
    faulty("half-open connections"),
    faulty("a flood of small pushes"),
    faulty("a flood of large pushes"),
    faulty("pulls without reading"),
    replicated("tcp"),
    replicated("shm"),
    per_byte("2 workers", "tcp-2-workers"),
    per_byte("4 servers", "tcp-4-servers"),
    per_byte("1,000 small tensors", "tcp-1000-tensors"),
    per_byte("one tensor of 3 GB", "tcp-3gb"),
    Bar("samples/s of the CNN over plain LibTorch, batch 128", "race-cnn/race/ratio", None, 0.97),
    Bar("samples/s of ResNet-18 over plain LibTorch, batch 128", "race-resnet18/race/ratio", None, 0.95),
    Bar("exchange of two workers over a step of DDP over Gloo", exchange("shm-2-workers"), DDP, 2.0,
        # Each step of DDP is a step of both workers; rounds of the exchange are counted over both.
        factor=2.0),
)
