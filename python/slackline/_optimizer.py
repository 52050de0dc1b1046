"""The model's side of the exchange: parameters in one flat vector, gradients that leave while backward runs."""

from __future__ import annotations

import functools
import math
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

import torch
from torch import nn

if TYPE_CHECKING:
    from ._worker import Worker

# Their running statistics are averaged over the workers; other buffers stay each worker's own.
_AVERAGED = (nn.modules.batchnorm._NormBase,)


class Optimizer:
    """Pushes gradients to the servers, which own the update rule, and writes the weights that come back into the model.

    In the place of a torch.optim.Optimizer. The model's trained parameters become views of one flat float32 vector, in
    the order of named_parameters(); running means and variances of batch norm follow, and are averaged over the
    workers as the C++ worker's are. Frozen parameters (requires_grad is False) and other buffers stay as they are, and
    must be alike in all workers. The script must not write to trained parameters once the worker has joined.

    accumulate: backward passes of a step; None: the job's training.accumulate. Their gradients add up, as in PyTorch.
    overlap: gradients may leave during the last backward pass of a step; where the script changes gradients between
        backward and step(), it must be False.

    Raises TypeError where a parameter is no dense float32 CPU tensor or would get sparse gradients, ValueError where
    nothing is to be trained or `accumulate` is below 1.
    """

    def __init__(
        self, model: nn.Module, worker: Worker, *, accumulate: Optional[int] = None, overlap: bool = True
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"found a model of type {type(model).__name__}; allowed is a torch.nn.Module")
        self.accumulate = worker.accumulate if accumulate is None else int(accumulate)
        if self.accumulate < 1:
            raise ValueError(f"found accumulate={accumulate}; allowed is 1 and more")
        self._overlap = bool(overlap)
        self._model = model
        self._worker = worker
        named = list(model.named_parameters())
        trained = [(name, one) for name, one in named if one.requires_grad]
        self._frozen = [(name, one) for name, one in named if not one.requires_grad]
        if not trained:
            raise ValueError(
                f"the model has {len(named)} parameters, of which none requires a gradient; at least one must"
            )
        for name, one in trained:
            _check_parameter(name, one)
        _check_layers(model)
        self._names = [name for name, _ in trained]
        self._parameters = [one for _, one in trained]
        averaged = list(_averaged_buffers(model))
        self._buffers = [one for _, one in averaged]
        self._tensors = [(name, list(one.shape), True) for name, one in trained]
        self._tensors += [(name, list(one.shape), False) for name, one in averaged]
        self._offsets = [0]
        for _, shape, _ in self._tensors:
            self._offsets.append(self._offsets[-1] + math.prod(shape))
        self._trained = self._offsets[len(self._parameters)]
        self._flat = torch.empty(self._offsets[-1], dtype=torch.float32)
        self._agreed = self._views(self._flat, len(self._parameters))
        with torch.no_grad():
            for one, view in zip(self._parameters, self._views(self._flat)):
                view.copy_(one)
                one.data = view
            for buffer, view in zip(self._buffers, self._agreed):
                view.copy_(buffer)
        # Once the worker knows the job's data: where gradients go, and what becomes of averaged buffers.
        self._gradients: list[torch.Tensor] = []
        self._averages: list[torch.Tensor] = []
        self._begin_step()
        # By a weak reference: the parameters are kept by this object.
        for i, one in enumerate(self._parameters):
            hook = functools.partial(_call_accumulated, weakref.ref(self), i)
            one.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call,unused-ignore]
        self.param_groups: list[dict[str, Any]] = [{"params": self._parameters}]
        worker._attach(self)

    # --- what a script calls ---

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients, and begins a step. `set_to_none` is for those who pass it; there is no other way."""
        del set_to_none
        for one in self._parameters:
            one.grad = None
        if not self._leaving:
            self._begin_step()

    def step(
        self, closure: Optional[Callable[[], torch.Tensor]] = None, *, samples: Optional[int] = None
    ) -> Optional[torch.Tensor]:
        """Pushes the gradients, waits as the consistency mode has it, and has the newest weights in the model.

        closure: makes the gradients first, as torch.optim has it; the loss that it returns is reported, and returned.
        samples: that the gradients come from. None: those that the worker's sampler has given since the last step.

        A parameter without a gradient is pushed as zeros. Once the job is over it does nothing. Raises InternalError
        where a gradient is not finite (nothing is pushed then), and what the exchange reports.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            self._worker.report(loss=float(loss))
        for name, one in self._frozen:
            if one.requires_grad:
                raise RuntimeError(
                    f"parameter {name} was frozen when the optimizer was made, and now requires a gradient"
                )
        if self._worker.done:
            self._begin_step()
            return loss
        self._worker._before_step()
        with torch.no_grad():
            if not self._leaving:
                self._write_averages()
            for one, view in zip(self._parameters, self._gradients):
                if one.grad is None:
                    view.zero_()
                elif one.grad is not view:
                    view.copy_(one.grad)
        try:
            self._worker._step(samples)
        finally:
            self._begin_step()
        self._take_averages()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Where the worker is. Momentum and the like are the servers', and kept in the job's checkpoints."""
        return {"state": {}, "param_groups": [{"params": list(self._names)}], "clock": self._worker.clock}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Checks that it is of the same parameters; there is nothing to load: `slackline resume` goes on with a job.

        Raises ValueError where the names differ.
        """
        names = state["param_groups"][0]["params"]
        if list(names) != self._names:
            differs = next((a, b) for a, b in zip(list(names) + [None], self._names + [None]) if a != b)
            raise ValueError(f"the state is of parameter {differs[0]} where this model has {differs[1]}")

    @property
    def tensors(self) -> list[tuple[str, list[int], bool]]:
        """Name, shape, and whether it is trained, of all that is exchanged, in the order of the flat vector."""
        return list(self._tensors)

    # --- what the worker calls ---

    def _bind(self, push: torch.Tensor) -> None:
        """`push`: the flat vector that is pushed."""
        self._push = push
        self._gradients = self._views(push)
        self._averages = self._views(push, len(self._parameters))

    def _take_averages(self) -> None:
        """Weights have come: those that are no views follow."""
        with torch.no_grad():
            for one, view in zip(self._buffers, self._agreed):
                one.copy_(view)

    # --- within ---

    def _views(self, flat: torch.Tensor, first: int = 0) -> list[torch.Tensor]:
        """Of `flat`: the trained tensors, or with `first` those from that number on, in their shapes."""
        last = len(self._parameters) if first == 0 else len(self._tensors)
        return [flat[self._offsets[i] : self._offsets[i + 1]].view(self._tensors[i][1]) for i in range(first, last)]

    def _begin_step(self) -> None:
        self._passes = [0] * len(self._parameters)
        self._first_complete = len(self._parameters)  # it and all trained tensors behind it are
        self._leaving = False

    def _write_averages(self) -> None:
        for one, view in zip(self._buffers, self._averages):
            view.copy_(one)

    def _accumulated(self, index: int, parameter: torch.Tensor) -> None:
        """A backward pass has made a gradient."""
        gradient = parameter.grad
        if gradient is None:
            return
        if gradient.layout != torch.strided:
            raise TypeError(
                f"parameter {self._names[index]} has a gradient of layout {gradient.layout}; allowed are dense ones "
                "(torch.nn.Embedding with sparse=False)"
            )
        if not self._gradients:
            return
        self._passes[index] += 1
        if self._passes[index] > self.accumulate and self._leaving:
            raise RuntimeError(
                f"parameter {self._names[index]} got a gradient in backward pass number {self._passes[index]} of a "
                f"step, while gradients were leaving after {self.accumulate}: say accumulate= when the optimizer is made, or "
                "overlap=False where some passes are followed by no step()"
            )
        view = self._gradients[index]
        if gradient is not view:
            view.copy_(gradient.detach())
            parameter.grad = view
        if self._overlap and self._passes[index] == self.accumulate:
            self._advance()

    def _advance(self) -> None:
        """Sends off what is complete from the end on."""
        before = self._first_complete
        while self._first_complete > 0 and self._passes[self._first_complete - 1] == self.accumulate:
            self._first_complete -= 1
        if self._first_complete == before or not self._worker._may_leave_early():
            return
        if not self._leaving:
            self._leaving = True
            with torch.no_grad():
                self._write_averages()
        self._worker._ready(self._offsets[self._first_complete])


def _call_accumulated(optimizer: weakref.ref[Optimizer], index: int, parameter: torch.Tensor) -> None:
    alive = optimizer()
    if alive is not None:
        alive._accumulated(index, parameter)


def _averaged_buffers(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Running statistics, by name; shared ones once."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        if not isinstance(module, _AVERAGED):
            continue
        for name in ("running_mean", "running_var"):
            buffer = getattr(module, name, None)
            if buffer is not None and id(buffer) not in seen:
                seen.add(id(buffer))
                yield (f"{prefix}.{name}" if prefix else name), buffer


def _check_parameter(name: str, parameter: torch.Tensor) -> None:
    if parameter.layout != torch.strided:
        raise TypeError(f"parameter {name} has layout {parameter.layout}; allowed are dense ones (torch.strided)")
    if parameter.dtype != torch.float32:
        raise TypeError(
            f"parameter {name} is {parameter.dtype}; allowed is torch.float32 (torch.autocast computes in others)"
        )
    if parameter.device.type != "cpu":
        raise TypeError(f"parameter {name} is on {parameter.device}; allowed is cpu")
    if parameter.numel() == 0:
        raise ValueError(f"parameter {name} has shape {tuple(parameter.shape)}; allowed is at least one element")


def _check_layers(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse and module.weight.requires_grad:
            raise TypeError(
                f"layer {name or type(module).__name__} makes sparse gradients; allowed are dense ones (sparse=False)"
            )
