"""The commands `slackline`, `slackline-scheduler`, `slackline-ps` and `slackline-worker` of an environment into which pip has installed
the package: they become the programs inside it. Imports nothing of the package, whose torch takes seconds.
"""

import os
import sys
from pathlib import Path


def folder() -> Path:
    """Where the programs of this installation are."""
    return Path(__file__).resolve().with_name("slackline") / "programs" / "bin"


def main() -> None:
    """Becomes the program of the command's name; `python -m slackline` becomes `slackline`."""
    # Scripts that it starts run in this environment, whether or not it is the active one.
    own = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([own, os.environ.get("PATH", os.defpath)])
    name = Path(sys.argv[0]).name
    # Under the worker's name `slackline` first checks that it is there, with the LibTorch that it needs.
    program = folder() / (name if name in ("slackline-scheduler", "slackline-ps") else "slackline")
    called = folder() / (name if name.startswith("slackline-") else "slackline")
    try:
        os.execv(program, [str(called), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"slackline: cannot start {program}: {error.strerror}; install the package again")


if __name__ == "__main__":
    main()
