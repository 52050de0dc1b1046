"""The model's side of the exchange: parameters in one flat vector, gradients that leave while backward runs."""

from __future__ import annotations

import functools
import math
import warnings
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

import torch
from torch import nn

from . import _param_groups, _staging
from ._like import Like
from ._wrappers import check_whole, names_without_wrappers, reduces_gradients

if TYPE_CHECKING:
    from ._worker import Worker

# Their running statistics are averaged over the workers; other buffers stay each worker's own.
_AVERAGED = (nn.modules.batchnorm._NormBase,)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Optimizer(torch.optim.Optimizer):
    """Pushes gradients to the servers, which apply the update rule, and writes the new weights into the model.

    Use it in place of another torch.optim.Optimizer. The scheme is that of the parameter server (Li et al. 2014). The servers take
    kind, learning rate, momentum, weight decay and groups from `like`, or without it from the job's `optimizer` settings.

    The learning rate is that, by the job's schedule, until the script sets `lr` in a group of `param_groups`. From then on each
    push names the rates of all groups, and the servers use them in place of the job's. Schedulers of torch.optim.lr_scheduler
    set them. Pushes that share a step use the mean of their rates.

    The trained parameters become views of one flat float32 vector, in the order of named_parameters(). The vector ends with
    the running means and variances of batch and instance norm, which the servers average over the workers. It has one element
    for each element of these tensors. Parameters on other devices than the CPU, and those in bfloat16 or float16, stay as they
    are and are copied: the servers keep and update float32 weights, whose rounded values the model gets.

    Names are those of the model without torch.compile() and DistributedDataParallel.

    Frozen parameters and other buffers stay as they are, and must be alike in all workers. The script must not write to
    trained parameters once the worker has joined.

    Args:
        model: Model with at least one parameter that requires a gradient.
        worker: Worker of this process. It takes one optimizer.
        like: Optimizer of torch whose settings the servers take: a torch.optim.SGD, Adam or AdamW that has all trained parameters
            of `model`. Its groups may differ in lr and weight_decay. It takes no steps itself. All workers give the same settings.
            Those that the job file names, too, must agree with it, and it names no optimizer.groups. Default: the job file's.
        accumulate: Backward passes of a step, whose gradients add up. Default: the job's training.accumulate.
        overlap: Let gradients of models of 16 MiB and more leave during the last backward pass of a step. Pass False if the
            script changes gradients before step(), as torch.amp.GradScaler and torch.nn.utils.clip_grad_norm_ do. With
            parameters on several devices, and in a node group, gradients leave in step() only.

    Attributes:
        param_groups (list): With `like`, its groups. Otherwise one dict for the parameters in no group of the job's
            optimizer.groups, whose `name` is "*", then one for each group with parameters, whose `name` is its pattern. `params`
            are the parameters. `lr` is the job's optimizer.lr times the group's lr_factor, until the script sets it. With `like`,
            to set anything but `lr` to another value raises ValueError.

    With a torch.amp.GradScaler, scaler.step(optimizer) divides the gradients by the scale. Where one is not finite, nothing is
    pushed, and the samples of the step are left out.

    Raises:
        TypeError: `model` is no Module, `like` is no optimizer that the servers have, or a trained parameter is not a whole, dense tensor of float32, bfloat16 or float16, or
            gets sparse gradients.
        ValueError: No parameter requires a gradient, a trained parameter is empty, `accumulate` is below 1, the model is a
            DistributedDataParallel over several processes, or `like` has a setting that the servers do not, has taken steps, or
            has other parameters than the trained ones.
        InvalidArgumentError: The job file names another value of a setting of `like`.
        FailedPreconditionError: The worker has an optimizer already, or the job trains in rounds (local.steps): see DiLoCo.
    """

    # True for rounds of local training: the script's own optimizer steps the parameters, which are exchanged by copies.
    _in_rounds = False

    def __init__(
        self,
        model: nn.Module,
        worker: Worker,
        *,
        like: Optional[torch.optim.Optimizer] = None,
        accumulate: Optional[int] = None,
        overlap: bool = True,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"found a model of type {type(model).__name__}; allowed is a torch.nn.Module")
        worker._check_rounds(self._in_rounds)
        self.accumulate = worker.accumulate if accumulate is None else int(accumulate)
        if self.accumulate < 1:
            raise ValueError(f"found accumulate={accumulate}; allowed is 1 and more")
        self._model = model
        self._worker = worker
        own_name = names_without_wrappers(model)
        named = [(own_name(name), one) for name, one in model.named_parameters()]
        trained = [(name, one) for name, one in named if one.requires_grad]
        self._frozen = [(name, one) for name, one in named if not one.requires_grad]
        if not trained:
            raise ValueError(
                f"the model has {len(named)} parameters, of which none requires a gradient; at least one must"
            )
        for name, one in trained:
            _check_parameter(name, one)
        _check_layers(model)
        self._job_groups = _param_groups.JobGroups(worker._job, trained, None if like is None else Like(like, named))
        self._may_add_groups = True
        super().__init__(self._job_groups.make(), {"lr": self._job_groups.lr} if like is None else dict(like.defaults))
        self._may_add_groups = False
        self._names = [name for name, _ in trained]
        self._parameters = [one for _, one in trained]
        averaged = [(own_name(name), one) for name, one in _averaged_buffers(model)]
        self._buffers = [one for _, one in averaged]
        self._tensors = [(name, list(one.shape), True) for name, one in trained]
        self._tensors += [(name, list(one.shape), False) for name, one in averaged]
        self._offsets = [0]
        for _, shape, _ in self._tensors:
            self._offsets.append(self._offsets[-1] + math.prod(shape))
        self._trained = self._offsets[len(self._parameters)]
        tensors = [*self._parameters, *self._buffers]
        self._devices = [one.device for one in tensors]
        self._overlap = (
            bool(overlap) and len(set(self._devices)) == 1 and worker._node is None and not reduces_gradients(model)
        )
        self._staged = [self._in_rounds or _staging.is_staged(one) for one in tensors]
        self._copies = _staging.Copies(dict.fromkeys(d for d, staged in zip(self._devices, self._staged) if staged))
        # For each step that may be in flight a vector, which the weights after it are written to. Those that the model
        # has now are in one of them.
        self._flats = [self._copies.empty(self._offsets[-1]) for _ in range(worker._window)]
        self._weights = [self._views(flat) for flat in self._flats]
        self._agreed = [self._views(flat, len(self._parameters)) for flat in self._flats]
        self._part = 0
        with torch.no_grad():
            for one, view, staged in zip(self._parameters, self._weights[0], self._staged):
                view.copy_(one)
                if not staged:
                    one.data = view
        # Once the worker knows the job's data: where gradients go, and what becomes of averaged buffers; for each step
        # that may be in flight, and for the next one.
        self._all_gradients: list[list[torch.Tensor]] = []
        self._all_averages: list[list[torch.Tensor]] = []
        self._gradients: list[torch.Tensor] = []
        self._averages: list[torch.Tensor] = []
        self._begin_step()
        self._warned = self._warned_of_none = False
        # By a weak reference: the parameters are kept by this object.
        for i, one in enumerate([] if self._in_rounds else self._parameters):
            hook = functools.partial(_call_accumulated, weakref.ref(self), i)
            one.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call,unused-ignore]
        worker._attach(self)

    # --- what a script calls ---

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Sets all gradients to None, and begins a step.

        Args:
            set_to_none: Ignored; torch.optim has it.
        """
        del set_to_none
        for one in self._parameters:
            one.grad = None
        if not self._leaving:
            self._begin_step()

    def step(  # type: ignore[override,unused-ignore]
        self, closure: Optional[Callable[[], torch.Tensor]] = None, *, samples: Optional[int] = None
    ) -> Optional[torch.Tensor]:
        """Pushes the gradients, waits as the consistency mode says, and writes the newest weights into the model.

        A parameter without a gradient pushes zeros. Once the job is over, step() does nothing. With wire.window above 1,
        step() waits for an earlier push and raises its errors; gradients are None afterwards.

        Args:
            closure: Computes gradients and returns the loss, as in torch.optim. step() reports the loss.
            samples: Number of samples behind the gradients. Default: those that the sampler gave since the last step.

        Returns:
            The loss of `closure`; None without one.

        Raises:
            InternalError: A gradient or a running statistic is not finite. No part of the step is applied.
            FailedPreconditionError: The worker has no sampler, the step no samples, or the reported loss is not finite.
            RuntimeError: A frozen parameter now requires a gradient, or a gradient was changed after it had left.
            ValueError: A learning rate that the script has set is no finite number from 0.
            UnimplementedError: The script has set a learning rate, and a server is too old to use it.
            UnavailableError: A server or the scheduler, which the message names, cannot be reached.
            DeadlineExceededError: A server or the scheduler, which the message names, is silent for too long.
            Error: The exchange failed otherwise.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            if loss is not None:
                self._worker.report(loss=float(loss))
        for name, one in self._frozen:
            if one.requires_grad:
                raise RuntimeError(
                    f"parameter {name} was frozen when the optimizer was made, and now requires a gradient"
                )
        if self._worker.done:
            self._begin_step()
            return loss
        rates = self._job_groups.rates(self.param_groups)
        if samples is None and not self._warned:
            self._warn_of_batches()
        self._worker._before_step()
        self._check_unchanged()
        node = self._worker._node
        overflowed = self._overflowed()
        if node is not None:
            overflowed = node.agree(samples, rates, overflowed)
        if overflowed:
            self._worker._skip_step(samples)
            self._begin_step()
            return loss
        self._begin_push()
        with torch.no_grad():
            if node is not None:
                node.add_up()
            elif not self._leaving:
                self._write_averages()
            copies = []
            # A node group has its gradients there already.
            for i, (one, view) in enumerate(zip(self._parameters, self._gradients if node is None else ())):
                if self._leaving and self._staged[i] and i >= self._first_complete:
                    continue  # on its way to the host
                if one.grad is None:
                    view.zero_()
                elif self._staged[i]:
                    copies.append((view, one.grad))
                elif one.grad is not view:
                    view.copy_(one.grad)
            self._copies.out(copies)
            norm = self._norm_on_devices() if node is None else None
        self._copies.settle()
        if not self._leaving and not self._warned_of_none and all(one.grad is None for one in self._parameters):
            self._warned_of_none = True
            warnings.warn(
                "no parameter has a gradient, and zeros are pushed: is the optimizer of the model that is trained, and comes "
                "zero_grad() before backward()?",
                stacklevel=3,
            )
        try:
            self._worker._step(samples, norm, rates)
        finally:
            self._begin_step()
        if len(self._flats) > 1:
            # The memory belongs to the push now.
            for one in self._parameters:
                one.grad = None
        self._take_weights()
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Always fails: the optimizer has the parameters that the model had when it was made. Groups are in optimizer.groups.

        Raises:
            RuntimeError: Always.
        """
        if self._may_add_groups:
            super().add_param_group(_param_groups.Group(param_group))
            return
        raise RuntimeError(
            "parameters are those that the model had when the optimizer was made: make it when the model is whole; settings "
            "by group are the job's optimizer.groups, or those of like="
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a slackline.Optimizer is of its worker, and cannot be copied or pickled: save optimizer.state_dict() and "
            "model.state_dict()"
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns the parameters' names, the learning rates that the script has set, and the worker's clock.

        Momentum and the like are in the job's checkpoints.
        """
        groups = [
            {**_param_groups.settings(group), "params": names}
            for group, names in zip(self.param_groups, self._group_names())
        ]
        return {"state": {}, "param_groups": groups, "clock": self._worker.clock}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Checks that `state_dict` has the names of this model's parameters, and sets the learning rates that are in it.

        Loads nothing else: `slackline resume` continues a job.

        Args:
            state_dict: Result of state_dict().

        Raises:
            ValueError: The names differ.
        """
        saved = state_dict["param_groups"]
        # States of earlier versions have all parameters in one group.
        names = sorted(name for group in saved for name in group["params"])
        own = sorted(name for group in self._group_names() for name in group)
        if names != own:
            differs = next((a, b) for a, b in zip([*names, None], [*own, None]) if a != b)
            raise ValueError(f"the state is of parameter {differs[0]} where this model has {differs[1]}")
        for group, group_names, other in zip(self.param_groups, self._group_names(), saved):
            if other["params"] == group_names:
                group.update({key: value for key, value in other.items() if key != "params"})

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """What torch.amp.GradScaler asks before a step. It then says in attributes what is to be done to gradients, for as long as
        step() takes, which it calls even where they are not finite."""
        if self._overlap and self._worker._may_leave_early():
            raise RuntimeError(
                "gradients leave during backward, still scaled: with a GradScaler the optimizer is made with overlap=False"
            )
        return True

    def _overflowed(self) -> bool:
        """Takes the scale of a GradScaler off the gradients, unless one of them is not finite."""
        scale, found = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        if found is not None and float(found):
            return True
        if scale is not None:
            inverse = float(1 / scale.double())
            gradients = [one.grad for one in self._parameters if one.grad is not None]
            with torch.no_grad():
                torch._foreach_mul_(gradients, inverse)  # pyright: ignore[reportPrivateImportUsage]
        return False

    @property
    def tensors(self) -> list[tuple[str, list[int], bool]]:
        """Name, shape, and whether it is trained, for each tensor of the flat vector, in order."""
        return list(self._tensors)

    # --- what the worker calls ---

    def _gather(self) -> list[torch.Tensor]:
        """The weights that the model has now, as the worker begins with them, in the first of the flat vectors."""
        own_name = names_without_wrappers(self._model)
        named = {own_name(name): one for name, one in self._model.named_parameters()}
        for name, one, device in zip(self._names, self._parameters, self._devices):
            if named.get(name) is not one or one.device != device:
                raise RuntimeError(
                    f"parameter {name} is another tensor than when the optimizer was made, or on another device than "
                    f"{device}: make the optimizer when the model is where it stays"
                )
        known = {id(one) for one in [*self._parameters, *(one for _, one in self._frozen)]}
        if new := [name for name, one in named.items() if one.requires_grad and id(one) not in known]:
            warnings.warn(
                f"parameter {new[0]} has come into the model since the optimizer was made, and is not trained: make the "
                "optimizer when the model is whole",
                stacklevel=2,
            )
        with torch.no_grad():
            for one, view, staged in zip(self._parameters, self._weights[0], self._staged):
                if staged:
                    view.copy_(one)
            for buffer, view in zip(self._buffers, self._agreed[0]):
                view.copy_(buffer)
        return self._flats

    def _bind(self, pushes: list[torch.Tensor]) -> None:
        """`pushes`: the flat vectors that are pushed, in turn."""
        for push in pushes:
            self._copies.pin(push)
        # Views made through `data` count their own writes, each alone.
        self._all_gradients = [[view.data for view in self._views(push)] for push in pushes]
        self._all_averages = [self._views(push, len(self._parameters)) for push in pushes]
        self._begin_push()

    def _work_changed(self) -> None:
        """Steps in flight are finished, or lost: the next one's memory may be another."""
        self._begin_push()

    def _finish_round(self) -> bool:
        """Pushes a round of local training that has begun. Returns whether there was one."""
        return False

    def _settle(self) -> None:
        """Before the worker writes to weights."""
        self._copies.settle()

    def _take_weights(self) -> None:
        """Weights have come: the model's follow."""
        if self._worker._node is not None and self._worker._node.pull():
            return
        part = self._worker._parts()[1]
        back = []
        with torch.no_grad():
            if part != self._part or any(self._staged):
                for i, (one, view) in enumerate(zip(self._parameters, self._weights[part])):
                    if self._staged[i]:
                        back.append((one.data, view))
                    elif part != self._part:
                        one.data = view
            self._part = part
            for i, (buffer, view) in enumerate(zip(self._buffers, self._agreed[part]), len(self._parameters)):
                if self._staged[i]:
                    back.append((buffer, view))
                else:
                    buffer.copy_(view)
            self._copies.back(back)

    # --- within ---

    def _group_names(self) -> list[list[str]]:
        """Names of the parameters of each group."""
        names = {id(one): name for name, one in zip(self._names, self._parameters)}
        return [[names[id(one)] for one in group["params"]] for group in self.param_groups]

    def _check_unchanged(self) -> None:
        """Raises if the script has changed gradients that had left."""
        for index, left in self._left.items():
            gradient = self._parameters[index].grad
            if gradient is not None and (gradient is not left[0] or gradient._version != left[1]):
                raise RuntimeError(
                    f"the gradient of parameter {self._names[index]} was changed after it had left during backward, by "
                    "clip_grad_norm_ for example: make the optimizer with overlap=False. Nothing was applied"
                )

    def _views(self, flat: torch.Tensor, first: int = 0) -> list[torch.Tensor]:
        """Of `flat`: the trained tensors, or with `first` those from that number on, in their shapes."""
        last = len(self._parameters) if first == 0 else len(self._tensors)
        return [flat[self._offsets[i] : self._offsets[i + 1]].view(self._tensors[i][1]) for i in range(first, last)]

    def _begin_step(self) -> None:
        self._passes = [0] * len(self._parameters)
        # Of each parameter: from how many batches its gradient is, and up to which sample it was last.
        self._batches = [0] * len(self._parameters)
        self._batch_ends = [-1] * len(self._parameters)
        self._first_complete = len(self._parameters)  # it and all trained tensors behind it are
        self._leaving = False
        # Gradients that have left, and how often each had been written to, by number of the parameter.
        self._left: dict[int, tuple[torch.Tensor, int]] = {}
        # Copies to the host, in their order, each with where what is there begins once it is over.
        self._on_the_way: deque[tuple[Callable[[bool], bool], int]] = deque()
        if self._all_gradients:
            self._begin_push()

    def _begin_push(self) -> None:
        """To the memory that is the next step's."""
        part = self._worker._parts()[0]
        self._gradients, self._averages = self._all_gradients[part], self._all_averages[part]

    def _norm_on_devices(self) -> Optional[float]:
        """L2 norm of the gradients, measured where they are, which saves a pass over the host's memory. None where the host must
        measure it: they are there, or float32 does not hold the norm."""
        gradients = [one.grad for one in self._parameters if one.grad is not None]
        get_total_norm = getattr(nn.utils, "get_total_norm", None)  # torch 2.6 and newer
        if get_total_norm is None or not gradients or not all(map(_staging.is_staged, gradients)):
            return None
        if any(one.dtype != torch.float32 for one in gradients):
            return None  # their sums would be rounded to a few digits
        norm = float(get_total_norm(gradients))
        return norm if math.isfinite(norm) else None

    def _write_averages(self) -> None:
        copies = []
        for i, (one, view) in enumerate(zip(self._buffers, self._averages), len(self._parameters)):
            if self._staged[i]:
                copies.append((view, one))
            else:
                view.copy_(one)
        if copies:
            self._on_the_way.append((self._copies.out(copies), self._trained))

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
        self._worker._check_idle("backward()")
        self._passes[index] += 1
        if self._passes[index] > self.accumulate and self._leaving:
            raise RuntimeError(
                f"parameter {self._names[index]} got a gradient in backward pass number {self._passes[index]} of a "
                f"step, while gradients were leaving after {self.accumulate}: say accumulate= when the optimizer is made, or "
                "overlap=False where some passes are followed by no step()"
            )
        view = self._gradients[index]
        if not self._staged[index]:
            if gradient is not view:
                view.copy_(gradient.detach())
                parameter.grad = view
                self._batches[index] = 0  # it is new: what was there before, the script has thrown away
            if self._batch_ends[index] != (end := self._worker._given):
                self._batch_ends[index] = end
                self._batches[index] += 1
        if self._overlap and self._passes[index] == self.accumulate:
            self._advance()

    def _warn_of_batches(self) -> None:
        """Once: where a script adds up the gradients of more batches than the job knows of. Several passes over one batch, and
        batches of another size than the job's, are nobody's mistake."""
        batches, worker = max(self._batches), self._worker
        samples, most = worker._given - worker._taken, worker.batch_size * worker.accumulate
        if batches <= max(self.accumulate, worker.accumulate) or samples <= most:
            return
        self._warned = True
        warnings.warn(
            f"this step has the gradients of {batches} batches, {samples} samples, and the job's training.batch_size x "
            f"training.accumulate is {most}: it counts as {samples / most:g} steps' samples, under async and ssp in the learning "
            f"rate, and gradients add up besides. The job file should say training.accumulate: {batches}",
            stacklevel=4,
        )

    def _advance(self) -> None:
        """Sends off what is complete from the end on."""
        before = self._first_complete
        while self._first_complete > 0 and self._passes[self._first_complete - 1] == self.accumulate:
            self._first_complete -= 1
        if self._first_complete == before or not self._worker._may_leave_early():
            return
        if not self._leaving:
            self._leaving = True
            # From the first one that is complete on.
            before = len(self._parameters)
            with torch.no_grad():
                self._write_averages()
        self._leave(before)

    def _leave(self, before: int) -> None:
        """What is complete in front of `before` leaves: at once, or when a later one does and its copy is over."""
        copies = []
        for i in range(self._first_complete, before):
            gradient = self._parameters[i].grad
            if gradient is not None:
                self._left[i] = (gradient, gradient._version)
            if self._staged[i] and gradient is not None:
                copies.append((self._gradients[i], gradient.detach()))
        over = self._copies.out(copies) if copies else _is_over
        self._on_the_way.append((over, self._offsets[self._first_complete]))
        there = None
        while self._on_the_way and self._on_the_way[0][0](False):
            there = self._on_the_way.popleft()[1]
        if there is not None:
            self._worker._ready(there)


def _is_over(wait: bool) -> bool:
    del wait
    return True


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
    if isinstance(parameter, nn.parameter.UninitializedParameter):
        raise TypeError(f"parameter {name} has no shape yet, as its layer is lazy: call the model once before")
    check_whole(name, parameter)
    if parameter.layout != torch.strided:
        raise TypeError(f"parameter {name} has layout {parameter.layout}; allowed are dense ones (torch.strided)")
    if parameter.dtype not in _DTYPES:
        raise TypeError(f"parameter {name} is {parameter.dtype}; allowed are {', '.join(map(str, _DTYPES))}")
    if parameter.device.type == "meta":
        raise TypeError(f"parameter {name} is on meta; allowed is a device with memory")
    if parameter.numel() == 0:
        raise ValueError(f"parameter {name} has shape {tuple(parameter.shape)}; allowed is at least one element")


def _check_layers(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse and module.weight.requires_grad:
            raise TypeError(
                f"layer {name or type(module).__name__} makes sparse gradients; allowed are dense ones (sparse=False)"
            )
