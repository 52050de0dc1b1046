"""What who starts a script (`slackline launch`, a supervisor under SLURM, a pod) tells it: by its environment, since flags are
the script's own."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional


class Launched(NamedTuple):
    """None, and empty, where the script was started by hand."""

    # The job file of the run, whose `security` section names the credentials.
    job: Optional[str]
    # HOST:PORT of the scheduler, or the file that it writes that to.
    scheduler: Optional[str]
    # Name of this worker: its slot in the run.
    worker: Optional[str]
    # KEY=VALUE of the job file that are this process's own: threads, the address to listen on.
    settings: tuple[str, ...] = ()
    # Number of this script among those of its machine, and how many these are.
    local_rank: int = 0
    local_world_size: int = 1
    # Private folder of the scripts of this machine, where they are one worker (worker.node_group).
    node_group: Optional[str] = None
    # Cores of this script, where several share a machine.
    cores: tuple[int, ...] = ()
    # Where this is in the network.
    topology: str = ""
    # SIGTERM is for the supervisor, too, and it decides what becomes of this process: with SIGINT.
    supervised: bool = False

    @staticmethod
    def read() -> Launched:
        """What is in the environment now."""
        return Launched(
            job=os.environ.get("SLACKLINE_JOB") or None,
            scheduler=os.environ.get("SLACKLINE_SCHEDULER") or None,
            worker=os.environ.get("SLACKLINE_WORKER") or None,
            settings=tuple(line for line in os.environ.get("SLACKLINE_SET", "").splitlines() if line.strip()),
            local_rank=int(os.environ.get("SLACKLINE_LOCAL_RANK", "0")),
            local_world_size=int(os.environ.get("SLACKLINE_LOCAL_WORLD_SIZE", "1")),
            node_group=os.environ.get("SLACKLINE_NODE_GROUP") or None,
            cores=tuple(int(core) for core in os.environ.get("SLACKLINE_CORES", "").split(",") if core),
            topology=os.environ.get("SLACKLINE_TOPOLOGY", ""),
            supervised=os.environ.get("SLACKLINE_SUPERVISED", "") not in ("", "0"),
        )
