"""Joining a job from a script."""

from __future__ import annotations

import os
from typing import Optional, Sequence

import torch

from . import _core
from ._ending import heed_sigterm
from ._launched import Launched
from ._worker import Worker


def connect(
    address: Optional[str] = None,
    job: Optional[str] = None,
    *,
    name: Optional[str] = None,
    overrides: Sequence[str] = (),
    topology: str = "",
    threads: Optional[int] = None,
    log: str = "info",
    node_group: Optional[torch.distributed.ProcessGroup] = None,
) -> Worker:
    """Makes this process a worker of a job.

    The worker joins when it draws its first sample. No process waits for it before that.
    In the main thread, connect() also makes SIGTERM raise SystemExit, unless the script has a handler or a supervisor.

    Args:
        address: HOST:PORT of the scheduler, or a file that holds it. Default: SLACKLINE_SCHEDULER, set by `slackline launch`.
        job: Path of the job file. Default: SLACKLINE_JOB.
        name: Name of the worker in logs, metrics and the status page. Default: SLACKLINE_WORKER, or python-PID.
        overrides: Settings of the job file as KEY=VALUE, alike in all processes. They come after those of SLACKLINE_SET.
        topology: Place in the network, in the form of SLURM_TOPOLOGY_ADDR. Default: SLACKLINE_TOPOLOGY.
        threads: Number of torch's threads. Default: with `slackline launch` the job's worker.threads, otherwise torch's own.
        log: Least important lines on standard error: "info", "warning", or "nothing" for no lines.
        node_group: Process group of torch.distributed, whose processes on this machine are one worker. All call connect(), with
            the same job. Default: the scripts that `slackline launch --node-group` has started together.

    Returns:
        The worker. Use it in a `with`.

    Raises:
        ValueError: The address or the job is missing, or an argument or the job file is wrong.
        FileNotFoundError: The job file does not exist.
        DeadlineExceededError: Processes of the node group, which the message names, did not call connect().
    """
    launched = Launched.read()
    address = address or launched.scheduler
    job = job or launched.job
    missing = [what for what, value in (("address", address), ("job", job)) if not value]
    if missing:
        raise ValueError(
            f"found no {' and no '.join(missing)}: start the script with `slackline launch`, "
            "or give connect(address, job)"
        )
    if log not in ("info", "warning", "nothing"):
        raise ValueError(f"found log={log!r}; allowed is info, warning or nothing")
    assert address is not None and job is not None
    name = name or launched.worker or f"python-{os.getpid()}"
    _core.log_as(name, log)
    settings = [*launched.settings, *overrides]
    topology = topology or launched.topology
    if launched.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, launched.cores)  # and with this thread those that it starts
    worker = Worker(_core.Job(os.fspath(job), settings, os.fspath(address), name, topology), name)
    worker.local_rank, worker.local_world_size = launched.local_rank, launched.local_world_size
    if node_group is not None or launched.node_group:
        worker._join_node(node_group, launched.node_group)
        _core.log_as(f"{name}/{worker.local_rank}", log)
    heed_sigterm(launched.supervised)
    if threads is None and launched.worker is not None:
        threads = worker._job.threads
    if threads is not None:
        torch.set_num_threads(threads)
    return worker
