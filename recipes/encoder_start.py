"""The encoder of a translator as a model of masked words, for recipes to begin with: it has learned English already.

It keeps the first layers. The vocabulary is learned from the texts given; a token that the translator had keeps its
vector, any other begins with the mean of its pieces'. The masked-token head is fresh.

python recipes/encoder_start.py en-de models/fill-en-start --layers 4 --vocabulary 8000 texts.en.gz ...
"""

import argparse
import json
from pathlib import Path

import torch
from grow import table, texts

import clearformer as cf
from clearformer import spec
from clearformer.kernels.pack import float_weights
from clearformer.tasks.load import find, open_model
from clearformer.text.learn import LearnedTokenizer, learn
from clearformer.text.tokenizer import MASK, PublicTokenizer


def main(name: str, out: Path, layers: int, vocabulary: int, longest: int, files: list[Path], lines: int) -> None:
    translator = open_model(name)
    old = LearnedTokenizer.load(find(name) / "tokenizer.json")
    new = learn(texts(files, lines), "bpe", vocabulary, extra=[MASK])
    encoder = json.loads(translator.model.spec.to_json())["encoder"]
    encoder["blocks"] = encoder["blocks"][:layers]
    encoder["embed"]["vocabulary"] = len(new)
    head = spec.MaskedToken(norm=spec.LayerNorm(), activation="relu")  # as its layers, which public families want
    what = spec.Transformer(stack=spec.Stack.model_validate_json(json.dumps(encoder)), head=head)
    model, given = cf.build(what, seed=0), float_weights(translator.model)
    given["encoder.embed.table"] = table(old, new, given["encoder.embed.table"])
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if (weight := given.get(key.replace("stack.", "encoder.", 1))) is not None:
                parameter.copy_(weight)
            else:
                print(f"fresh: {key}")
    cf.save_model(model, out)
    PublicTokenizer.of(new, start=False).save(out)
    (out / "task.json").write_text(json.dumps({"task": "fill", "longest": longest}) + "\n")
    print(f"{out}: {sum(p.numel() for p in model.parameters()):,} parameters, {len(new):,} tokens")


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("name")
    asked.add_argument("out", type=Path)
    asked.add_argument("files", type=Path, nargs="+")
    asked.add_argument("--layers", type=int, default=4)
    asked.add_argument("--vocabulary", type=int, default=8_000)
    asked.add_argument("--longest", type=int, default=96, help="tokens that it is to see at once")
    asked.add_argument("--lines", type=int, default=200_000, help="of each file, to learn the vocabulary from")
    given = asked.parse_args()
    main(given.name, given.out, given.layers, given.vocabulary, given.longest, given.files, given.lines)
