"""How good a model is on a test set, by its task: accuracy, correlation, exact answers, perplexity."""

import math
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearformer.data.pairs import Pairs
from clearformer.errors import DataError
from clearformer.kernels.pack import is_int8
from clearformer.tasks.load import open_packed
from clearformer.training.goals import goal_of
from clearformer.training.goals.base import DATA, Scores
from clearformer.training.settings import Settings

JUDGED = ("classify", "tag", "embed", "answer", "complete", "fill", "see")


def evaluate(
    model: str | Path, test: Pairs, *, context: int = 256, precision: str | None = None, ignore: Collection[str] = ()
) -> Scores:
    """The loss and the scores of a model on the pairs, texts or images of `test`.

    `context` is how many tokens of running text are seen at once; `precision` is what `load` takes, by default
    what the weights are kept as.
    """
    opened = open_packed(model, precision=precision, ignore=ignore)
    task, longest = opened.metadata.task, opened.metadata.longest
    if task not in JUDGED:
        raise DataError(f"a model to {task} is scored by its translations; give source and target")
    settings: dict[str, Any] = {
        "data": {"train": [dict(test)], "valid": [test], "longest": longest or 100_000},
        "model": {
            "context": min(context, longest or context),
            "positions": "tree" if opened.metadata.trees else None,
        },
        "validation": {"samples": 0},
    }
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        (out / DATA).mkdir()
        goal = goal_of(Settings(task=task, out=out, **settings))
        test.check()
        if task != "see":
            opened.words.save(out)
        goal.take(opened.metadata)
        found = replace(goal.validate(opened.model), precision="int8" if is_int8(opened.model) else "float32")
    if goal.unit == "tokens":
        found.measures["perplexity"] = math.exp(min(found.loss, 50))
    return found
