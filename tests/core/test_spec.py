"""Specs: equal after a trip through JSON, changed by paths, and clear about what does not fit."""

import pytest

import clearformer as cf
from clearformer import presets, spec
from clearformer.spec import Causal, Compressed, Everyone, Near, Rotary, Window


@pytest.mark.parametrize("family", presets.FAMILIES)
def test_every_size_of_every_family_is_a_spec(family: str) -> None:
    for size in presets.SIZES[family]:
        what = presets.FAMILIES[family](size)
        assert cf.Spec.from_json(what.to_json()) == what
        assert str(what).startswith(type(what).__name__)


def test_replace_every_layer_one_layer_and_a_whole_part() -> None:
    base = presets.gpt2("tiny")
    assert {b.branches[0].layer.heads for b in base.replace({"stack.blocks.*.self.heads": 8}).stack.blocks} == {8}
    one = base.replace({"stack.blocks.1.self.pattern": Window(size=4)})
    assert one.at("stack.blocks.1.self.pattern") == Window(size=4)
    assert one.at("stack.blocks.0.self.pattern") == Causal()
    assert base.replace(head=spec.States()).head == spec.States()
    assert base.at("stack.blocks.0.self.pattern") == Causal(), "the old spec is as it was"


def test_changes_follow_one_another_and_stay_where_they_were_made() -> None:
    base = presets.llama("tiny")
    both = base.replace({"stack.blocks.*.self.positions": Rotary(base=5e5), "stack.blocks.0.self.positions.base": 7.0})
    assert [both.at(f"stack.blocks.{n}.self.positions.base") for n in (0, 1)] == [7.0, 5e5]
    longer = base.replace({"stack.blocks": base.stack.blocks * 2, "stack.blocks.3.self.heads": 8})
    assert [longer.at(f"stack.blocks.{n}.self.heads") for n in range(4)] == [4, 4, 4, 8]
    assert base.replace({"head": spec.Classes(count=3), "head.count": 4}).head == spec.Classes(count=4)


def test_specs_are_frozen_and_compare_by_value() -> None:
    base = presets.bert("tiny")
    with pytest.raises(Exception, match="frozen"):
        base.stack.width = 3  # type: ignore[misc]
    assert base == presets.bert("tiny")
    assert base != presets.bert("tiny", length=100)
    assert len({presets.bert("tiny"), presets.bert("tiny")}) == 1


def test_printing_writes_equal_blocks_once() -> None:
    text = str(presets.llama("llama-2-7b"))
    assert "blocks 0–31: Block" in text
    assert text.count("SelfAttention") == 1


GPT = presets.gpt2("tiny")
PAIR = presets.original("tiny")
BAD = {
    "heads that do not divide": (
        lambda: GPT.replace({"stack.blocks.*.self.heads": 5}),
        "blocks.0.self.heads (5) must divide width (32)",
    ),
    "key heads that do not divide": (
        lambda: spec.SelfAttention(heads=4, key_heads=3),
        "key_heads (3) must divide heads (4)",
    ),
    "a width of nothing": (
        lambda: GPT.replace({"stack.width": 0}),
        "stack.width: Input should be greater than 0, given 0",
    ),
    "a width that is no number": (
        lambda: GPT.replace({"stack.width": "wide"}),
        "stack.width: Input should be a valid integer",
    ),
    "an unknown field": (lambda: GPT.replace({"stack.blocks.*.self.hedas": 3}), "did you mean 'heads'"),
    "an unknown top field": (lambda: GPT.replace(hed=3), "did you mean 'head'"),
    "an unknown field when made": (lambda: spec.Plain(inner=3, actvation="relu"), "did you mean 'activation'"),
    "an unknown kind": (
        lambda: GPT.replace({"stack.blocks.0.self.pattern": {"kind": "casual"}}),
        "did you mean 'causal'",
    ),
    "an unknown activation": (lambda: spec.Plain(inner=3, activation="rleu"), "'relu'"),
    "an unknown key in JSON": (
        lambda: cf.Spec.from_json(GPT.to_json().replace('"vocabulary"', '"vocabluary"')),
        "did you mean 'vocabulary'",
    ),
    "an unknown model kind": (lambda: cf.Spec.from_json('{"kind": "tansformer"}'), "did you mean 'transformer'"),
    "broken JSON": (lambda: cf.Spec.from_json('{"kind": '), "not valid JSON"),
    "an unknown size": (lambda: presets.bert("bass"), "did you mean 'base'"),
    "the future in a decoder": (
        lambda: GPT.replace({"stack.blocks.1.self.pattern": Everyone()}),
        "stack.blocks.1.self: pattern 'everyone' would see the future",
    ),
    "the near future in a decoder": (
        lambda: PAIR.replace({"decoder.blocks.0.self.pattern": Near(radius=1)}),
        "decoder.blocks.0.self: pattern 'near' would see the future",
    ),
    "compression in a decoder": (
        lambda: GPT.replace({"stack.blocks.0.self.compressed": Compressed(length=8, rank=2)}),
        "leak the future",
    ),
    "compression where everyone sees, in a decoder": (
        lambda: GPT.replace(
            {"stack.blocks.0.self.compressed": Compressed(length=8, rank=2), "stack.blocks.0.self.pattern": Everyone()}
        ),
        "compressed keys would see the future",
    ),
    "compression with relative positions": (
        lambda: spec.SelfAttention(heads=2, compressed=Compressed(length=8, rank=2), positions=Rotary()),
        "no positions of their own",
    ),
    "rotary on odd heads": (
        lambda: presets.llama("tiny").replace({"stack.blocks.*.self.head_width": 5}),
        "even head width, given 5",
    ),
    "sinusoids on an odd width": (
        lambda: spec.Stack(
            width=3, embed=spec.Tokens(vocabulary=9, positions=spec.Sinusoid()), blocks=GPT.stack.blocks[:1]
        ),
        "must divide width",
    ),
    "cross-attention without memory": (
        lambda: GPT.replace({"stack.blocks.0": PAIR.decoder.blocks[0]}),
        "cross-attention has no memory in a single stack",
    ),
    "a decoder that never looks at the source": (
        lambda: PAIR.replace({"decoder.blocks": GPT.stack.blocks}),
        "never see the encoder's output",
    ),
    "tables that cannot be shared": (
        lambda: PAIR.replace({"encoder.embed.vocabulary": 7}),
        "shared: (vocabulary, width) must agree, given (7, 32) and (100, 32)",
    ),
    "words from a model of images": (
        lambda: presets.vit("tiny").replace(head=spec.MaskedToken()),
        "needs a stack that embeds tokens",
    ),
    "patches that do not tile": (lambda: presets.vit("tiny", patch=5), "patch (5) must divide both sides"),
    "a table too short for the patches": (
        lambda: presets.vit("tiny").replace({"stack.embed.positions": spec.Learned(length=3)}),
        "must hold the 10 patches",
    ),
    "two branches of one name": (
        lambda: spec.Block(branches=(GPT.stack.blocks[0].branches[0],) * 2),
        "branch names must differ",
    ),
    "dropout of everything": (
        lambda: GPT.replace({"stack.embed.dropout": 1.0}),
        "stack.embed.dropout: Input should be less than 1",
    ),
    "not a number": (lambda: GPT.replace({"stack.embed.dropout": float("nan")}), "stack.embed.dropout"),
    "a size beyond all models": (
        lambda: GPT.replace({"stack.width": 10**21}),
        "stack.width: Input should be less than",
    ),
    "a vocabulary of nothing": (
        lambda: presets.gpt2("tiny", vocabulary=0),
        "vocabulary: Input should be greater than 0",
    ),
    "a branch that takes a module's name": (
        lambda: spec.Block(branches=(GPT.stack.blocks[0].branches[0].replace(name="keys"),)),
        "'keys' cannot name a branch",
    ),
    "a branch that looks like a head": (
        lambda: spec.Block(branches=(GPT.stack.blocks[0].branches[0].replace(name="h1"),)),
        "'h1' cannot name a branch",
    ),
    "no blocks": (lambda: GPT.replace({"stack.blocks": ()}), "stack.blocks"),
    "a star where there is no list": (lambda: GPT.replace({"stack.*.width": 3}), "'*' means every item of a list"),
    "a path into nothing": (
        lambda: GPT.replace({"stack.blocks.0.self.positions.base": 3}),
        "stack.blocks.0.self.positions.base",
    ),
    "a block that is not there": (lambda: GPT.replace({"stack.blocks.9.self.heads": 2}), "no item '9'"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_specs(what: str) -> None:
    make, message = BAD[what]
    with pytest.raises(cf.SpecError) as caught:
        make()
    assert message in str(caught.value)


def test_json_errors_name_every_fault_with_its_path() -> None:
    broken = GPT.to_json().replace('"inner"', '"iner"')
    with pytest.raises(cf.SpecError) as caught:
        cf.Spec.from_json(broken)
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("stack.blocks.0.branches.feedforward.layer.inner: this field is required")
    assert "iner: unknown field; did you mean 'inner'" in lines[1]


def test_a_branch_hides_no_field_of_its_layer() -> None:
    """Paths look through a branch into its layer, so the two must not share a name."""
    own = set(spec.Residual.model_fields)
    for layer in (spec.SelfAttention, spec.CrossAttention, spec.Plain, spec.Gated):
        assert not own & set(layer.model_fields)
    assert GPT.at("stack.blocks.0.feedforward.inner") == 128
