"""A step is a method whose result has a name and axes: one equation that a reader may ask to see.

The mark costs nothing when the model runs. `explain.trace` finds the marked methods on a twin of the model and
records what they return; the address of a result is the path of its module and the name of the method.
"""

from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def step(axes: str) -> Callable[[Method], Method]:
    """Mark a method as a step; `axes` are the letters of its result, such as `b h t s`."""

    def mark(method: Method) -> Method:
        method.axes = axes.split()  # type: ignore[attr-defined]
        return method

    return mark
