"""Where does this number come from? Trace a small Transformer, read a cell, drop a head, see what changes."""

import torch
from rich.console import Console

import clearformer as cf


def main() -> None:
    console = Console()
    # A tiny untrained model is enough: its numbers are as real as a large one's, only less wise.
    model = cf.build(cf.presets.original("tiny"), seed=1)
    source, target = torch.tensor([[3, 4, 5, 6, 7]]), torch.tensor([[1, 9, 8]])
    words = {"source": ["how", "are", "you", "my", "friend"], "target": ["<s>", "wie", "geht"]}

    trace = cf.trace(model, source, target, words=words)
    console.print("One head of cross-attention: where each target word looks in the source\n", style="bold")
    console.print(trace["decoder.1.cross.h3.weights"])

    console.print("\nOne of its cells, and the numbers it was made of\n", style="bold")
    for address in ("decoder.1.cross.h3.weights[1,2]", "decoder.1.cross.h3.scores[1,2]"):
        print(trace.explain(address), end="\n\n")

    console.print("The same run without that head: which steps change, and by how much\n", style="bold")
    without = cf.trace(model, source, target, change={"decoder.1.cross.h3.mixed": 0})
    for address, most in trace.differences(without).items():
        if most > 0:
            print(f"{address:32} {most:.4f}")


if __name__ == "__main__":
    main()
