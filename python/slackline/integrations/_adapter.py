"""What libraries insist on: learning rates in an optimizer of theirs, and a loader that they iterate over themselves."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Optional, Union

import torch

from .. import Optimizer, Worker

# End of a round, as DiLoCo has it.
Every = Optional[Union[int, str]]


class Passes:
    """A DataLoader over the worker's sampler or stream, whose own processes may draw ahead of the steps.

    Args:
        at_end: Called when an iteration ends because the job is over.
    """

    def __init__(self, worker: Worker, loader: Any, at_end: Callable[[], None] = lambda: None) -> None:
        self._worker = worker
        self._loader = loader
        self._at_end = at_end

    def __iter__(self) -> Iterator[Any]:
        worker = self._worker
        yield from worker._pass(self._loader) if worker._stream is None else worker.batches(self._loader)
        if worker.done:
            self._at_end()

    def __len__(self) -> int:
        """Raises TypeError for a stream, as its loader does."""
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class Schedule:
    """A scheduler of torch whose place is the job's, not the number of times that a library calls step().

    Args:
        scheduler: torch.optim.lr_scheduler.LRScheduler, of any optimizer.
        place: Returns the number of steps that the scheduler should have taken.
    """

    def __init__(self, scheduler: Any, place: Callable[[], int]) -> None:
        self._scheduler = scheduler
        self._place = place
        # A ChainedScheduler does not count; its first scheduler does.
        self._count = scheduler if hasattr(scheduler, "last_epoch") else scheduler._schedulers[0]
        # No step of an optimizer need come before those of the scheduler, which warns of that.
        scheduler.optimizer._opt_called = True

    def step(self, *args: Any) -> None:
        """Does nothing: follow() comes before each push."""

    def follow(self) -> None:
        while self._count.last_epoch < self._place():
            self._scheduler.step()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)


def check_every(every: Every, worker: Worker) -> None:
    """Refuses an end of rounds in a job without rounds. DiLoCo checks the rest."""
    if every is not None and not worker.local_steps:
        raise ValueError(
            f"found every={every!r} in a job without local.steps; allowed is every= in a job that trains in rounds: --set local.steps=500"
        )


def steps_in_job(worker: Worker) -> int:
    """Steps of the job if one worker takes them all."""
    return -(-worker.epochs * worker._samples_of_epoch // _samples_of_step(worker))


def step_of_job(worker: Worker) -> int:
    """Number of the worker's next step among steps_in_job(), by its samples."""
    return worker._place // _samples_of_step(worker)


def _samples_of_step(worker: Worker) -> int:
    processes = 1 if worker._node is None else worker.local_world_size
    return worker.batch_size * processes * worker.accumulate


def copy_rates(source: torch.optim.Optimizer, target: Optimizer) -> None:
    """Sets the learning rates of `target` to those that the same parameters have in `source`.

    Raises:
        ValueError: Parameters of one group of the job have several rates, or one has none.
    """
    rates = {one: group["lr"] for group in source.param_groups for one in group["params"]}
    for group in (one for one in target.param_groups if one["params"]):
        found = sorted({rates.get(one, -1.0) for one in group["params"]})
        if found[0] < 0:
            raise ValueError(
                f"a trained parameter of group {group['name']} is not in the optimizer of configure_optimizers, whose "
                "learning rates count as it has a scheduler"
            )
        if len(found) > 1:
            raise ValueError(
                f"parameters of group {group['name']} have learning rates {found} in configure_optimizers; allowed is one "
                "for each group of the job's optimizer.groups"
            )
        group["lr"] = found[0]


def check_steps(accumulate: int, worker: Worker) -> None:
    """The servers take the job's number of batches for a push, and its learning rate follows from that."""
    if accumulate != worker.accumulate:
        raise ValueError(
            f"found {accumulate} batches a step; allowed is {worker.accumulate}, the job's training.accumulate"
        )
