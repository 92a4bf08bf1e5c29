"""Put the model of a run into the package: half precision on disk, with its tokenizer, its task and its card.

python recipes/bundle.py models/en-de en-de
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import clearformer

CARDS = Path(__file__).parent / "cards"


def bundle(run: Path, name: str, length_penalty: float) -> None:
    folder = Path(clearformer.__file__).parent / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    weights = {key: weight.half() for key, weight in load_file(run / "weights.safetensors").items()}
    assert all(bool(torch.isfinite(weight).all()) for weight in weights.values())
    save_file(weights, folder / "weights.safetensors")
    spec, task = (json.loads((run / file).read_text()) for file in ("spec.json", "task.json"))
    (folder / "spec.json").write_text(json.dumps(spec, indent=1) + "\n")
    (folder / "task.json").write_text(json.dumps({**task, "length_penalty": length_penalty}, indent=1) + "\n")
    tokenizer = json.loads((run / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")) + "\n")
    (folder / "seen.safetensors").write_bytes((run / "seen.safetensors").read_bytes())
    (folder / "README.md").write_text((CARDS / f"{name}.md").read_text())
    for path in folder.iterdir():
        path.chmod(0o644)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    bundle(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
