"""The encoder of a translator as a model folder, for recipes to begin with: it has learned what words are for.

python recipes/encoder_of.py en-de models/en-de-encoder
"""

import json
import sys
from pathlib import Path

import clearformer as cf
from clearformer.spec import Transformer, Vector
from clearformer.tasks.load import find
from clearformer.text.learn import LearnedTokenizer
from clearformer.text.tokenizer import PublicTokenizer


def main(name: str, out: Path) -> None:
    translator = cf.load(name, kernel="reference", precision="float32", kind=cf.Translator)
    model = cf.build(Transformer(stack=translator.spec.encoder, head=Vector(pool="mean")), seed=0)
    weights = {key: weight for key, weight in translator.model.state_dict().items() if key.startswith("encoder.")}
    model.load_state_dict({"stack." + key.removeprefix("encoder."): weight for key, weight in weights.items()})
    cf.save_model(model, out)
    PublicTokenizer.of(LearnedTokenizer.load(find(name) / "tokenizer.json"), start=False).save(out)
    (out / "task.json").write_text(json.dumps({"task": "embed", "pool": "mean", "longest": 256}) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]))
