"""Time and memory to load a 135 M-parameter checkpoint: ours, and Hugging Face transformers', in one run.

    python bench/load.py [--rounds 3] [--folder FOLDER]

A Llama of 30 layers and width 576 (float32, 538 MB) is written in the public layout, unless a folder is given. Each
contender loads it in a process of its own, in turns, after it has loaded a small one, so that imports are done; the
file is in the system's cache. Counted are the seconds to load, to load and answer eight tokens, and by how much the
resident memory grew at its peak, mapped pages included. Ours reads every weight while it loads, to refuse those that
are no numbers; theirs when it first answers. The best round of each counts. The bars: 2 seconds,
1.2 times its size; as int8, 1.3 times the size as int8.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

MOST_SECONDS, MOST_MEMORY, MOST_INT8 = 2.0, 1.2, 1.3
Loader = Callable[[Path], Callable[[torch.Tensor], torch.Tensor]]


def ours() -> Loader:
    from clearformer.checkpoints.huggingface import load_public

    def load(folder: Path) -> Callable[[torch.Tensor], torch.Tensor]:
        return load_public(folder)[0]

    return load


def transformers() -> Loader:
    from transformers import LlamaForCausalLM, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()

    def load(folder: Path) -> Callable[[torch.Tensor], torch.Tensor]:
        model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        return lambda ids: model(ids).logits

    return load


def packed(precision: str) -> Loader:
    from clearformer.tasks.load import open_packed

    def load(folder: Path) -> Callable[[torch.Tensor], torch.Tensor]:
        return open_packed(folder, precision=precision).model

    return load


CONTENDERS: dict[str, Callable[[], Loader]] = {
    "ours": ours,
    "ours packed": lambda: packed("float32"),  # as it is run: matrices in panels
    "ours as int8": lambda: packed("int8"),  # made int8 while it is loaded
    "ours from int8": lambda: packed("int8"),  # of a folder that is kept so
    "transformers": transformers,
}


def held(field: str) -> int:
    """Bytes: VmRSS now, or VmHWM at the peak."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


@torch.no_grad()
def measure(contender: str, small: Path, folder: Path) -> dict[str, float]:
    ids = torch.arange(1, 9)[None]
    load = CONTENDERS[contender]()
    load(small)(ids)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before, start = held("VmRSS"), time.perf_counter()
    model = load(folder)
    loaded, peak = time.perf_counter() - start, held("VmHWM") - before
    answer = model(ids)
    answered = time.perf_counter() - start
    total = held("VmHWM") - before
    return {
        "load": loaded,
        "answer": answered,
        "peak": peak,
        "total": total,
        "sum": float(answer.double().abs().sum()),
    }


def make(place: Path) -> tuple[Path, Path]:
    import clearformer as cf
    from clearformer.checkpoints.huggingface import save_public

    for size in ("tiny", "135m"):
        save_public(cf.build(cf.presets.llama(size), seed=0), place / size)
    return place / "tiny", place / "135m"


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def main(rounds: int, given: Path | None) -> bool:
    from clearformer.checkpoints.convert import convert

    with tempfile.TemporaryDirectory() as scratch:
        small, folder = make(Path(scratch))
        folder = given or folder
        int8 = convert(folder, Path(scratch) / "int8", to="clearformer", precision="int8")
        size, small_size = size_of(folder), size_of(int8)
        best: dict[str, dict[str, float]] = {}
        for _ in range(rounds):
            for name in CONTENDERS:
                what = int8 if name == "ours from int8" else folder
                command = [sys.executable, __file__, "--measure", name, str(small), str(what)]
                found = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
                old = best.get(name, found)
                best[name] = {key: min(found[key], old[key]) for key in found}
    sizes = f"{size / 1e6:,.0f} MB, as int8 {small_size / 1e6:,.0f} MB"
    print(f"{sizes}; {os.cpu_count()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{'':16}{'load':>10}{'and answer':>12}{'memory at peak':>22}{'and answer':>22}")
    for name, found in best.items():
        own = small_size if "int8" in name else size
        memory = "".join(f"{found[key] / 1e6:>12,.0f} MB {found[key] / own:>5.2f} ×" for key in ("peak", "total"))
        print(f"{name:16}{found['load']:>8.2f} s{found['answer']:>10.2f} s{memory}")
    one, run, other = best["ours"], best["ours packed"], best["transformers"]
    ratios = {key: one[key] / other[key] for key in ("load", "answer", "total")}
    print(
        "ours : transformers  load {load:.2f}, and answer {answer:.2f}, memory with the answer {total:.2f}".format(
            **ratios
        )
    )
    for each in (one, run):
        assert abs(each["sum"] / other["sum"] - 1) < 1e-5, "they do not answer the same"
    both = [
        max(each["peak"], each["total"]) <= MOST_MEMORY * size and each["load"] < MOST_SECONDS for each in (one, run)
    ]
    met = all(both) and all(best[name]["total"] <= MOST_INT8 * small_size for name in best if "int8" in name)
    print(f"bars ({MOST_SECONDS:.0f} s; {MOST_MEMORY} × its size, int8 {MOST_INT8} ×): {'met' if met else 'missed'}")
    return met


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="a Llama checkpoint to load instead of the made one")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(asked.measure[0], Path(asked.measure[1]), Path(asked.measure[2]))))
    else:
        sys.exit(0 if main(asked.rounds, asked.folder) else 1)
