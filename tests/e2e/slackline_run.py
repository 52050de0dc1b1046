"""Runs of the built programs, as a user would start them. Every wait has a deadline and says what it waited for."""
import csv
import json
import os
import pathlib
import signal
import subprocess
import threading
import time


# A run in the background ignores Ctrl-C, and hands that on to what it starts; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def all_stopped(pid):
    """Whether each thread of the process is."""
    try:
        return all("\nState:\tT" in status.read_text() for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"))
    except FileNotFoundError:
        return False  # one has just ended


class Programs:
    """Where the programs are, and how patient to be with them (sanitizers are slow)."""

    def __init__(self, folder, patience=1.0):
        self.folder = pathlib.Path(folder).resolve()
        self.patience = patience
        self.next_look = threading.Event()

    def path(self, name):
        return str(self.folder / name)

    def wait_for(self, what, condition, seconds=60, alive=None):
        """The first truthy answer of `condition`. `alive` is a process without which it cannot come true. What is said
        when it does not come, `what`, may be a function: then it is asked for when that is known."""
        deadline = time.monotonic() + seconds * self.patience
        while True:
            last_chance = time.monotonic() > deadline or (alive is not None and alive.poll() is not None)
            answer = condition()
            if answer:
                return answer
            if last_chance:
                raise AssertionError(f"waited in vain for {what() if callable(what) else what}")
            # What other processes write sends no event to us: look again soon.
            self.next_look.wait(0.01)


class TrainRun:
    """One `slackline train`, in a folder of its own."""

    def __init__(self, programs, root, job, settings=(), command=None, ignored=(), output=None):
        """`ignored`: signals that it is started with so. `output`: a descriptor that takes all that it says."""
        self.programs = programs
        self.folder = pathlib.Path(root) / "run"
        self.out = pathlib.Path(root) / "stdout"
        self.err = pathlib.Path(root) / "stderr"
        if command is None:
            command = [programs.path("slackline"), "train", str(job), "--run-folder", str(self.folder)]
            for setting in settings:
                command += ["--set", setting]
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                command, stdout=out if output is None else output, stderr=err if output is None else output,
                stdin=subprocess.DEVNULL, preexec_fn=lambda: [signal.signal(one, signal.SIG_IGN) for one in ignored])

    @classmethod
    def resume(cls, programs, run, arguments=()):
        """`slackline resume` of a run that has ended."""
        command = [programs.path("slackline"), "resume", str(run.folder), *arguments]
        return cls(programs, run.folder.parent, None, command=command)

    def stdout(self):
        return self.out.read_text(errors="replace")

    def stderr(self):
        return self.err.read_text(errors="replace")

    def events(self):
        path = self.folder / "events.log"
        return path.read_text() if path.exists() else ""

    def rows(self):
        """metrics.csv as dictionaries; a row that is being written is left out."""
        path = self.folder / "metrics.csv"
        if not path.exists():
            return []
        text = path.read_text()
        return list(csv.DictReader(text[:text.rfind("\n") + 1].splitlines()))

    def members(self):
        """processes.json by name."""
        path = self.folder / "processes.json"
        return {entry["name"]: entry for entry in json.loads(path.read_text())} if path.exists() else {}

    def wait_for_training(self, samples=1):
        """Until so many samples were trained."""
        self.programs.wait_for(lambda: f"{samples} trained samples\n{self.diagnosis()}",
                               lambda: any(int(row["samples"]) >= samples for row in self.rows()), 120, self.process)

    def wait_for_snapshots(self):
        """Until the scheduler knows that a death of any server costs no run."""
        self.programs.wait_for(lambda: f"snapshots of all shards\n{self.diagnosis()}",
                               lambda: "all shards are on disk" in self.events(), 60, self.process)

    def kill(self, name, number=signal.SIGKILL):
        pid = self.members()[name]["pid"]
        os.kill(pid, number)
        if number == signal.SIGSTOP:
            # While the thread that takes it waits for a disk, the others go on.
            self.programs.wait_for(f"{name} to stop", lambda: all_stopped(pid), 30)

    def wait(self, seconds=400):
        """The exit code."""
        self.programs.wait_for(lambda: f"the end of slackline train\n{self.diagnosis()}",
                               lambda: self.process.poll() is not None, seconds)
        return self.process.returncode

    def leftovers(self):
        """Processes that still have this run's folder in their command line."""
        return processes_with(str(self.folder))

    def diagnosis(self):
        """All that was said, for a test that failed."""
        parts = [f"--- stdout\n{self.stdout()[-3000:]}", f"--- stderr\n{self.stderr()[-3000:]}"]
        for log in sorted(self.folder.glob("logs/*.log")):
            parts.append(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}")
        return "\n".join(parts)

    def close(self):
        """For the end of a test, however it ended: the kernel ends the children with their parent."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def end_jobs(service):
    """Kills the jobs of the folder of a service, which outlive the service, and waits until nobody writes there any more."""
    for file in pathlib.Path(service).glob("jobs/*/process"):
        try:
            os.kill(int(file.read_text().split()[0]), signal.SIGKILL)
        except (ProcessLookupError, IndexError):
            pass  # it has ended
    # The kernel kills the processes of a job a moment later.
    Programs(".").wait_for("the processes of the jobs to end", lambda: not processes_with(str(service)), 30)


def processes_with(text):
    """Process ids whose command line holds `text`."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass  # it has ended meanwhile
    return found
