"""usage: check_docs.py ROOT: the documentation site builds, no link or anchor in it is broken, and its prose is plain (readability.py).
Skipped (77) without MkDocs."""

import pathlib
import subprocess
import sys

# Pages of the site that lie outside of docs/.
OUTSIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md")

if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1])
    if not (root / ".cache/docs/requirements.txt").exists():
        print("SKIP: no MkDocs in .cache/docs; scripts/docs --setup installs it")
        sys.exit(77)
    subprocess.run([root / "scripts/docs"], check=True, timeout=100)
    python, tools = root / ".cache/docs/bin/python", root / "tests/tidy"
    subprocess.run([python, tools / "readability_test.py"], check=True, timeout=60)
    pages = [*(root / "docs").glob("**/*.md"), *(root / page for page in OUTSIDE)]
    sys.exit(subprocess.run([python, tools / "readability.py", *pages], check=False, timeout=60).returncode)
