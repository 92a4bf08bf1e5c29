"""A translator made deeper and given another vocabulary, for recipes to begin with: what it has learned is kept.

Every new layer follows the one it is copied from and adds nothing at first (its last product is zero), so that the
deeper model computes what the old one did. A new token that the old vocabulary had keeps its vector; any other begins
with the mean of the vectors of the pieces that the old one would have cut it into.

python recipes/grow.py en-de models/en-de-start --layers 6 --vocabulary 10000 texts.en.gz texts.de.gz ...
"""

import argparse
import gzip
import json
from itertools import islice
from pathlib import Path

import torch

import clearformer as cf
from clearformer.kernels.pack import float_weights
from clearformer.spec import Spec
from clearformer.tasks.load import find, open_model
from clearformer.text.learn import LearnedTokenizer, learn

LAST = ("self.layer.output", "feedforward.layer.down")


def grown_names(layers: int, old: int) -> list[tuple[int, bool]]:
    """For each of the new layers, the old one it comes from, and whether it is the copy that adds nothing."""
    from_ = [number * old // layers for number in range(layers)]
    return [(each, number > 0 and from_[number - 1] == each) for number, each in enumerate(from_)]


def table(old: LearnedTokenizer, new: LearnedTokenizer, vectors: torch.Tensor) -> torch.Tensor:
    known = old.engine.get_vocab()
    rows = []
    for piece in new.pieces(range(len(new))):
        if piece in known:
            rows.append(vectors[known[piece]])
        else:
            ids = [known[token.value] for token in old.engine.model.tokenize(piece) if token.value in known]
            rows.append(vectors[ids or [old.unknown]].mean(0))
    return torch.stack(rows)


def texts(files: list[Path], lines: int) -> list[str]:
    return [line.rstrip("\n") for file in files for line in islice(gzip.open(file, "rt", newline="\n"), lines)]


def main(name: str, out: Path, layers: int, vocabulary: int, files: list[Path], lines: int) -> None:
    translator = open_model(name)
    old = LearnedTokenizer.load(find(name) / "tokenizer.json")
    new = learn(texts(files, lines), "bpe", vocabulary)
    content = json.loads(translator.model.spec.to_json())
    blocks = content["encoder"]["blocks"]
    plan = grown_names(layers, len(blocks))
    content["encoder"]["blocks"] = [blocks[number] for number, _ in plan]
    for side in ("encoder", "decoder"):
        content[side]["embed"]["vocabulary"] = len(new)
    model, given = cf.build(Spec.from_json(json.dumps(content)), seed=0), float_weights(translator.model)
    weights = {key: weight for key, weight in given.items() if not key.startswith("encoder.blocks.")}
    weights["encoder.embed.table"] = table(old, new, given["encoder.embed.table"])
    for number, (from_, silent) in enumerate(plan):
        prefix = f"encoder.blocks.{from_}."
        for key, weight in given.items():
            if key.startswith(prefix):
                adds = key.removeprefix(prefix).removeprefix("branches.").startswith(LAST)
                kept = torch.zeros_like(weight) if silent and adds else weight
                weights[f"encoder.blocks.{number}." + key.removeprefix(prefix)] = kept
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(weights[key])
    cf.save_model(model, out)
    (out / "tokenizer.json").write_text(new.to_json())
    (out / "task.json").write_text((find(name) / "task.json").read_text())
    print(f"{out}: {sum(p.numel() for p in model.parameters()):,} parameters, {len(new):,} tokens")


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("name")
    asked.add_argument("out", type=Path)
    asked.add_argument("files", type=Path, nargs="+")
    asked.add_argument("--layers", type=int, default=6, help="of the encoder")
    asked.add_argument("--vocabulary", type=int, default=10_000)
    asked.add_argument("--lines", type=int, default=200_000, help="of each file, to learn the vocabulary from")
    given = asked.parse_args()
    main(given.name, given.out, given.layers, given.vocabulary, given.files, given.lines)
