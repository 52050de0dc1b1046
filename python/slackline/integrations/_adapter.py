"""slackline.Optimizer where a library insists on a torch.optim.Optimizer."""

from __future__ import annotations

from typing import Any, Callable, Optional

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

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.exchange.zero_grad(set_to_none)

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # type: ignore[override,unused-ignore]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            if loss is not None:
                self.exchange._worker.report(loss=float(loss))
        self.exchange.step()
        return loss


def check_steps(accumulate: int, worker: Worker) -> None:
    """The servers take the job's number of batches for a push, and its learning rate follows from that."""
    if accumulate != worker.accumulate:
        raise ValueError(
            f"found {accumulate} batches a step; allowed is {worker.accumulate}, the job's training.accumulate"
        )
