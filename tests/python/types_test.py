"""The Python package's types, as a user's tools see them: mypy the package strictly and an example as it is, pyright the package.

    types_test.py --source ROOT --cache FOLDER

pyright is basedpyright, which pip brings whole. Skipped (77) without it or mypy, or without the libraries that the package has integrations for.
"""

import argparse
import importlib.util
import os
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser()
    for option in ("--source", "--cache"):
        parser.add_argument(option, required=True, type=os.path.abspath)
    options = parser.parse_args()
    for module in ("mypy", "basedpyright", "torch", "transformers", "lightning"):
        if importlib.util.find_spec(module) is None:
            print(f"SKIP: {sys.executable} has no {module}; ./test --all installs it")
            return 77
    # From there mypy finds the package by its name, also for the example.
    folder = os.path.join(options.source, "python")
    command = [sys.executable, "-m", "mypy", "--cache-dir", options.cache]
    failed = 0
    for what in (["--strict", "slackline"], [os.path.join(options.source, "examples/python/patterns.py")]):
        failed |= subprocess.run([*command, *what], cwd=folder, check=False, timeout=600).returncode
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
    return failed | subprocess.run(command, cwd=folder, check=False, timeout=600).returncode


if __name__ == "__main__":
    sys.exit(main())
