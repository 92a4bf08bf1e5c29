"""What a trace is made of, checked: a model or a task object, tensors, and words for their tokens."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from clearformer.errors import TraceError, nearest

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace

Words = Sequence[str] | Mapping[str, Sequence[str]]


def of_task(task: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> "Trace":
    made = getattr(task, "trace", None)
    if made is None or not isinstance(getattr(task, "model", None), nn.Module):
        raise TraceError(
            f"a model or what cf.load gives can be traced, given {type(task).__name__}; cf.load(folder).trace(text), or"
            " cf.trace(model, ids)"
        )
    return made(*inputs, **options)


def check_inputs(inputs: tuple[Any, ...]) -> None:
    if not inputs:
        raise TraceError("there is nothing to run: give a tensor of ids, cf.trace(model, ids)")
    for given in inputs:
        if isinstance(given, str):
            raise TraceError(
                "a model by itself reads ids and knows no words; cf.load(folder).trace(text) does, and cf.trace(task,"
                " text) is the same"
            )
        if given is not None and not isinstance(given, Tensor):
            raise TraceError(f"give ids as a tensor, torch.tensor([[1, 2, 3]]); given {type(given).__name__}")


def words_of(words: Words | None, given: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """The words of each input, one for each token; those of an image's patches are checked by nobody."""
    if words is None:
        return {}
    if not isinstance(words, Mapping):
        if len(given) > 1:
            raise TraceError(f"words: give a list for each of {' and '.join(given)}, as a dict")
        words = {next(iter(given)): words}
    for name, list_ in words.items():
        if name not in given:
            raise TraceError(f"words: unknown input {name!r}{nearest(name, given)}")
        if given[name].dim() == 2 and len(list_) != given[name].size(1):
            raise TraceError(f"words: {len(list_)} given for the {given[name].size(1)} tokens of {name}")
    return {name: list(list_) for name, list_ in words.items()}
