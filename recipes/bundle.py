"""Put the model of a run into the package: float16 or int8 on disk, with its tokenizer, its task and its card.

python recipes/bundle.py models/en-de en-de --seen --also '{"length_penalty": 1.0}'
python recipes/bundle.py models/fill-en fill-en --precision int8
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import clearformer
from clearformer.checkpoints.convert import convert
from clearformer.tasks.bundled import read_card

CARDS = Path(__file__).parent / "cards"


def bundle(run: Path, name: str, precision: str, also: dict, seen: bool) -> None:
    folder = Path(clearformer.__file__).parent / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        kept = run if precision == "float16" else convert(run, Path(scratch) / name, "clearformer", precision="int8")
        weights = load_file(kept / "weights.safetensors")
    if precision == "float16":
        weights = {key: weight.half() for key, weight in weights.items()}
    assert all(bool(torch.isfinite(weight).all()) for weight in weights.values())
    save_file(weights, folder / "weights.safetensors")
    task = json.loads((run / "task.json").read_text())
    for key, value in also.items():
        task[key] = {**task.get(key, {}), **value} if isinstance(value, dict) else value
    for file, content in {"spec.json": json.loads((run / "spec.json").read_text()), "task.json": task}.items():
        (folder / file).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    for file in ("tokenizer.json", "words.json"):
        if (run / file).is_file():
            content = json.loads((run / file).read_text())
            (folder / file).write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")
    if seen:  # which test sentences it was trained on: 8 bytes a pair
        (folder / "seen.safetensors").write_bytes((run / "seen.safetensors").read_bytes())
    card = (CARDS / f"{name}.md").read_text()
    assert read_card(card)[0].get("license"), f"cards/{name}.md must begin with license, verbs and scores"
    (folder / "README.md").write_text(card)
    for path in folder.iterdir():
        path.chmod(0o644)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("run", type=Path)
    asked.add_argument("name")
    asked.add_argument("--precision", choices=("float16", "int8"), default="float16")
    asked.add_argument(
        "--also", type=json.loads, default={}, help="more for task.json, as JSON: its own way to generate"
    )
    asked.add_argument("--seen", action="store_true", help="keep which pairs it was trained on, for clearformer score")
    given = asked.parse_args()
    bundle(given.run, given.name, given.precision, given.also, given.seen)
