"""Started by `slackline trace`. Needs no library but Python's own."""

import sys
from pathlib import Path


def main() -> int:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from slackline_trace import command
    return command.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
