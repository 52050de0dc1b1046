"""Builds the Python package from the tree into a folder, as `pip install ./python` does, but without a network, and with this machine's libraries: it is
quicker.

    build_package.py --source ROOT --build FOLDER --target FOLDER

Skipped (77) where this interpreter lacks what builds it.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig


def missing():
    """What is not here, in words; None where all is."""
    for module in ("pip", "torch", "nanobind", "scikit_build_core"):
        if importlib.util.find_spec(module) is None:
            return f"{sys.executable} has no {module}: scripts/setup brings it"
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    return None if os.path.exists(header) else f"there is no {header}: scripts/setup brings python3-dev"


def main():
    parser = argparse.ArgumentParser()
    for option in ("--source", "--build", "--target"):
        parser.add_argument(option, required=True)
    options = parser.parse_args()
    if lack := missing():
        print(f"SKIP: {lack}")
        return 77
    shutil.rmtree(options.target, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index", "-v"]
    command += ["--disable-pip-version-check", "--target", options.target, f"-Cbuild-dir={options.build}", "-Cself-contained=no"]
    # Its objects are found again by ccache, wherever the tree lies.
    environment = {**os.environ, "CCACHE_BASEDIR": options.source, "CCACHE_NOHASHDIR": "1"}
    return subprocess.run([*command, os.path.join(options.source, "python")], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
