#!/usr/bin/env python3
"""usage: check_format.py ROOT

All C++ files are as clang-format 14 would write them. Skipped (77) where it is not installed.
"""

import os
import shutil
import subprocess
import sys

from tree import Tree

TOOL = "clang-format-14"


def main():
    if shutil.which(TOOL) is None:
        print(f"SKIP: {TOOL} is not installed; ./test --all installs it")
        return 77
    root = sys.argv[1]
    files = [os.path.join(root, path) for path, _ in Tree.read(root).files(".h", ".cc")]
    return 1 if subprocess.run([TOOL, "--dry-run", "-Werror", *files], check=False).returncode else 0


if __name__ == "__main__":
    sys.exit(main())
