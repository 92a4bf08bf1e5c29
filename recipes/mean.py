"""The mean of the weights of two models of one shape, such as a run and the model that it began with.

python recipes/mean.py models/en-de-on en-de models/en-de-mean --share 0.8
"""

import argparse
import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from clearformer.kernels.pack import float_weights
from clearformer.tasks.load import find, open_model

WEIGHTS = "weights.safetensors"


def mean(run: Path, other: Path, out: Path, share: float) -> None:
    """`share` of the run's weights, and the rest of the other's; all else is the run's."""
    mine, theirs = load_file(run / WEIGHTS), float_weights(open_model(other).model)
    shutil.copytree(run, out, ignore=shutil.ignore_patterns("states", "data", WEIGHTS))
    made = {name: share * weight + (1 - share) * theirs[name].to(weight.dtype) for name, weight in mine.items()}
    save_file({name: weight.contiguous() for name, weight in made.items()}, out / WEIGHTS)
    print(f"{out}: {json.dumps({str(run): share, str(other): round(1 - share, 6)})}")


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("run", type=Path)
    words.add_argument("other")
    words.add_argument("out", type=Path)
    words.add_argument("--share", type=float, default=0.5)
    given = words.parse_args()
    mean(given.run, find(given.other), given.out, given.share)
