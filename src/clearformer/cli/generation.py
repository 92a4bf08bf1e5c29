"""The options of generation on the command line: one definition for every verb that writes, in the words of
`GenerationOptions`."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from clearformer.generate.options import GenerationOptions


def _option(kind: Any, help: str) -> Any:
    return Annotated[kind | None, typer.Option(help=help)]


FLAGS = {
    "max_new_tokens": _option(int, "The most tokens to write."),
    "min_new_tokens": _option(int, "No end before so many tokens."),
    "num_beams": _option(int, "Search with so many hypotheses; 1 is greedy."),
    "num_return_sequences": _option(int, "So many results of each text, best first."),
    "length_penalty": _option(float, "Of a beam: scores are divided by length to this power."),
    "temperature": _option(float, "0 takes the likeliest token; above, tokens are drawn, lower is safer."),
    "top_k": _option(int, "Draw from the k likeliest only; 0 from all."),
    "top_p": _option(float, "Draw from the likeliest that reach p."),
    "min_p": _option(float, "Draw none below p times the likeliest."),
    "repetition_penalty": _option(float, "Above 1: tokens used before become less likely."),
    "no_repeat_ngram_size": _option(int, "No so many tokens in a row twice; 0 allows all."),
    "seed": _option(int, "The same seed draws the same."),
    "stop": _option(list[str], "Stop before this text; repeatable."),
}


def generation(*, stop: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb these options behind its own; it gets what was said of them as `options`. `stop` is for verbs that
    can end at a text."""
    names = [name for name in FLAGS if stop or name != "stop"]

    def added(verb: Callable[..., None]) -> Callable[..., None]:
        @wraps(verb)
        def called(**given: Any) -> None:
            said = {name: given.pop(name) for name in names}
            said = {name: value for name, value in said.items() if value is not None and value != []}
            verb(**given, options=GenerationOptions.of(said))

        signature = inspect.signature(verb)
        own = [each for each in signature.parameters.values() if each.name != "options"]
        kind = inspect.Parameter.KEYWORD_ONLY
        more = [inspect.Parameter(name, kind, default=None, annotation=FLAGS[name]) for name in names]
        called.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return called

    return added


def said(options: GenerationOptions) -> str:
    """The flags that were given, for errors."""
    return ", ".join(f"--{name.replace('_', '-')}" for name in options.to_dict())


def beams_of(translator: Any, options: GenerationOptions) -> int:
    """How many hypotheses a translator searches with; 0 where it draws."""
    from clearformer.generate.options import merge, plan

    found = plan(merge(translator.defaults(), options), 1)
    return 0 if found.draws else found.beams
