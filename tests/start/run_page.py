"""Runs the commands of a tutorial, block by block, as its reader would paste them.

    run_page.py --programs BIN_FOLDER [--package FOLDER] [--python PROGRAM] [--patience FACTOR] PAGE

One bash runs all blocks in a scratch folder, which looks like a checkout with built programs. PATH finds these programs first. Each
block must end with exit code 0, and its output must have what the page calls stable (page.py). Nothing uses the network beyond loopback.
Exits with 77 (skipped) if the page needs what is not there.
"""

import argparse
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import page as pages

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from slackline_run import Programs  # noqa: E402

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
# The parts of a checkout that pages use.
LINKED = ("examples", "k8s", "python", "scripts", "slurm", "README.md", ".cache")
BLOCK_S, TERMINAL_S, END_S = 240, 120, 20


class Failed(Exception):
    """Why a page does not do what it says."""


class Shell:
    """A bash in a session of its own. end() leaves nothing of it behind."""

    def __init__(self, folder, environment, command, stdin=subprocess.DEVNULL, output=None):
        with open(output or os.devnull, "wb") as out:
            self.process = subprocess.Popen(["bash", "--noprofile", "--norc", *command], cwd=folder, env=environment, text=True,
                                            stdin=stdin, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)

    def end(self, wait_for):
        for number in (signal.SIGINT, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                wait_for("the end of a shell", lambda: self.process.poll() is not None, END_S)
            except AssertionError:
                continue
        self.process.wait()


class PageRun:
    """The shells of one page."""

    def __init__(self, name, programs, folder, environment):
        self.name, self.programs, self.folder, self.environment = name, programs, folder, environment
        self.notes = folder / ".page"
        self.notes.mkdir()
        self.main = Shell(folder, environment, ["-e", "-o", "pipefail"], stdin=subprocess.PIPE)
        self.terminals = {}

    def end(self):
        for shell in (self.main, *(shell for shell, _ in self.terminals.values())):
            shell.end(self.programs.wait_for)

    def wait_for(self, step, what, condition, seconds, output, alive):
        def said():
            return f"{what}, for line {step.line} of {self.name}. Output so far:\n{self.text(output)[-3000:]}"

        self.programs.wait_for(said, condition, seconds, alive)

    @staticmethod
    def text(path):
        return path.read_text(errors="replace") if path.exists() else ""

    def missing(self, step, output):
        lines = [pages.squeeze(line) for line in self.text(output).splitlines()]
        return [phrase for phrase in step.stable if not any(phrase in line for line in lines)]

    def run(self, step):
        if step.after:
            self.finish(step.after, step)
        script, output = self.notes / f"{step.line}.sh", self.notes / f"{step.line}.out"
        script.write_text("".join(f"{line}\n" for line in step.first if not step.terminal) + step.commands)
        (self.in_terminal if step.terminal else self.in_main)(step, script, output)

    def in_main(self, step, script, output):
        done = script.with_suffix(".done")
        self.main.process.stdin.write(f"source '{script}' </dev/null >'{output}' 2>&1\n: >'{done}'\n")
        self.main.process.stdin.flush()
        self.wait_for(step, "the end of the commands", done.exists, BLOCK_S, output, self.main.process)
        missing = self.missing(step, output)
        if missing:
            raise Failed(f"{self.name}:{step.line}: the output lacks {missing}:\n{self.text(output)[-6000:]}")

    def in_terminal(self, step, script, output):
        for line in step.first:
            subprocess.run(["bash", "-ec", line], cwd=self.folder, env=self.environment, check=True, timeout=60)
        shell = Shell(self.folder, self.environment, ["-e", str(script)], output=output)
        self.terminals[step.terminal] = (shell, output)
        self.wait_for(step, f"{self.missing(step, output) or 'the start'}", lambda: not self.missing(step, output), TERMINAL_S, output,
                      shell.process)

    def finish(self, name, step):
        shell, output = self.terminals[name]
        self.wait_for(step, f"the end of the terminal '{name}'", lambda: shell.process.poll() is not None, BLOCK_S, output, None)
        if shell.process.returncode:
            raise Failed(f"{self.name}: terminal '{name}' ended with {shell.process.returncode}:\n{self.text(output)[-6000:]}")


def lacking(page, options):
    """Why the page cannot run here."""
    if not (options.programs / "slackline-worker").exists():
        return f"there is no slackline-worker in {options.programs}"
    if not DATA.exists():
        return f"there is no {DATA}"
    where = f"{ROOT / '.cache/outside/bin'}:{os.environ['PATH']}"
    for need in page.needs:
        kind, _, name = need.partition(" ")
        if kind == "package" and options.package is None:
            return "the Python package is not built"
        if kind == "program" and shutil.which(name, path=where) is None:
            return f"there is no {name}; ./test --all installs it"
        if kind == "module" and importlib.util.find_spec(name) is None:
            return f"there is no Python module {name}; ./test --all installs it"
    return ""


def environment_of(folder, options):
    """That of a reader, in a checkout that is linked into `folder`."""
    for name in LINKED:
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    (folder / "build/release").mkdir(parents=True)
    (folder / "build/release/bin").symlink_to(options.programs)
    environment = dict(os.environ, PATH=f"{options.programs}:{ROOT / '.cache/outside/bin'}:{os.environ['PATH']}")
    # A Python with the package, as `pip install ./python` makes it.
    python = folder / ".python"
    python.write_text(f"#!/bin/sh\nPYTHONPATH='{options.package or ''}' exec '{options.python}' -B \"$@\"\n")
    python.chmod(0o755)
    environment["SLACKLINE_PYTHON"] = str(python)
    return environment


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--package", type=lambda text: pathlib.Path(text).resolve(), help="folder with the built Python package")
    parser.add_argument("--python", default=sys.executable, help="with PyTorch")
    parser.add_argument("--patience", type=float, default=1.0)
    parser.add_argument("page", type=pathlib.Path)
    options = parser.parse_args()
    try:
        page = pages.read(options.page.name, options.page.read_text())
    except pages.PageError as error:
        print(error, file=sys.stderr)
        return 1
    reason = lacking(page, options)
    if reason:
        print(f"SKIP: {reason}")
        return 77
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        environment = environment_of(folder, options)
        run = PageRun(options.page.name, Programs(options.programs, options.patience), folder, environment)
        try:
            for step in page.steps:
                if step.skipped:
                    print(f"line {step.line} is not run: {step.skipped}", flush=True)
                else:
                    print(f"line {step.line} runs", flush=True)
                    run.run(step)
            for step in page.steps:
                if step.terminal:
                    run.finish(step.terminal, step)
        except (AssertionError, Failed, subprocess.SubprocessError) as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            run.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
