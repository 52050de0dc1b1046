"""Local training: a script takes many steps of its own, and pushes how far they came."""

from __future__ import annotations

import re
import time
import warnings
from typing import TYPE_CHECKING, Callable, Optional, Union

import torch
from torch import nn

from ._errors import FailedPreconditionError
from ._optimizer import Optimizer

if TYPE_CHECKING:
    from ._worker import Worker

_UNITS_S = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


class DiLoCo(Optimizer):
    """Rounds of local training. The script's own optimizer of torch, the inner one, takes local.steps steps of the job. Then the round
    is pushed: the weights at its beginning minus those at its end. The servers take this difference for a gradient, and step with the
    outer optimizer (DiLoCo, Douillard et al. 2023). The model gets their new weights, and the next round begins.

        inner = torch.optim.AdamW(model.parameters(), lr=3e-4)
        outer = slackline.DiLoCo(model, worker)
        for batch in worker.batches(loader):
            loss(model, batch).backward()
            inner.step()
            inner.zero_grad()
            outer.step()

    The inner optimizer, its learning rate and its scheduler are the script's, on any device. Its state stays from round to round. A
    worker that dies loses it, and begins with a new one. The consistency mode decides which rounds make a step of the servers.

    The model keeps its parameters where they are. One more copy of the weights lies in the host's memory, in float32. Running
    statistics of batch and instance norm are pushed as they are at the end of a round, and averaged over the workers.

    A round is shorter at the end of a range of samples, for example the last one of an epoch, and where a stream ends.

    With `every="30s"` workers of unequal speed take rounds of equal time: each takes as many steps as it can, and its push counts by its
    samples (consistency.weighting). Set local.steps, the largest number of steps, to several times what the fastest worker takes in that
    time: the last round of so many steps is shorter.

    Args:
        model: As in Optimizer.
        worker: As in Optimizer. Not of a node group.
        outer: torch.optim.SGD, Adam or AdamW whose settings the servers take, as by `like` in Optimizer. Default: the job file's
            `optimizer` if it has an lr, else SGD with lr=0.7, momentum=0.9 and nesterov=True, as in DiLoCo.
        every: End of a round: a number of steps, 1 to local.steps; or a time, such as "30s", "500ms", "10min" or "1h": the round ends with the
            first step that ends so long after the round's first step. Default: local.steps.

    Attributes:
        param_groups (list): As in Optimizer, of the outer optimizer. A scheduler of torch may set `lr`.

    Raises:
        FailedPreconditionError: The job has no local.steps, the worker is a node group, or it has an optimizer already.
        ValueError: `every` is neither a number of steps from 1 to local.steps nor a time.
        others: As Optimizer.
    """

    _in_rounds = True

    def __init__(
        self,
        model: nn.Module,
        worker: Worker,
        *,
        outer: Optional[torch.optim.Optimizer] = None,
        every: Optional[Union[int, str]] = None,
    ) -> None:
        if worker._node is not None:
            raise FailedPreconditionError("a node group has no local training: start the scripts without --node-group")
        if outer is None and not worker._job.names_lr:
            trained = [one for one in model.parameters() if one.requires_grad] if isinstance(model, nn.Module) else []
            outer = torch.optim.SGD(trained, lr=0.7, momentum=0.9, nesterov=True) if trained else None
        self._most_steps, self._seconds = _end_of_round(every, worker.local_steps)
        super().__init__(model, worker, like=outer, accumulate=1, overlap=False)
        self._warned_of_standstill = False
        self._begin_round()

    def step(  # type: ignore[override,unused-ignore]
        self, closure: Optional[Callable[[], torch.Tensor]] = None, *, samples: Optional[int] = None
    ) -> Optional[torch.Tensor]:
        """Call this after each step of the inner optimizer. At the end of a round it pushes, waits as the consistency mode says, and
        writes the newest weights into the model. Otherwise it only counts, and tells the scheduler that the script is alive.

        The loss and the accuracy of a round are means over the samples of what report() was given. Once the job is over, step() does
        nothing.

        Args:
            closure: Not allowed: it is the inner optimizer's.
            samples: Not allowed: those that the sampler gave count.

        Returns:
            None.

        Raises:
            InternalError: A weight or a running statistic is not finite. No part of the round is applied.
            ValueError: `closure` or `samples` is given.
            others: As Optimizer.step().
        """
        if closure is not None or samples is not None:
            raise ValueError("found an argument of step(); allowed is none: closures and gradients are the inner optimizer's")
        worker = self._worker
        if worker.done:
            return None
        worker._before_step()
        if self._steps == 0:
            self._begun = time.monotonic()
        self._steps += 1
        self._add_figures()
        worker._note_place()
        over = self._steps >= self._most_steps or time.monotonic() - self._begun >= self._seconds
        if over or worker._has_all_samples():
            self._push_round()
        else:
            worker.alive()
        return None

    # --- what the worker calls ---

    def _finish_round(self) -> bool:
        if self._steps == 0:
            return False
        self._push_round()
        return True

    # --- within ---

    def _push_round(self) -> None:
        worker = self._worker
        rates = self._job_groups.rates(self.param_groups)
        self._write_round()
        reported = worker._loss, worker._accuracy
        worker._loss, worker._accuracy = (figure.mean() for figure in self._figures)
        try:
            worker._step(None, None, rates, self._steps)
        finally:
            worker._loss, worker._accuracy = reported
            self._begin_round()
        self._take_weights()

    def _begin_round(self) -> None:
        self._steps = 0
        self._seen = self._worker._given  # samples whose figures count already
        self._figures = (_Mean(), _Mean())  # of loss and accuracy

    def _add_figures(self) -> None:
        worker = self._worker
        # Samples that a loop has left without a step are drawn again.
        samples, self._seen = max(0, worker._given - self._seen), worker._given
        for mean, figure in zip(self._figures, (worker._loss, worker._accuracy)):
            mean.add(figure, samples)

    def _write_round(self) -> None:
        """Fills the push: how far the parameters have come from where the round began, and the running statistics."""
        self._begin_push()
        with torch.no_grad():
            self._write_averages()
            self._copies.out([(push, one.detach()) for push, one in zip(self._gradients, self._parameters)])
        self._copies.settle()
        moved = False
        with torch.no_grad():
            for one, push, start in zip(self._parameters, self._gradients, self._weights[self._part]):
                # As the model had it: what rounding to its type has cost is no step of the script's.
                begin = start if one.dtype == torch.float32 else start.to(one.dtype).to(torch.float32)
                torch.sub(begin, push, out=push)
                moved = moved or bool(push.any())
        if not moved and not self._warned_of_standstill:
            self._warned_of_standstill = True
            warnings.warn(
                f"no parameter has changed in the {self._steps} steps of a round: does the inner optimizer have the parameters of this "
                "model, and is outer.step() called after its step()?",
                stacklevel=4,
            )


def _end_of_round(every: Optional[Union[int, str]], most: int) -> tuple[int, float]:
    """The steps and the seconds of which the first that is reached ends a round. `most`: local.steps; 0 is refused elsewhere."""
    if every is None or most == 0:
        return most, float("inf")
    if isinstance(every, str):
        parts = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|min|h)", every)
        if parts is not None and float(parts[1]) > 0:
            return most, float(parts[1]) * _UNITS_S[parts[2]]
    elif isinstance(every, int) and not isinstance(every, bool) and 1 <= every <= most:
        return every, float("inf")
    raise ValueError(
        f"every: found {every!r}; allowed is a number of steps, 1 to {most} (local.steps), or a time such as '30s', '500ms', '10min' "
        "or '1h'"
    )


class _Mean:
    """Mean of a figure over samples. Samples without the figure do not count."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._samples = 0

    def add(self, figure: Optional[float], samples: int) -> None:
        if figure is not None:
            self._sum += figure * samples
            self._samples += samples

    def mean(self) -> Optional[float]:
        return self._sum / self._samples if self._samples else None
