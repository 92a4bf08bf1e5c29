"""The model of a run, put where a model folder has it; each file is replaced whole."""

from collections.abc import Mapping

from safetensors.torch import save as pack
from torch import Tensor

from clearformer.data.training_pairs import TrainingPairs
from clearformer.training.loop import Progress
from clearformer.training.prepare import Prepared, not_pinned, read_facts
from clearformer.training.state import replace_file


def export(run: Prepared, weights: Mapping[str, Tensor], progress: Progress) -> None:
    folder, metadata = run.folder, run.goal.metadata(run.spec)
    replace_file(folder / "spec.json", (run.spec.to_json() + "\n").encode())
    replace_file(folder / "task.json", metadata.to_json().encode())
    replace_file(folder / "weights.safetensors", pack({name: w.contiguous() for name, w in weights.items()}))
    replace_file(folder / "README.md", card(run, progress).encode())


def card(run: Prepared, progress: Progress) -> str:
    from clearformer.assemble import count_parameters

    settings, scores = run.settings, progress.scores
    files = "\n".join(f"- {part}{_use(part)}" for part in settings.data.train)
    other = not_pinned(settings, read_facts(run.folder).get("files", {})) if settings.data.any_data else []
    warning = "".join(f"Warning: {line}. Scores of the recipe are not scores of this model.\n\n" for line in other)
    return f"""# A model trained with Clearformer

To {settings.task}: {count_parameters(run.spec):,} parameters, a vocabulary of {run.goal.vocabulary:,}.

Trained on
{files}

{run.reports["train"]}.

{warning}After {progress.step:,} steps ({progress.tokens:,} {run.goal.unit}), on the validation data:
{", ".join(f"{name} {value:.3f}" for name, value in scores.items())}.

```
{run.spec}
```
"""


def _use(part: TrainingPairs) -> str:
    """How a set was used, where that was said."""
    said = [f"{name} {getattr(part, name)}" for name in part.told if name in ("weight", "cap", "tag")]
    said += [f"noise {part.noise.model_dump(exclude_defaults=True)}"] if part.noise else []
    return f" ({', '.join(said)})" if said else ""
