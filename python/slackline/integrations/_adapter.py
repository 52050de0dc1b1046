"""What libraries insist on: a torch.optim.Optimizer, and a loader that they iterate over themselves."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Optional

import torch
from torch import nn

from .. import Optimizer, Worker


class TorchOptimizer(torch.optim.Optimizer):
    """Its step() pushes, and has the newest weights in the model. It has no state and no learning rate of its own: those
    are the job's, and kept in its checkpoints.

    overlap: as slackline.Optimizer has it.
    """

    def __init__(self, model: nn.Module, worker: Worker, *, accumulate: int = 1, overlap: bool = True) -> None:
        self.exchange = Optimizer(model, worker, accumulate=accumulate, overlap=overlap)
        trained = [one for one in model.parameters() if one.requires_grad]
        super().__init__(trained, {"lr": 1.0})

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return self.exchange._step_supports_amp_scaling

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.exchange.zero_grad(set_to_none)

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # type: ignore[override,unused-ignore]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            if loss is not None:
                self.exchange._worker.report(loss=float(loss))
        # A GradScaler sets attributes of this optimizer; the exchange reads its own.
        told = {name: value for name, value in vars(self).items() if name in ("grad_scale", "found_inf")}
        vars(self.exchange).update(told)
        try:
            self.exchange.step()
        finally:
            for name in told:
                delattr(self.exchange, name)
        return loss


class Passes:
    """A DataLoader over the worker's sampler, whose own processes may draw ahead of the steps."""

    def __init__(self, worker: Worker, loader: Any) -> None:
        self._worker = worker
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return self._worker._pass(self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def check_steps(accumulate: int, worker: Worker) -> None:
    """The servers take the job's number of batches for a push, and its learning rate follows from that."""
    if accumulate != worker.accumulate:
        raise ValueError(
            f"found {accumulate} batches a step; allowed is {worker.accumulate}, the job's training.accumulate"
        )
