"""Modules of torch around the script's own: torch.compile(), data parallelism, sharding."""

from __future__ import annotations

from typing import Callable, Optional

import torch
from torch import nn

_PARALLEL = (nn.parallel.DistributedDataParallel, nn.DataParallel)


def names_without_wrappers(model: nn.Module) -> Callable[[str], str]:
    """The function from a tensor's name in `model` to its name in the model that is wrapped: `layer._orig_mod.weight` of a compiled
    layer is `layer.weight`. Checkpoints then load into models that have no wrapper, and workers with and without one agree."""
    paths = set()
    for path, module in model.named_modules():
        inner = _child_of_wrapper(module)
        if inner is not None:
            paths.add(f"{path}.{inner}" if path else inner)

    def shorten(name: str) -> str:
        parts = name.split(".")
        return ".".join(part for i, part in enumerate(parts) if ".".join(parts[: i + 1]) not in paths)

    return shorten


def reduces_gradients(model: nn.Module) -> bool:
    """Whether gradients may change after backward has made them.

    Raises:
        ValueError: Several processes are to average them.
    """
    found = False
    for module in model.modules():
        if isinstance(module, nn.parallel.DistributedDataParallel):
            found = True
            processes = torch.distributed.get_world_size(module.process_group)
            if processes > 1:
                raise ValueError(
                    f"found a DistributedDataParallel over {processes} processes; allowed is one: workers take their steps "
                    "independently, and the servers add up their gradients. Give the optimizer the module that is wrapped, and "
                    "connect(node_group=...) to add up gradients inside a node"
                )
    return found


def check_whole(name: str, parameter: torch.Tensor) -> None:
    """Raises TypeError where this process has a part of the parameter, or it is no plain tensor."""
    kind = "FlatParameter" if getattr(parameter, "_is_flat_param", False) else type(parameter).__name__
    if kind in ("DTensor", "FlatParameter"):
        raise TypeError(
            f"parameter {name} is a {kind}, of which each process has a part; allowed are whole tensors: use the model without "
            "fully_shard() and FullyShardedDataParallel"
        )
    if hasattr(parameter, "__tensor_flatten__"):
        raise TypeError(f"parameter {name} is a {kind}, which is made of other tensors; allowed are plain ones")


def _child_of_wrapper(module: nn.Module) -> Optional[str]:
    if "_orig_mod" in module._modules:  # OptimizedModule, whose import takes seconds
        return "_orig_mod"
    return "module" if isinstance(module, _PARALLEL) else None
