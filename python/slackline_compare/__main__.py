"""Started by `slackline compare`, which shares its tables, plots and page with `slackline experiment`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from slackline_experiment.__main__ import main
    sys.exit(main("compare", "compare"))
