"""Groups of parameters with learning rates, as torch.optim has them: those of the job's optimizer.groups."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Mapping, Sequence, Union

import torch
from torch import nn

from . import _core

if TYPE_CHECKING:
    from ._node_job import NodeJob

# Settings that scripts have in param_groups of torch.optim, and only the job sets here.
_THE_JOBS = ("momentum", "nesterov", "weight_decay", "betas", "eps")
_FLOAT32_MAX = torch.finfo(torch.float32).max


class Group(dict[str, Any]):
    """Of parameters, with their learning rate. Other settings that torch.optim has here are the job's.

    Attributes:
        is_set (bool): Whether the script has set lr.
    """

    is_set = False

    def __missing__(self, key: str) -> Any:
        raise KeyError(f"{key} is the job's: optimizer.{key}" if key in _THE_JOBS else key)

    def __setitem__(self, key: str, value: Any) -> None:
        if key in _THE_JOBS:
            warnings.warn(f"{key} is the job's: optimizer.{key}. To set it here changes nothing", stacklevel=2)
        self.is_set = self.is_set or key == "lr"
        super().__setitem__(key, value)

    def __ior__(self, other: Any) -> Group:  # type: ignore[override,misc]
        self.update(other)
        return self

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value


def _is_set(group: Mapping[str, Any]) -> bool:
    """Whether the script has set its lr. A plain dict is the script's own."""
    return not isinstance(group, Group) or group.is_set


def settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """What a state keeps of a group: all but the parameters, and the learning rate only where the script has set it."""
    return {key: value for key, value in group.items() if key != "params" and (key != "lr" or _is_set(group))}


class JobGroups:
    """The groups of a job that have parameters of this model, in the job's order, behind the parameters in no group.

    Attributes:
        lr (float): The job's optimizer.lr.
    """

    def __init__(self, job: Union[_core.Job, NodeJob], trained: Sequence[tuple[str, nn.Parameter]]) -> None:
        self.lr: float
        self._groups: Sequence[tuple[str, float]]
        self.lr, self._groups = job.learning_rates
        # Parameters by the place of their rate among all that a push names. The first place is that of parameters in no group.
        self._members: dict[int, list[nn.Parameter]] = {}
        for name, one in trained:
            group = job.group_of(name)
            self._members.setdefault(0 if group is None else group + 1, []).append(one)
        self._slots = sorted(self._members)

    def make(self) -> list[dict[str, Any]]:
        """Makes the groups, with the job's learning rates."""
        named = [("*", self.lr), *self._groups]
        return [{"params": self._members[slot], "name": named[slot][0], "lr": named[slot][1]} for slot in self._slots]

    def rates(self, groups: Sequence[Mapping[str, Any]]) -> list[float]:
        """Returns the rates that a push names, or none while the script has set none.

        Args:
            groups: Those of make(), which the script may have changed.

        Raises:
            ValueError: A rate is no finite number from 0.
        """
        if not any(map(_is_set, groups)):
            return []
        own = [float(group["lr"]) for group in groups]
        for number, (group, lr) in enumerate(zip(groups, own)):
            if not 0 <= lr <= _FLOAT32_MAX:
                raise ValueError(
                    f"param_groups[{number}] ({group['name']}) has lr={lr}; allowed is a finite number from 0. "
                    "Nothing was pushed"
                )
        # Groups without parameters here need some rate; none is used.
        rates = [own[0]] * (1 + len(self._groups))
        for slot, lr in zip(self._slots, own):
            rates[slot] = lr
        return rates
