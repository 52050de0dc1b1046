"""Every cell's job as `slackline check` resolves it, before anything runs; and whether it can be simulated."""

import hashlib
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

import yaml

from slackline_experiment.definition import Experiment, InlineJob, Script
from slackline_experiment.document import Wrong, load, overrides_of
from slackline_experiment.grid import Cell

CHECK_TIMEOUT_S = 60


@dataclass(frozen=True)
class ResolvedCell:
    cell: Cell
    # Of the first repeat.
    seed: int
    # What `slackline check`, `train` and `simulate` take after the job file.
    overrides: tuple[str, ...]
    # Equal for cells whose runs are the same, but for the repeat.
    fingerprint: str
    # Of the experiment.
    folds: tuple[Path, ...] = ()
    # The job with every setting, as YAML.
    job: str = ""


# Of a job: what counts from the file that it is in.
PATHS = (("data", "path"), ("data", "ca_file"), ("data", "cache", "folder"), ("model", "weights"), ("checkpoint", "folder"),
         ("security", "folder"), ("security", "token_file"))
# In a setting: the number of the repeat.
REPEAT = "%r"


def write_inline_job(job: InlineJob, folder: Path) -> Path:
    path = folder / "job.yaml"
    path.write_text(job.text, encoding="utf-8")
    return path


def inline_overrides(experiment: Experiment) -> dict[str, Any]:
    """A relative path in an inline job counts from the experiment file."""
    found: dict[str, Any] = {}
    for keys in PATHS:
        value = experiment.job.values if isinstance(experiment.job, InlineJob) else None
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        # Images may come from a server.
        if isinstance(value, str) and value and not Path(value).is_absolute() and not value.startswith(("http://", "https://", "ftp://")):
            found[".".join(keys)] = str((experiment.file.parent / value).resolve())
    return found


def script_overrides(experiment: Experiment, cell: Cell) -> dict[str, Any]:
    """As `slackline launch` does: a script brings the model, where neither job nor cell names one."""
    if experiment.script is None or "model.kind" in cell.sets:
        return {}
    job = experiment.job.values if isinstance(experiment.job, InlineJob) else load(
        experiment.job.read_text(encoding="utf-8"), str(experiment.job))
    model = job.get("model") if isinstance(job, Mapping) else None
    return {} if isinstance(model, Mapping) and "kind" in model else {"model.kind": "external"}


def check_script(script: Script) -> None:
    """Raises Wrong where the interpreter cannot import the package that makes the script a worker."""
    done = _call([script.python, "-c", "import slackline"])
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Wrong(f"python: {script.python} cannot import slackline ({reason}); install it there with pip, or name another "
                    "interpreter. Nothing was run.")


def resolve(experiment: Experiment, slackline: Path, to_run: bool = True) -> list[ResolvedCell]:
    """Raises Wrong, with the names of the cells, where a job does not pass, or where this machine is `to_run` it and cannot."""
    with tempfile.TemporaryDirectory(prefix="slackline-experiment-") as folder:
        job = experiment.job
        if isinstance(job, InlineJob):
            job = write_inline_job(job, Path(folder))
        if experiment.script is not None and to_run:
            check_script(experiment.script)
        resolved: list[ResolvedCell] = []
        refused: dict[str, list[str]] = {}
        for cell in experiment.cells:
            overrides = tuple(overrides_of({**inline_overrides(experiment), **script_overrides(experiment, cell), **cell.sets}))
            if cell.run == "plain" and names_repeat(overrides):
                raise Wrong(f"cell {cell.id}: found {REPEAT} in a setting of a run without Slackline; allowed is it in runs of `slackline` only")
            # Images and model of a script are its own: nothing is known of them here.
            here = ["--for", cell.run] if to_run and experiment.script is None and cell.run != "plain" else []
            checks = [_check(slackline, ["check", str(job), *here, *of_repeat(overrides, experiment.folds, 1)])]
            if checks[0].returncode == 0 and cell.run == "simulate":
                # Not everything that can be trained can be simulated.
                checks.append(_check(slackline, ["simulate", str(job), "--check", *of_repeat(overrides, (), 1)]))
            differing = experiment.repeats if names_repeat(overrides) else len(experiment.folds)
            for repeat in range(2, differing + 1):
                if checks[-1].returncode == 0:
                    checks.append(_check(slackline, ["check", str(job), *here, *of_repeat(overrides, experiment.folds, repeat)]))
            if checks[-1].returncode == 0:
                resolved.append(_resolved(experiment, cell, overrides, checks[0].stdout))
            else:
                shown = str(experiment.file) if isinstance(experiment.job, InlineJob) else str(job)
                refused.setdefault(checks[-1].stderr.strip().replace(str(job), shown), []).append(cell.id)
    if refused:
        raise Wrong("\n".join(f"cell {', '.join(cells)}:\n  " + message.replace("\n", "\n  ")
                              for message, cells in refused.items()) + "\nNothing was run.")
    return resolved


def on_fold(folds: Sequence[Path], repeat: int) -> list[str]:
    """What a repeat, from 1 on, sets to be on its part of the images."""
    return overrides_of({"data.path": str(folds[(repeat - 1) % len(folds)])}) if folds else []


def names_repeat(overrides: Sequence[str]) -> bool:
    return any(REPEAT in word for word in overrides)


def of_repeat(overrides: Sequence[str], folds: Sequence[Path], repeat: int) -> list[str]:
    """A cell's settings in one repeat, from 1 on."""
    return [*(word.replace(REPEAT, str(repeat)) for word in overrides), *on_fold(folds, repeat)]


def job_of_run(cell: ResolvedCell, seed: int, repeat: int) -> str:
    """The job of one run with every setting, as YAML."""
    job = load(cell.job, f"the job of cell {cell.cell.id}")
    job["seed"] = seed
    if cell.folds:
        job["data"]["path"] = str(cell.folds[(repeat - 1) % len(cell.folds)])
    return yaml.safe_dump(job, sort_keys=False, allow_unicode=True)


def _check(slackline: Path, arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return _call([str(slackline), *arguments])


def _call(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Wrong(f"cannot check a cell's job: {error}") from error


def _resolved(experiment: Experiment, cell: Cell, overrides: tuple[str, ...], text: str) -> ResolvedCell:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    job = load("\n".join(lines), f"the job of cell {cell.id}")
    seed = job.get("seed", 1) if isinstance(job, dict) else None
    if not isinstance(seed, int):
        raise Wrong(f"cell {cell.id}: `slackline check` printed no job with a whole number as seed")
    parts = [cell.run, *lines, *map(str, experiment.folds[1:]), *(word for word in overrides if REPEAT in word)]
    script = experiment.plain if cell.run == "plain" else experiment.script
    if script is not None:
        text = hashlib.sha256(script.path.read_bytes()).hexdigest()
        parts += [str(script.path), text, script.python, *script.arguments, *cell.arguments]
    fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return ResolvedCell(cell, seed, overrides, fingerprint, experiment.folds, "\n".join(lines) + "\n")
