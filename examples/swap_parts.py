"""One specification, many models: change a part by its path, and get a working model or a clear error."""

import torch

import clearformer as cf
from clearformer.spec import ALiBi, BigBird, Gated, Window


def main() -> None:
    base = cf.presets.gpt2("tiny")
    ids = torch.arange(12)[None]
    variants = {
        "as it is": base,
        "ALiBi instead of a table": base.replace(
            {"stack.embed.positions": None, "stack.blocks.*.self.positions": ALiBi()}
        ),
        "a window in the first layer": base.replace({"stack.blocks.0.self.pattern": Window(size=4)}),
        "one key head for all": base.replace({"stack.blocks.*.self.key_heads": 1}),
        "gated feed-forward": base.replace({"stack.blocks.*.feedforward.layer": Gated(inner=64)}),
    }
    for name, spec in variants.items():
        model = cf.build(spec, seed=0)
        print(f"{name:28} {cf.count_parameters(spec):7,} parameters, logits {tuple(model(ids).shape)}")

    print("\nWhat does not fit says so:")
    for changes in (
        {"stack.blocks.*.self.heads": 5},
        {"stack.blocks.0.self.pattern": BigBird()},
        {"stack.blocks.0.self.patern": Window(size=4)},
    ):
        try:
            base.replace(changes)
        except cf.SpecError as error:
            print(f"  {error}")


if __name__ == "__main__":
    main()
