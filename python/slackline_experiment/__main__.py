"""Started by `slackline experiment`: checks that the libraries are there, then hands over to the command."""

import importlib
import importlib.util
import sys
from pathlib import Path

# Library as it is imported, and as pip names it.
LIBRARIES = {"yaml": "PyYAML", "numpy": "numpy", "matplotlib": "matplotlib"}


def main(name: str = "experiment", module: str = "command") -> int:
    """Runs main() of a module of this package, which is the command `name`."""
    missing = {name: pip for name, pip in LIBRARIES.items() if importlib.util.find_spec(name) is None}
    if missing:
        print(f"slackline {name}: the Python interpreter {sys.executable} has no module {', '.join(missing)}.\n"
              f"Install with: {sys.executable} -m pip install {' '.join(missing.values())}\n"
              f"or name another interpreter with --python.", file=sys.stderr)
        return 2
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    return int(importlib.import_module(f"slackline_experiment.{module}").main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
