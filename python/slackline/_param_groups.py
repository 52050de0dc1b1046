"""Groups of parameters with learning rates, as torch.optim has them: the job's optimizer.groups, or those of the script."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Union

import torch
from torch import nn

from . import _core
from ._like import KEPT, Like

if TYPE_CHECKING:
    from ._node_job import NodeJob

# Settings that scripts have in param_groups of torch.optim, and only the job sets here.
_THE_JOBS = ("momentum", "nesterov", "weight_decay", "betas", "eps")
_FLOAT32_MAX = torch.finfo(torch.float32).max


class Group(dict[str, Any]):
    """Of parameters, with their learning rate. Other settings that torch.optim has here are the servers', and stay as they are.

    Attributes:
        is_set (bool): Whether the script has set lr.
    """

    is_set = False

    def __missing__(self, key: str) -> Any:
        raise KeyError(f"{key} is the job's: optimizer.{key}" if key in _THE_JOBS else key)

    def __setitem__(self, key: str, value: Any) -> None:
        if key in KEPT and key in self and _listed(value) != _listed(self[key]):
            raise ValueError(
                f"found {key}={value} for the group {self['name']}; allowed is {self[key]}, as like= said: the servers keep it. "
                "OneCycleLR and CyclicLR leave it with cycle_momentum=False"
            )
        if key in _THE_JOBS and key not in self:
            warnings.warn(f"{key} is the job's: optimizer.{key}. To set it here changes nothing", stacklevel=2)
        self.is_set = self.is_set or key == "lr"
        super().__setitem__(key, value)

    def __ior__(self, other: Any) -> Group:  # type: ignore[override,misc]
        self.update(other)
        return self

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value


def _listed(value: Any) -> Any:
    """With lists for tuples, which JSON does not have."""
    return list(value) if isinstance(value, tuple) else value


def _is_set(group: Mapping[str, Any]) -> bool:
    """Whether the script has set its lr. A plain dict is the script's own."""
    return not isinstance(group, Group) or group.is_set


def settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """What a state keeps of a group: all but the parameters and what the servers keep, and the learning rate only where the script
    has set it."""
    return {
        key: value
        for key, value in group.items()
        if key != "params" and key not in KEPT and (key != "lr" or _is_set(group))
    }


class JobGroups:
    """The groups of a job that have parameters of this model, in the job's order, behind the parameters in no group. With `like`, all
    groups of that optimizer.

    Attributes:
        lr (float): The job's optimizer.lr.
    """

    def __init__(
        self, job: Union[_core.Job, NodeJob], trained: Sequence[tuple[str, nn.Parameter]], like: Optional[Like]
    ) -> None:
        if like is not None:
            job.set_optimizer(like.settings, like.groups, like.members)
        self._like = like
        self.lr: float
        self._groups: Sequence[tuple[str, float]]
        self.lr, self._groups = job.learning_rates
        # Parameters by the place of their rate among all that a push names. The first place is that of parameters in no group.
        self._members: dict[int, list[nn.Parameter]] = {}
        for i, (name, one) in enumerate(trained):
            group = job.group_of(name) if like is None else like.members[i] - 1
            self._members.setdefault(0 if group is None else group + 1, []).append(one)
        # For each group its place; None for one whose parameters are all frozen.
        self._slots: Sequence[Optional[int]] = sorted(self._members) if like is None else like.slots

    def make(self) -> list[dict[str, Any]]:
        """Makes the groups, with the job's learning rates, or with the settings of `like`."""
        if self._like is not None:
            return [
                {"params": [] if slot is None else self._members[slot], **group}
                for slot, group in zip(self._slots, self._like.param_groups)
            ]
        named = [("*", self.lr), *self._groups]
        return [{"params": self._members[slot], "name": named[slot][0], "lr": named[slot][1]} for slot in sorted(self._members)]

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
            if slot is not None:
                rates[slot] = lr
        return rates
