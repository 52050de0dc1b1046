#!/usr/bin/env python3
"""usage: check_format.py ROOT

All C++ files are as clang-format 14 would write them. Skipped (77) where that version is not installed: each one has a style of its own.
"""

import os
import shutil
import subprocess
import sys

from tree import Tree

TOOLS = ("clang-format-14", "clang-format")
VERSION = "version 14."


def find_tool():
    """Returns the program, or None, and which versions were found."""
    found = []
    for tool in filter(shutil.which, TOOLS):
        said = subprocess.run([tool, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        if VERSION in said:
            return tool, found
        found.append(said)
    return None, found


def main():
    tool, found = find_tool()
    if tool is None:
        print(f"SKIP: found {', '.join(found)}; needed is version 14" if found
              else "SKIP: clang-format is not installed; ./test --all installs it")
        return 77
    root = sys.argv[1]
    files = [os.path.join(root, path) for path, _ in Tree.read(root).files(".h", ".cc")]
    return 1 if subprocess.run([tool, "--dry-run", "-Werror", *files], check=False).returncode else 0


if __name__ == "__main__":
    sys.exit(main())
