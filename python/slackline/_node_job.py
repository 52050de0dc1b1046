"""A job as each process of a node group has it: steps, samples and weights of the node's one worker."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, TypeVar

import torch

from . import _core
from ._ending import describe
from ._errors import AbortedError, Error, FailedPreconditionError, InvalidArgumentError
from ._node_group import LEADER_S, MEETING_S, Left, Message, NodeGroup, check_shares, pieces

if TYPE_CHECKING:
    from ._optimizer import Optimizer
    from ._worker import Worker

# The leader waits for the slowest process before a step, and names it. The others wait for the leader so much longer, in seconds.
_MARGIN_S = 30.0

Result = TypeVar("Result")
View = tuple[int, int, int, int, int, int, Optional[str]]


class NodeJob:
    """Has the methods of _core.Job, of which only the leader's is open, and does with all processes what they say.

    Every process says what it is about to do: a step, with its samples, or the draw of samples. Only if all draw, the leader
    does. Before that, processes without samples take part in the others' steps with zeros. All know the state of the job as
    of the last step or draw, so that all see its end at the same place.

    Raises:
        InvalidArgumentError: The job cannot be trained by a node of so many processes.
    """

    def __init__(self, worker: Worker, job: _core.Job, group: NodeGroup) -> None:
        check_shares(job.batch_size, job.window, group.size)
        self._worker = worker
        self._job = job
        self._group = group
        self._leads = group.rank == 0
        self._view: View = job.view()
        self.is_open = False
        # Samples of the range that all processes have taken.
        self.taken = 0
        # Argument of set_optimizer().
        self._like: Message = {}
        self._pushes: list[torch.Tensor] = []
        # The step that all have agreed on, and how many of its samples are this process's.
        self._plan: Message = {}
        self._mine = 0
        # The leader has weights that the others have not.
        self._fresh = False
        # The leader keeps the range that is trained, and whether its samples were in steps in their order.
        self._range: tuple[int, int] = (0, 0)  # samples, and those of a batch
        self._done = [0] * group.size
        self._in_order = False
        self._measuring = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)

    # --- what the worker calls, as of _core.Job ---

    @property
    def batch_size(self) -> int:
        return self._job.batch_size // self._group.size

    @property
    def leaves_early(self) -> bool:
        return False

    def view(self) -> View:
        return self._view

    def set_optimizer(
        self, settings: Sequence[str], groups: Sequence[tuple[str, float, float]], members: Sequence[int]
    ) -> None:
        self._like = {"settings": [*settings], "groups": [[*one] for one in groups], "members": [*members]}
        self._job.set_optimizer(settings, groups, members)

    def open(
        self,
        tensors: Sequence[tuple[str, Sequence[int], bool]],
        train_samples: int,
        test_samples: int,
        parameters: Sequence[torch.Tensor],
    ) -> None:
        mine = {"tensors": [[*one] for one in tensors], "train": train_samples, "test": test_samples, "like": self._like}
        if not self._leads:
            self._group.tell_all(mine)
            self._hear()
            self._pushes = [torch.zeros(parameters[0].numel())]
        else:
            for rank, other in enumerate(self._group.gather(), 1):
                if differs := _difference(mine, other):
                    raise self._group.fail(f"process {rank} of the node {differs}", InvalidArgumentError.code)
            self._lead(lambda: self._job.open(tensors, train_samples, test_samples, parameters))
            self._pushes = self._job.push_buffers()
            self._answer()
        self.is_open = True

    def push_buffers(self) -> list[torch.Tensor]:
        return self._pushes

    def next(self, range_done: bool) -> tuple[Any, ...]:
        del range_done  # it says so of this process's part
        try:
            while not self._measuring:
                if (ended := self._view[6]) is not None:
                    return ("end", ended)
                if self._meet({"samples": None})["do"] == "next":
                    break
                self._step_without_samples()
            return self._draw() if self._leads else self._hear_draw()
        except Left as left:
            return ("end", self._end(str(left)))

    def set_values(self, values: Message) -> None:
        del values  # the plan has those of all

    def step(
        self,
        samples: int,
        loss: Optional[float],
        correct: Optional[int],
        norm: Optional[float],
        seconds: float,
        rates: Sequence[float],
        local_steps: int = 0,
    ) -> str:
        del samples, loss, correct, rates, local_steps  # the plan has those of all
        if self._view[6] is not None:
            return "ended"
        try:
            if self._leads:
                plan = self._plan
                if plan["values"]:
                    self._lead(lambda: self._job.set_values(plan["values"]))
                outcome = self._lead(
                    lambda: self._job.step(plan["total"], plan["loss"], plan["correct"], norm, seconds, plan["rates"])
                )
                if outcome == "rejoined":
                    self._range = (0, 0)
                self._answer(outcome=outcome)
            else:
                outcome = self._hear()["outcome"]
        except Left as left:
            self._end(str(left))
            return "ended"
        self._fresh = True
        self.taken += self._plan["total"]
        return outcome

    def skip(self, samples: int) -> None:
        del samples
        self.taken += self._plan["total"]
        if self._leads:
            self._job.skip(self._plan["total"])

    def evaluated(self, *figures: Any) -> None:
        self._lead(lambda: self._job.evaluated(*figures))

    def alive(self) -> None:
        if self._leads:
            self._job.alive()

    def leave(self, reason: str, in_order: bool) -> bool:
        try:
            left = not self._leads or self._job.leave(reason, in_order and self._in_order)
        finally:
            self._group.leave(reason)
            self._end(reason)
        return left

    # --- what the optimizer calls ---

    def agree(self, samples: Optional[int], rates: Sequence[float], overflowed: bool) -> bool:
        """All processes that have samples begin a step. Returns whether it is left out, since one of them has overflowed or left.

        The step has the learning rates of the last process with samples: only that one has samples in every step, so that its
        schedule has taken them all.
        """
        worker = self._worker
        drawn = worker._given - worker._taken
        count = drawn if samples is None else int(samples)
        worker._check_step(count)
        figures: Message = {"loss": worker._loss, "accuracy": worker._accuracy, "values": worker._values}
        figures |= {"rates": list(rates), "overflowed": overflowed}
        try:
            plan = self._meet({"samples": count, "in_order": worker._in_order and count == drawn, **figures})
        except Left as left:
            self._end(str(left))
            return True
        return bool(plan["do"] == "skip")

    def add_up(self) -> None:
        """Adds up the gradients and running statistics of all processes, weighted by samples, into what the leader pushes."""
        optimizer = self._optimizer
        device = self._device
        shapes = [*optimizer._parameters, *optimizer._buffers]
        sources = [*(one.grad for one in optimizer._parameters), *optimizer._buffers]
        targets = [*optimizer._gradients, *optimizer._averages]
        share = self._mine / self._plan["total"]
        copies = []
        with torch.no_grad():
            for piece in pieces(targets):
                flat = torch.zeros(sum(targets[i].numel() for i in piece), device=device)
                parts = flat.split_with_sizes([targets[i].numel() for i in piece])
                for i, part in zip(piece, parts):
                    source = sources[i]
                    if share > 0 and source is not None:
                        part.view(shapes[i].shape).copy_(source)
                flat.mul_(share)
                try:
                    self._group.add_up(flat)
                except Left as left:
                    self._end(str(left))
                    return
                if self._leads:
                    copies += [(targets[i].view(-1), part) for i, part in zip(piece, parts)]
            optimizer._copies.out(copies)  # from a device
            if device.type == "cpu":
                for target, part in copies:
                    target.copy_(part)

    def pull(self) -> bool:
        """The leader's weights go to all. Returns whether the model has them; if not, they are in the flat vector."""
        if not self._fresh:
            return False
        self._fresh = False
        try:
            return self._pull(self._optimizer)
        except Left as left:
            self._end(str(left))
            return False

    def _pull(self, optimizer: Optimizer) -> bool:
        if self._device.type == "cuda":
            return self._pull_tensors(optimizer)
        self._group.spread(optimizer._flats[0])
        return False

    def _pull_tensors(self, optimizer: Optimizer) -> bool:
        """From device to device."""
        if self._leads:
            optimizer._take_weights()
        tensors = [*(one.data for one in optimizer._parameters), *optimizer._buffers]
        with torch.no_grad():
            for piece in pieces(tensors):
                flat = torch.cat([tensors[i].reshape(-1) for i in piece])
                self._group.spread(flat)
                if not self._leads:
                    for i, part in zip(piece, flat.split_with_sizes([tensors[i].numel() for i in piece])):
                        tensors[i].copy_(part.view(tensors[i].shape))
        return True

    # --- within ---

    @property
    def _optimizer(self) -> Optimizer:
        assert self._worker._optimizer is not None
        return self._worker._optimizer

    @property
    def _device(self) -> torch.device:
        """Where tensors are added up: on the GPU that has them all."""
        first, *others = set(self._optimizer._devices)
        return first if first.type == "cuda" and not others else torch.device("cpu")

    def _meet(self, said: Message) -> Message:
        """All say what they do. Returns what is done: a step, none of the step's samples, or the draw of samples."""
        self._mine = said["samples"] or 0
        if not self._leads:
            self._group.tell_all(said)
            self._plan = self._hear(MEETING_S + _MARGIN_S)
            return self._plan
        # A leader that waits for another process has not stalled.
        self._job.set_busy_elsewhere(True)
        try:
            all_said = [said, *self._group.gather()]
        finally:
            self._job.set_busy_elsewhere(False)
        self._plan = _plan(all_said)
        if self._plan["do"] != "next":
            self._note_order(all_said)
        self._group.tell_all(self._plan)
        return self._plan

    def _note_order(self, said: Sequence[Message]) -> None:
        """Whether all steps of the range had the samples that come first in it."""
        for rank, one in enumerate(said):
            self._done[rank] += one["samples"] or 0
        samples, batch = self._range
        done = sum(self._done)
        batches, rest = divmod(done, max(1, batch))
        size = self._group.size
        expected = [batches * _cut(batch, rank, size) + _cut(rest, rank, size) for rank in range(size)]
        in_order = self._plan["do"] == "step" and all(one.get("in_order", True) for one in said)
        self._in_order = self._in_order and in_order and expected == self._done and (rest == 0 or done == samples)

    def _step_without_samples(self) -> None:
        if self._plan["do"] == "skip":
            self.skip(0)
            return
        optimizer = self._optimizer
        optimizer._begin_push()
        self.add_up()
        optimizer._copies.settle()
        self.step(0, None, None, None, 0.0, ())
        optimizer._take_weights()

    def _draw(self) -> tuple[Any, ...]:
        """The leader draws for all."""
        task = self._lead(lambda: self._job.next(self._range[0] > 0))
        self._range = (0, 0)
        self._measuring = task[0] == "evaluation"
        if self._measuring:
            return task  # the others wait
        tasks = [[*task] for _ in range(self._group.size)]
        if task[0] == "range":
            _, epoch, batch, samples, begin = task
            self._range, self._in_order = (len(samples), batch), True
            self._done = [0] * self._group.size
            shares = [_share(samples, batch, rank, self._group.size) for rank in range(self._group.size)]
            tasks = [["range", epoch, batch, share, begin] for share in shares]
        self._view = self._job.view()
        self._group.tell([{"view": self._view, "task": one} for one in tasks[1:]])
        self._fresh = True
        self.taken = 0
        return tuple(tasks[0])

    def _hear_draw(self) -> tuple[Any, ...]:
        task = self._hear()["task"]
        self._fresh = True
        self.taken = 0
        return tuple(task)

    def _lead(self, call: Callable[[], Result]) -> Result:
        """Does in the leader what the others wait for. They get its error, too."""
        try:
            return call()
        except BaseException as error:
            code = error.code if isinstance(error, Error) else AbortedError.code
            self._group.fail(f"process 0 of the node failed: {describe(type(error), error)}", code)
            raise

    def _answer(self, **more: Any) -> None:
        self._view = self._job.view()
        self._group.tell_all({"view": self._view, **more})

    def _hear(self, wait_s: float = LEADER_S) -> Message:
        message = self._group.hear(wait_s)
        if "view" in message:
            self._view = tuple(message["view"])
        return message

    def _end(self, reason: str) -> str:
        if self._view[6] is None:
            self._view = (*self._view[:6], reason)
        return reason


def _plan(said: Sequence[Message]) -> Message:
    """What is done after all have said this."""
    steps = [one for one in said if one["samples"] is not None]
    if not steps:
        return {"do": "next"}
    total = sum(one["samples"] for one in steps)
    if any(one["overflowed"] for one in steps):
        return {"do": "skip", "total": total}
    accuracy = _mean(steps, "accuracy")
    correct = None if accuracy is None else round(accuracy * total)
    values = [{"samples": one["samples"], **one["values"]} for one in steps]
    named = {name: _mean(values, name) for one in steps for name in one["values"]}
    plan = {"do": "step", "total": total, "rates": steps[-1]["rates"]}
    return {**plan, "loss": _mean(steps, "loss"), "correct": correct, "values": named}


def _mean(steps: Sequence[Message], figure: str) -> Optional[float]:
    """Over the samples of those who have reported it."""
    known = [(one[figure], one["samples"]) for one in steps if one.get(figure) is not None]
    return math.fsum(value * samples for value, samples in known) / sum(samples for _, samples in known) if known else None


def _cut(count: int, rank: int, size: int) -> int:
    """How many of `count` samples are that process's."""
    return count * (rank + 1) // size - count * rank // size


def _share(samples: Sequence[int], batch: int, rank: int, size: int) -> list[int]:
    """Of each batch of the range, that process's part."""
    share: list[int] = []
    for begin in range(0, len(samples), batch):
        piece = samples[begin : begin + batch]
        share += piece[len(piece) * rank // size : len(piece) * (rank + 1) // size]
    return share


def _difference(mine: Message, other: Message) -> str:
    """In what another process's model or data differ from the leader's; empty if they are alike."""
    for what, noun in (("train", "training samples"), ("test", "test samples")):
        if mine[what] != other.get(what):
            return f"has {other.get(what)} {noun}, and process 0 has {mine[what]}"
    if mine["like"] != other.get("like"):
        return "gives other settings of the optimizer (like=) than process 0"
    theirs = other["tensors"]
    for a, b in zip([*mine["tensors"], None], [*theirs, None]):
        if a != b:
            return f"has the tensor {_name(b)} where process 0 has {_name(a)}"
    return ""


def _name(tensor: Optional[list[Any]]) -> str:
    return "none" if tensor is None else f"{tensor[0]} {tuple(tensor[1])}"
