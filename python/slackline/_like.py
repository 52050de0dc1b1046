"""Settings of an optimizer of torch.optim, in the words of the job file."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence, cast

import torch
from torch import nn

_KINDS: dict[type, str] = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adamw"}
# Settings that only change how torch computes a step.
_HARMLESS = ("foreach", "fused", "capturable", "param_names")
# Settings that the servers have for all groups together, and those that they have for each.
_FOR_ALL = ("momentum", "nesterov", "betas", "eps", "decoupled_weight_decay")
_BY_GROUP = ("lr", "weight_decay")
# Settings that the servers' optimizers have with this value only.
_FIXED = {"dampening": 0, "amsgrad": False, "maximize": False, "differentiable": False}
# Settings that a script cannot change while the servers train.
KEPT = (*_FOR_ALL, "weight_decay", *_FIXED)


class Like:
    """What the servers must know of an optimizer of torch.optim.

    Attributes:
        settings (list): Keys and values of the job file's `optimizer`, such as "lr=0.002", for the parameters of the first group.
        groups (list): Name, factor of the learning rate, and weight decay of each other group that has trained parameters.
        members (list): For each trained parameter, the number of its group in `groups`, from 1; 0 is the first group.
        param_groups (list): All groups of the optimizer, without parameters and without what is torch's alone.
        slots (list): For each of `param_groups` its number, as in `members`; None if none of its parameters is trained.

    Raises:
        TypeError: It is none of torch's SGD, Adam and AdamW.
        ValueError: A setting is one that the servers do not have, or the parameters are not those of the model.
    """

    def __init__(self, like: torch.optim.Optimizer, named: Sequence[tuple[str, nn.Parameter]]) -> None:
        self._called = f"torch.optim.{type(like).__name__}"
        if type(like) not in _KINDS:
            known = ", ".join(f"torch.optim.{kind.__name__}" for kind in _KINDS)
            raise TypeError(f"found like={type(like).__module__}.{type(like).__qualname__}; allowed are {known}")
        _check_new(like)
        for number, group in enumerate(like.param_groups):
            self._check(number, group, like.param_groups[0])
        places = _places(like, named)
        trained = [place for (_, one), place in zip(named, places) if one.requires_grad]
        used = sorted({place for place in trained if place is not None})
        number_of = {place: number for number, place in enumerate(used)}
        self.members = [number_of[place] for place in trained if place is not None]
        self.param_groups = [
            {key: value for key, value in group.items() if key != "params" and key not in _HARMLESS}
            for group in like.param_groups
        ]
        self.slots = [number_of.get(place) for place in range(len(self.param_groups))]
        for place, group in enumerate(self.param_groups):
            group.setdefault("name", f"group {place}")
            group["lr"] = float(group["lr"])
        first, *others = (self.param_groups[place] for place in used)
        self.settings = _settings(_KINDS[type(like)], first)
        self.groups = [(str(one["name"]), _factor(one, first), float(one["weight_decay"])) for one in others]

    def _check(self, number: int, group: Mapping[str, Any], first: Mapping[str, Any]) -> None:
        """Raises where a group has a setting that the servers do not."""
        for key, value in group.items():
            where = f"{self._called} with {key}={value} in param_groups[{number}]"
            # torch does not use dampening if momentum is 0.
            unused = key == "dampening" and group["momentum"] == 0
            if key in _FIXED and value != _FIXED[key] and not unused:
                raise ValueError(f"found {where}; allowed is {key}={_FIXED[key]}: the servers' optimizer has no other")
            if key in _FOR_ALL and value != first[key]:
                raise ValueError(
                    f"found {where} and {key}={first[key]} in param_groups[0]; allowed is one value: groups of the servers "
                    f"differ in {' and '.join(_BY_GROUP)}"
                )


def without_schedule(like: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Makes an optimizer as `like` was before schedulers were made for it. Returns those that Like() refuses as they are.

    Raises:
        ValueError: A scheduler has changed the momentum, too, as OneCycleLR and CyclicLR do.
    """
    if type(like) not in _KINDS or any(like.state.values()):
        return like
    if any("base_momentum" in group for group in like.param_groups):
        raise ValueError(
            "found a scheduler that changes the momentum; allowed is cycle_momentum=False: the servers keep momentum and betas"
        )
    groups = [{key: value for key, value in group.items() if key != "initial_lr"} for group in like.param_groups]
    for group, scheduled in zip(groups, like.param_groups):
        group["lr"] = scheduled.get("initial_lr", scheduled["lr"])
    make = cast(Callable[..., torch.optim.Optimizer], type(like))
    return make(groups, lr=groups[0]["lr"])


def _check_new(like: torch.optim.Optimizer) -> None:
    if any(like.state.values()):
        raise ValueError(
            "found an optimizer of torch that has taken steps; allowed is a new one: the servers begin without its state"
        )
    if hasattr(like.step, "_wrapped_by_lr_sched") or hasattr(like.step, "_with_counter"):
        raise ValueError(
            "found an optimizer of torch with a learning-rate scheduler; allowed is one without: make the scheduler of the "
            "slackline.Optimizer, whose rates are used"
        )
    known = {"params", *_HARMLESS, *KEPT, *_BY_GROUP}
    unknown = [key for key, value in like.defaults.items() if key not in known and value]
    if unknown:
        raise ValueError(
            f"found torch.optim.{type(like).__name__} with {unknown[0]}={like.defaults[unknown[0]]}, which the servers do not have"
        )


def _places(like: torch.optim.Optimizer, named: Sequence[tuple[str, nn.Parameter]]) -> list[int | None]:
    """For each parameter, the place of its group; None for frozen parameters in none."""
    place_of = {id(one): place for place, group in enumerate(like.param_groups) for one in group["params"]}
    missing = [name for name, one in named if one.requires_grad and id(one) not in place_of]
    if missing:
        raise ValueError(
            f"parameter {missing[0]} requires a gradient and is in no group of like=; {len(missing)} are: give the optimizer of "
            "torch all parameters that are trained, and freeze the others by requires_grad_(False)"
        )
    strangers = len(place_of) - sum(id(one) in place_of for _, one in named)
    if strangers:
        raise ValueError(f"like= has {strangers} parameters that are not the model's; allowed are those of the model")
    return [place_of.get(id(one)) for _, one in named]


def _settings(kind: str, group: Mapping[str, Any]) -> list[str]:
    if group.get("decoupled_weight_decay"):
        kind = "adamw"
    settings = [f"kind={kind}", f"lr={group['lr']!r}", f"weight_decay={float(group['weight_decay'])!r}"]
    if kind == "sgd":
        nesterov = "true" if group["nesterov"] else "false"
        return [*settings, f"momentum={float(group['momentum'])!r}", f"nesterov={nesterov}"]
    beta1, beta2 = map(float, group["betas"])
    return [*settings, f"beta1={beta1!r}", f"beta2={beta2!r}", f"epsilon={float(group['eps'])!r}"]


def _factor(group: Mapping[str, Any], first: Mapping[str, Any]) -> float:
    if group["lr"] == first["lr"]:
        return 1.0
    if first["lr"] == 0:
        raise ValueError(
            f"found lr={group['lr']} in the group {group['name']}, and lr=0 in the first one; allowed is a first group with a "
            "learning rate above 0: the servers have those of the others as multiples of it"
        )
    return float(group["lr"] / first["lr"])
