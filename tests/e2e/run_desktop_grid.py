"""The example of a desktop grid on one computer: examples/images/desktop_grid.py, as its page says.

    run_desktop_grid.py --programs BIN_FOLDER [--patience FACTOR]

Exits with 77 (skipped) where the programs, numpy or Pillow are not there.
"""
import argparse
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

from run_e2e import NEEDED

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples/images/desktop_grid.py"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--patience", type=float, default=1, help="factor on all waits")
    options = parser.parse_args()
    missing = [name for name in NEEDED if not (pathlib.Path(options.programs) / name).exists()]
    missing += [name for name in ("numpy", "PIL") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: {', '.join(missing)} missing")
        return 77
    with tempfile.TemporaryDirectory(prefix="slackline-grid-") as folder:
        done = subprocess.run([sys.executable, SCRIPT, f"{folder}/grid", "--programs", options.programs], capture_output=True, text=True,
                              timeout=800 * options.patience, check=False)
    print(done.stdout + done.stderr)
    if done.returncode != 0:
        return 1
    for words in ("bob left, with exit code 0", r"bob came back and ended with exit code 1: .*found the certificate of worker bob of job desktop-grid, "
                  "which is revoked", "alice ended the job, with exit code 0", r"test accuracy (9\d|100)\.\d %, 28800 images"):
        if not re.search(words, done.stdout):
            print(f"found no '{words}' in what the example says")
            return 1
    fetched = {name: int(count) for name, count in re.findall(r"(\w+) has fetched (\d+) of 20 files", done.stdout)}
    if not (set(fetched) == {"alice", "bob", "carol"} and 4 <= fetched["bob"] < 20):
        print(f"found {fetched}; bob, who left early, has few of the 20 files, and not none")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
