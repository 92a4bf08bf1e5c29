"""One translation, looked into: tokens, where it looked, what else it might have said, and what the beam tried."""

from dataclasses import asdict, dataclass
from typing import Any

from clearformer.explain.trace import Trace
from clearformer.generate.options import GenerationOptions
from clearformer.tasks.tracing import trace
from clearformer.tasks.translate import Translator
from clearformer.tasks.wrote import Choice, Node, Wrote

__all__ = ["Choice", "Explanation", "Node", "explain"]


@dataclass(frozen=True)
class Explanation:
    text: str
    score: float
    source: list[str]  # tokens, as the encoder saw them
    target: list[str]  # tokens, as the decoder saw them: the start, then what it had chosen
    choices: list[Choice]
    tree: Node
    trace: Trace

    def to_dict(self) -> dict[str, Any]:
        """For JSON: all but the trace, whose numbers are asked for by their addresses."""
        parts = {"choices": [asdict(choice) for choice in self.choices], "tree": asdict(self.tree)}
        return {name: value for name, value in vars(self).items() if name != "trace"} | parts


def explain(
    translator: Translator,
    text: str,
    *,
    to: str | None = None,
    top: int = 5,
    options: GenerationOptions | None = None,
    **fields: Any,
) -> Explanation:
    """Translate one text, with the very search that `translate` runs, and keep everything; every number is at its
    address in `.trace`. `fields` are those of `GenerationOptions`."""
    found = trace(translator, text, to=to, verb="translate", top=top, options=options, **fields)
    run: Wrote = found.run
    return Explanation(run.text, run.score, run.source, found.words["target"], run.choices, run.tree, found)
