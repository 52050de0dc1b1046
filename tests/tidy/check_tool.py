#!/usr/bin/env python3
"""usage: check_tool.py TOOL [OPTION]... -- FILE...

Runs an outside tool on files. Skipped (77) where the tool is not installed.
"""

import shutil
import subprocess
import sys


def main():
    tool = sys.argv[1]
    if shutil.which(tool) is None:
        print(f"SKIP: {tool} is not installed; ./test --all installs it")
        return 77
    command = [argument for argument in sys.argv[1:] if argument != "--"]
    return 1 if subprocess.run(command, check=False).returncode else 0


if __name__ == "__main__":
    sys.exit(main())
