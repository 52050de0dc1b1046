"""Figures that a script gives: loss, accuracy, and others under names of its own."""

from __future__ import annotations

import math
import warnings
from typing import Any, Mapping, Optional

from . import _core

# Loss, accuracy, and other figures by name.
Figures = tuple[Optional[float], Optional[float], dict[str, float]]

_ALLOWED = 'a mapping such as {"loss": mean over samples, "accuracy": share from 0 to 1, "perplexity": number}'


def measured(result: Any) -> Figures:
    """What an evaluation has returned, looked at."""
    if result is None:
        return None, None, {}
    what = "the function of worker.evaluation() returned"
    if not isinstance(result, Mapping):
        raise TypeError(f"{what} {type(result).__name__}; allowed is {_ALLOWED}, or None")
    try:
        figures = checked(result)
        _core.check_names(list(figures[2]))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what} {str(error).removeprefix('found ')}") from None
    if not result:
        warnings.warn(f"{what} an empty mapping; allowed is {_ALLOWED}, or None", stacklevel=2)
    return figures


def checked(figures: Mapping[Any, Any]) -> Figures:
    """Loss, accuracy and the others; their names are not looked at."""
    values = {}
    for name, value in figures.items():
        if not isinstance(name, str):
            raise TypeError(f"found a name of type {type(name).__name__}; allowed is text")
        try:
            if isinstance(value, (str, bytes)):  # float() takes "3"
                raise TypeError
            values[name] = float(value)
        except (TypeError, ValueError):
            raise TypeError(f"found {name} of type {type(value).__name__}; allowed is a number") from None
    loss, accuracy = values.pop("loss", None), values.pop("accuracy", None)
    if accuracy is not None and not 0 <= accuracy <= 1:
        raise ValueError(f"found accuracy={accuracy}; allowed is 0 to 1")
    for name, value in values.items():
        if not math.isfinite(value):
            raise ValueError(f"found {name}={value}; allowed is a finite number")
    return loss, accuracy, values
