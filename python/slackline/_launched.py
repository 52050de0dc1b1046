"""What `slackline launch` tells the script that it starts, by its environment: flags are the script's own."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional


class Launched(NamedTuple):
    """None where the script was started by hand."""

    # The job file of the run, whose `security` section names the credentials.
    job: Optional[str]
    # The file that the scheduler writes its address to.
    scheduler: Optional[str]
    # Name of this worker: its slot in the run.
    worker: Optional[str]

    @staticmethod
    def read() -> Launched:
        """What is in the environment now."""
        return Launched(*(os.environ.get(f"SLACKLINE_{name}") or None for name in ("JOB", "SCHEDULER", "WORKER")))
