"""A device that is not the CPU, for tests: the host's memory behind tensors that torch takes for those of another device.

The device has PyTorch's place for devices from outside (PrivateUse1), and is written in Python. Each operation runs on the host's
tensors. Nothing is late: copies and operations are over when their calls return.
"""

import torch
from torch.utils import _pytree, backend_registration

NAME = "pretend"
IS_THERE = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")  # in newer torch


class OtherTensor(torch.Tensor):
    """A tensor of the device, whose values are those of `host`."""

    @staticmethod
    def __new__(cls, host):
        return torch.Tensor._make_wrapper_subclass(
            cls, host.shape, strides=host.stride(), storage_offset=host.storage_offset(), dtype=host.dtype, device=f"{NAME}:0"
        )

    def __init__(self, host):
        self.host = host

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return run(operation, *args, **(kwargs or {}))


def on_host(one):
    if isinstance(one, torch.device) and one.type == NAME:
        return torch.device("cpu")
    return one.host if isinstance(one, OtherTensor) else one


def run(operation, *args, **kwargs):
    """The operation's result, on this device unless the operation copies to the host."""
    given = [one for one in _pytree.tree_leaves((args, kwargs)) if isinstance(one, OtherTensor)]
    to_host = torch.device(kwargs.get("device") or NAME).type == "cpu"
    in_place = operation._schema.arguments and operation._schema.arguments[0].is_write
    result = operation(*_pytree.tree_map(on_host, args), **_pytree.tree_map(on_host, kwargs))
    if to_host or (in_place and not isinstance(args[0], OtherTensor)):
        return result

    def wrap(one):
        changed = [other for other in given if other.host is one]
        return one if not isinstance(one, torch.Tensor) else changed[0] if changed else OtherTensor(one)

    return _pytree.tree_map(wrap, result)


def make():
    """Makes the device known to torch, for as long as the library is kept that it returns."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    library = torch.library.Library("_", "IMPL")
    library.fallback(run, "PrivateUse1")  # calls that have no tensor, such as torch.empty()
    return library
