"""The peers that Slackline is raced against, their Python environments, and how each is asked."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from suite import programs
from suite.experiments import ROOT, Experiment, Setting
from suite.programs import Program

ENVIRONMENTS = ROOT / ".cache" / "peers-venv"
PIP_TIMEOUT_S = 1800


@dataclass(frozen=True)
class Environment:
    """Python packages that live together."""

    name: str
    packages: tuple[str, ...]
    # What must be importable.
    module: str
    # One that may be there already, under .cache.
    elsewhere: str = ""

    def python(self) -> Optional[str]:
        """Its interpreter, when the environment is complete."""
        folders = ([ROOT / ".cache" / self.elsewhere] if self.elsewhere else []) + [ENVIRONMENTS / self.name]
        return next((str(folder / "bin/python") for folder in folders if self._is_in(folder)), None)

    def _is_in(self, folder: Path) -> bool:
        return any(folder.glob(f"lib/python3*/site-packages/{self.module}/__init__.py"))

    def install(self) -> str:
        """Makes it unless it is there. Returns why that failed, or nothing."""
        if self.python():
            return ""
        folder = ENVIRONMENTS / self.name
        print(f"installing {' '.join(self.packages)} in {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
        for command in ([sys.executable, "-m", "venv", str(folder)],
                        [str(folder / "bin/pip"), "install", "--quiet", *self.packages]):
            try:
                done = subprocess.run(command, text=True, capture_output=True, timeout=PIP_TIMEOUT_S,
                                      stdin=subprocess.DEVNULL, preexec_fn=programs.end_with_parent)
            except subprocess.TimeoutExpired:
                return f"{' '.join(command)}: no end within {PIP_TIMEOUT_S} s"
            if done.returncode != 0:
                return f"{' '.join(command)}: {programs.last_words(done.stderr)}"
        return "" if self.python() else f"{self.module} is not in {folder} after its installation"


TORCH = Environment("torch", ("torch==2.13.0", "numpy"), "torch", elsewhere="venv")
TENSORFLOW = Environment("tensorflow", ("tensorflow-cpu==2.21.0",), "tensorflow")
# The last release, and the last numpy that still has the names it uses.
MXNET = Environment("mxnet", ("mxnet==1.9.1", "numpy<1.24"), "mxnet")
ENVIRONMENTS_BY_NAME = {one.name: one for one in (TORCH, TENSORFLOW, MXNET)}


@dataclass(frozen=True)
class Peer:
    name: str
    environment: Environment
    script: str
    options: tuple[str, ...] = ()
    tcmalloc: bool = False

    def program(self, setting: Setting) -> Program:
        preload = programs.find_library("tcmalloc") if self.tcmalloc else None
        # Without an interpreter the obstacle has been told before.
        return Program((self.environment.python() or "python3", str(ROOT / "bench/peers" / self.script), "--elements",
                        str(int(setting.scale.megabytes * 250_000)), "--seconds", str(setting.scale.seconds),
                        *self.options), timeout_s=300, environment={"LD_PRELOAD": preload} if preload else {})

    def obstacle(self) -> str:
        if not self.environment.python():
            return f"not installed: bench/peers/run --install {self.environment.name}"
        if self.tcmalloc and not programs.find_library("tcmalloc"):
            return "tcmalloc is not installed (Debian: libtcmalloc-minimal4)"
        return ""

    def experiment(self) -> Experiment:
        return Experiment(self.name, "peers", self.program, obstacle=self.obstacle)


PEERS: tuple[Peer, ...] = (
    Peer("peer-torch-rpc", TORCH, "torch_rpc.py", ("--workers", "1")),
    Peer("peer-torch-rpc-tcmalloc", TORCH, "torch_rpc.py", ("--workers", "1"), tcmalloc=True),
    Peer("peer-torch-rpc-2-workers", TORCH, "torch_rpc.py", ("--workers", "2")),
    Peer("peer-torch-rpc-2-workers-tcmalloc", TORCH, "torch_rpc.py", ("--workers", "2"), tcmalloc=True),
    Peer("peer-ddp", TORCH, "ddp_gloo.py"),
    Peer("peer-tensorflow", TENSORFLOW, "tensorflow_ps.py", ("--workers", "2")),
    Peer("peer-mxnet", MXNET, "mxnet_kvstore.py", ("--workers", "1")),
    Peer("peer-mxnet-tcmalloc", MXNET, "mxnet_kvstore.py", ("--workers", "1"), tcmalloc=True),
    Peer("peer-mxnet-2-workers", MXNET, "mxnet_kvstore.py", ("--workers", "2")),
)
