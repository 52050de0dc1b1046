"""usage: check_docs.py ROOT: the documentation site builds, and no link or anchor in it is broken. Skipped (77) without MkDocs."""

import pathlib
import subprocess
import sys

if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1])
    if not (root / ".cache/docs/requirements.txt").exists():
        print("SKIP: no MkDocs in .cache/docs; scripts/docs --setup installs it")
        sys.exit(77)
    sys.exit(subprocess.run([root / "scripts/docs"], check=False, timeout=100).returncode)
