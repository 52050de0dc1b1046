"""A run as trackers see it: its name, settings, points and end, from the files of its folder."""

import fcntl
import hashlib
import json
import re
from pathlib import Path
from typing import IO, Any, Mapping, Optional

from slackline_experiment.document import Wrong, flattened, load
from slackline_track.events import EventReader, Point

# Events of the scheduler, behind their times (cli/run/run_end.cc reads them, too).
END = re.compile(r"the job is (?P<state>done|failed|stopped)(?:: (?P<reason>.*))?")
GOES_ON = ("goes on from checkpoint ", "the scheduler goes on ")


def numbers(value: Any, key: str = "summary") -> dict[str, float]:
    """The numbers of an object and of the objects in it, by path. Lists and texts are left out."""
    found: dict[str, float] = {}
    for name, below in value.items():
        path = f"{key}/{name}"
        if isinstance(below, dict):
            found |= numbers(below, path)
        elif isinstance(below, (int, float)) and not isinstance(below, bool):
            found[path] = float(below)
    return found


class TrackedRun:
    """Thread-safety: none. One process tracks a run: a lock on its job.yaml is held until that process ends.

    Raises Wrong where the folder holds no run, or none that can be tracked.
    """

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        self._job_file = self.folder / "job.yaml"
        if not self._job_file.is_file():
            raise Wrong(f"found no job.yaml in {folder}; allowed is the folder of a run")
        self._lock = self._take_lock()
        self.job: Mapping[str, Any] = self._read_job()
        # Values by dotted key.
        self.settings: dict[str, Any] = dict(flattened(self.job))
        if self.settings.get("output.tensorboard") is False:
            raise Wrong(f"found output.tensorboard: false in {self._job_file}; allowed is true: trackers get the points of the "
                        "event files")
        self._events = EventReader(self.folder)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def id(self) -> str:
        """The same for each call about this folder, and for no other folder."""
        return hashlib.sha256(str(self.folder).encode()).hexdigest()[:16]

    @property
    def tags(self) -> dict[str, str]:
        found = {"run": self.name, "mode": self.settings.get("consistency.mode"), "model": self.settings.get("model.kind")}
        return {name: str(value) for name, value in found.items() if value}

    @property
    def report_every_s(self) -> float:
        value = self.settings.get("output.report_every_ms", 1000)
        return value / 1000 if isinstance(value, (int, float)) else 1.0

    @property
    def began_s(self) -> Optional[int]:
        """Seconds since 1970; None before the first report."""
        return self._events.began_s()

    def new_points(self) -> list[Point]:
        return self._events.read()

    def summary(self) -> Optional[dict[str, Any]]:
        """None until the run has ended and its summary is written. A resumed run may have that of its earlier part."""
        end, file = self.end(), self.folder / "summary.json"
        if end is None:
            return None
        try:
            summary = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise Wrong(f"{file} is damaged: {error}") from error
        return summary if isinstance(summary, dict) and summary.get("state") == end["state"] else None

    def end(self) -> Optional[dict[str, Any]]:
        """State and reason of the end in events.log, unless the run has gone on since. Times of files say nothing: copies have others."""
        try:
            lines = (self.folder / "events.log").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        end = None
        for line in lines:
            # Date, time and event.
            text = line.split(" ", 2)[-1]
            if found := END.fullmatch(text):
                end = found.groupdict("")
            elif text.startswith(GOES_ON):
                end = None
        return end

    def _take_lock(self) -> IO[bytes]:
        file = self._job_file.open("rb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Wrong(f"another `slackline track` follows {self.folder}; wait for its end, or stop it") from error
        return file

    def _read_job(self) -> Mapping[str, Any]:
        job = load(self._job_file.read_text(encoding="utf-8"), str(self._job_file))
        if not isinstance(job, dict):
            raise Wrong(f"{self._job_file}: found no mapping; allowed is a job")
        return job
