"""The output folder: where each run lies, and what experiment.lock.json remembers of it.

    cells/CELL/REPEAT/       run folder
    cells/CELL/REPEAT.log    what the run printed; a SLURM job prints into submit/ of the run folder
    cells/CELL/REPEAT.yaml   the job of a run without Slackline
    experiment.lock.json     of each cell: its fingerprint, and how long its runs took or why they failed
"""

import fcntl
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Optional

from slackline_experiment import run_folder, schema
from slackline_experiment.document import Wrong
from slackline_experiment.resolve import ResolvedCell


@dataclass(frozen=True)
class Run:
    cell: ResolvedCell
    # From 1.
    repeat: int

    @property
    def seed(self) -> int:
        """One more each repeat, or each time that all folds were gone through."""
        return self.cell.seed + (self.repeat - 1) // max(1, len(self.cell.folds))

    @property
    def fold(self) -> Optional[int]:
        """From 1; None without folds."""
        return (self.repeat - 1) % len(self.cell.folds) + 1 if self.cell.folds else None

    @property
    def id(self) -> str:
        return f"{self.cell.cell.id}/{self.repeat}"


class Store:
    """Thread-safety: none. Only one process works in a folder: open() holds a lock on it until it ends."""

    def __init__(self, root: Path):
        self.root = root
        self._lock_path = root / "experiment.lock.json"
        self._cells: dict[str, dict[str, Any]] = {}
        # Children inherit it: where one outlives us, the folder stays locked until it is gone.
        self.guard = -1

    def open(self) -> None:
        try:
            (self.root / "cells").mkdir(parents=True, exist_ok=True)
            self.guard = os.open(self.root / ".guard", os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(self.guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Wrong(f"another `slackline experiment`, or a run that it left, works in {self.root}; "
                        "wait for its end or name another folder with --out") from error
        except OSError as error:
            raise Wrong(f"cannot write in {self.root}: {error.strerror}") from error
        self._cells = self._read_lock()

    def _read_lock(self) -> dict[str, dict[str, Any]]:
        try:
            lock = json.loads(self._lock_path.read_text(encoding="utf-8"))
            if lock["format"] != schema.FORMAT:
                raise Wrong(f"{self._lock_path}: found format {lock['format']}; allowed is {schema.FORMAT}")
            return {name: {"fingerprint": cell["fingerprint"], "wall_s": dict(cell["wall_s"]),
                           "failed": dict(cell["failed"])} for name, cell in lock["cells"].items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Wrong(f"{self._lock_path} is damaged ({error}); remove it to run everything anew") from error

    def _write_lock(self) -> None:
        beside = self._lock_path.with_suffix(".new")
        text = json.dumps({"format": schema.FORMAT, "cells": self._cells}, indent=1)
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(self._lock_path)

    def has_changed(self, resolved: ResolvedCell) -> bool:
        """True if runs that are there are of another job."""
        known = self._cells.get(resolved.cell.id)
        return known is None or known["fingerprint"] != resolved.fingerprint

    def adopt(self, cells: Iterable[ResolvedCell]) -> list[str]:
        """Removes the runs of cells that have changed since, and returns the ids of these cells."""
        changed = []
        for resolved in cells:
            if not self.has_changed(resolved):
                continue
            folder = self.root / "cells" / resolved.cell.id
            if folder.exists():
                changed.append(resolved.cell.id)
                shutil.rmtree(folder)
            self._cells[resolved.cell.id] = {"fingerprint": resolved.fingerprint, "wall_s": {}, "failed": {}}
        self._write_lock()
        return changed

    def run_folder(self, run: Run) -> Path:
        return self.root / "cells" / run.cell.cell.id / str(run.repeat)

    def log(self, run: Run) -> Path:
        return self.root / "cells" / run.cell.cell.id / f"{run.repeat}.log"

    def job(self, run: Run) -> Path:
        return self.root / "cells" / run.cell.cell.id / f"{run.repeat}.yaml"

    def is_complete(self, run: Run) -> bool:
        known = self._cells.get(run.cell.cell.id)
        return (known is not None and known["fingerprint"] == run.cell.fingerprint
                and str(run.repeat) not in known["failed"] and run_folder.read_state(self.run_folder(run)) == "done")

    def wall_s(self, run: Run) -> Optional[float]:
        seconds: Optional[float] = self._cells.get(run.cell.cell.id, {}).get("wall_s", {}).get(str(run.repeat))
        return seconds

    def failure(self, run: Run) -> Optional[str]:
        known = self._cells.get(run.cell.cell.id)
        if known is None or known["fingerprint"] != run.cell.fingerprint:
            return None
        failure: Optional[str] = known["failed"].get(str(run.repeat))
        return failure

    def slurm_jobs(self, cell: str) -> dict[int, str]:
        """Numbers of the SLURM jobs as which runs of this cell were last submitted, by repeat; those with a result are left out."""
        folders = [path for path in (self.root / "cells" / cell).glob("*") if path.name.isdigit()]
        jobs = {int(folder.name): _slurm_job(folder) for folder in folders if run_folder.read_state(folder) != "done"}
        return {repeat: job for repeat, job in jobs.items() if job is not None}

    def slurm_job(self, run: Run) -> Optional[str]:
        return _slurm_job(self.run_folder(run))

    def submitters(self) -> set[int]:
        """Users who have submitted runs as SLURM jobs, and this one."""
        return {os.getuid(), *(path.stat().st_uid for path in self.root.glob("cells/*/*/submit/job-id"))}

    def last_log(self, run: Run) -> Path:
        """What its newest attempt printed."""
        outputs = sorted(self.run_folder(run).glob("submit/slurm-*.out"), key=lambda path: path.stat().st_mtime)
        return outputs[-1] if outputs else self.log(run)

    def make_room(self, run: Run) -> None:
        """What an earlier attempt left is removed, but for its log."""
        self.log(run).parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError, shutil.SameFileError):
            shutil.copyfile(self.last_log(run), self.log(run))
        shutil.rmtree(self.run_folder(run), ignore_errors=True)
        self._cells[run.cell.cell.id]["wall_s"].pop(str(run.repeat), None)
        self._cells[run.cell.cell.id]["failed"].pop(str(run.repeat), None)
        self._write_lock()

    def forget_failure(self, run: Run) -> None:
        if self._cells[run.cell.cell.id]["failed"].pop(str(run.repeat), None) is not None:
            self._write_lock()

    def record(self, run: Run, wall_s: float) -> None:
        """Records a run that ended well."""
        self._cells[run.cell.cell.id]["wall_s"][str(run.repeat)] = round(wall_s, 3)
        self._write_lock()

    def record_failure(self, run: Run, failure: str) -> None:
        self._cells[run.cell.cell.id]["failed"][str(run.repeat)] = failure
        self._write_lock()


def _slurm_job(folder: Path) -> Optional[str]:
    """Number that `slackline slurm submit` left in a run folder."""
    try:
        number = (folder / "submit" / "job-id").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return number if number.isdigit() else None
