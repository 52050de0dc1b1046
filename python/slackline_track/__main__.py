"""Started by `slackline track`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from slackline_track import command
    sys.exit(command.main(sys.argv[1:]))
