"""The goals of runs, by name."""

from importlib import import_module
from typing import TYPE_CHECKING

from clearformer.training.settings import Settings

if TYPE_CHECKING:
    from clearformer.training.goals.base import Goal

HOMES = {
    "translate": "translate.Translate",
    "classify": "labels.Classify",
    "tag": "labels.Tag",
    "embed": "embed.Embed",
    "answer": "answer.Answer",
    "complete": "text.Complete",
    "continue": "text.Continue",
    "fill": "text.Fill",
    "see": "see.See",
}


def goal_of(settings: Settings) -> "Goal":
    """What the run of these settings trains for."""
    task: str = settings.task
    if task == "complete" and all(part.pairs for part in (*settings.data.train, *settings.data.valid)):
        task = "continue"  # prompts and their continuations, rather than running text
    module, name = HOMES[task].split(".")
    return getattr(import_module(f"clearformer.training.goals.{module}"), name)(settings)
