"""Generation is the public one: token for token what Hugging Face's `generate` gives for the same weights.

Tiny random models of every family that writes, with a vocabulary so small that texts do end. Their prompts are padded
on the left and their sources on the right, as they must be; ours on either side.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import clearformer as cf
from clearformer.assemble import Model
from clearformer.generate.options import GenerationOptions, plan
from clearformer.generate.requests import Written
from clearformer.generate.sampling import draw_from_all

hf.logging.set_verbosity_error()
hf.logging.disable_progress_bar()

VOCABULARY, PAD, ENDS, LIMIT = 40, 39, (5, 14, 36), 12
SIZES = {"vocab_size": VOCABULARY, "pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": list(ENDS)}
PROMPTS = [[3, 8, 20, 8], [7], [30, 2, 9, 30, 2, 4, 6], [21, 22, 3]]


def t5(head_width: int = 8, inner: int = 64, **rest: Any) -> hf.T5ForConditionalGeneration:
    more = {"decoder_start_token_id": PAD, "d_model": 32, "num_layers": 2, "num_heads": 4}
    return hf.T5ForConditionalGeneration(hf.T5Config(**SIZES, **more, d_kv=head_width, d_ff=inner, **rest))


def marian() -> hf.MarianMTModel:
    stacks = {
        f"{stack}_{name}": size
        for stack in ("encoder", "decoder")
        for name, size in {"layers": 2, "attention_heads": 4, "ffn_dim": 64}.items()
    }
    own = {"activation_function": "swish", "scale_embedding": True, "forced_eos_token_id": None}
    return hf.MarianMTModel(hf.MarianConfig(**SIZES, **stacks, **own, d_model=32, decoder_start_token_id=PAD))


THEIRS = {
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**SIZES, n_embd=32, n_layer=2, n_head=4, n_positions=70)),
    "llama": lambda: hf.LlamaForCausalLM(
        hf.LlamaConfig(
            **SIZES, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=48, rms_norm_eps=1e-5,
        )
    ),
    "t5": t5,
    "flan": lambda: t5(12, 48, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "marian": marian,
}  # fmt: skip
TWO_STACKS = ("t5", "flan", "marian")


@cache
def pair(family: str) -> tuple[hf.PreTrainedModel, Model]:
    from clearformer.checkpoints.huggingface import load_public

    torch.manual_seed(1)
    theirs = THEIRS[family]().eval()
    if family == "flan":  # published with two tables; a fresh one has one
        theirs.lm_head.weight = torch.nn.Parameter(torch.empty_like(theirs.lm_head.weight))
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if parameter.requires_grad:  # not Marian's sinusoids
                parameter.normal_(1.0 if parameter.dim() == 1 and name.endswith("weight") else 0.0, 0.35)
    if family == "marian":
        theirs.final_logits_bias.normal_()
    with TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return theirs, load_public(Path(folder))[0].eval()


def padded(rows: list[list[int]], side: str) -> tuple[torch.Tensor, torch.Tensor]:
    wide = max(map(len, rows))
    gaps = [[0] * (wide - len(row)) for row in rows]
    left = side == "left"
    mask = [gap + [1] * len(row) if left else [1] * len(row) + gap for row, gap in zip(rows, gaps, strict=True)]
    ids = [[PAD] * len(g) + row if left else row + [PAD] * len(g) for row, g in zip(rows, gaps, strict=True)]
    return torch.tensor(ids), torch.tensor(mask).bool()


def ask_them(family: str, rows: list[list[int]], ways: dict[str, Any]) -> list[list[int]]:
    theirs, _ = pair(family)
    ids, mask = padded(rows, "right" if family in TWO_STACKS else "left")  # what each can take
    settings = {"max_new_tokens": LIMIT, "do_sample": False, "eos_token_id": list(ENDS), "pad_token_id": PAD, **ways}
    found = theirs.generate(ids, attention_mask=mask.long(), **settings)
    new = found[:, 1 if family in TWO_STACKS else ids.size(1) :].tolist()
    ends = settings["eos_token_id"] or []
    cut = [next((n + 1 for n, token in enumerate(row) if token in ends), len(row)) for row in new]
    return [row[:n] for row, n in zip(new, cut, strict=True)]


def ask_us(family: str, rows: list[list[int]], side: str, **ways: Any) -> list[Written]:
    _, ours = pair(family)
    ids, mask = padded(rows, side)
    given: dict[str, Any] = {"max_new_tokens": LIMIT, "eos_token_id": ENDS, **ways}
    if family in TWO_STACKS:
        prompt = torch.full((len(rows), 1), PAD)
        given |= {"source": ids, "source_mask": mask}
    else:
        prompt = ids
        given["mask"] = mask
    if "num_beams" not in given:
        return cf.greedy(ours, prompt, **given)
    return [best[0] for best in cf.beam(ours, prompt, **given)]


def beam(early: bool | str, penalty: float) -> dict[str, Any]:
    return {"num_beams": 4, "early_stopping": early, "length_penalty": penalty}


SEARCHES: dict[str, dict[str, Any]] = {  # options of both
    "greedy": {},
    **{f"beam {p} {e}": beam(e == "early", p) for p in (0.6, 1.0, 2.0) for e in ("early", "late")},
    "beam 1.0 never": beam("never", 1.0),
}
NEVER = {"suppress_tokens": [PAD]}
RULES: dict[str, dict[str, Any]] = {
    "no rules": {},
    "no repeat": {"no_repeat_ngram_size": 2},
    "shortest": {"min_new_tokens": 6},
    "forced last": {"forced_eos_token_id": 14},
    "bad words": {"bad_words_ids": [[8], [30], [2]]},
    "repetition": {"repetition_penalty": 3.0},
    "repetition sought": {"repetition_penalty": 0.7},
    "all": {
        "repetition_penalty": 1.2,
        "no_repeat_ngram_size": 3,
        "min_new_tokens": 3,
        "forced_eos_token_id": 5,
    },
}


@pytest.mark.parametrize("family", THEIRS)
@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_alone_and_in_a_batch(family: str, search: str) -> None:
    ways = SEARCHES[search] | NEVER
    expected = ask_them(family, PROMPTS, ways)
    for side in ("left", "right"):
        assert [one.tokens for one in ask_us(family, PROMPTS, side, **ways)] == expected
    for row, tokens in list(zip(PROMPTS, expected, strict=True))[1:3]:
        assert ask_us(family, [row], "right", **ways)[0].tokens == tokens


@pytest.mark.parametrize("family", THEIRS)
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("search", ["greedy", "beam 1.0 late"])
def test_every_rule(family: str, rules: str, search: str) -> None:
    ways = SEARCHES[search] | NEVER | RULES[rules]
    expected = ask_them(family, PROMPTS, ways)
    found = ask_us(family, PROMPTS, "right", **ways)
    assert [one.tokens for one in found] == expected
    assert all((one.finish == "end") == (one.tokens[-1] in ENDS) for one in found)


@pytest.mark.parametrize("family", THEIRS)
@pytest.mark.parametrize("search", ["greedy", "beam 1.0 late"])
def test_bad_words_of_several_tokens(family: str, search: str) -> None:
    """Words that would come: the start of each text, and what would go on from the last token of a prompt."""
    ways = SEARCHES[search] | NEVER
    free = ask_them(family, PROMPTS, ways)
    words = [tokens[:size] for tokens, size in zip(free, (2, 3, 2, 3), strict=True) if len(tokens) >= size]
    words += [[PROMPTS[2][-1], free[2][0]]]
    expected = ask_them(family, PROMPTS, ways | {"bad_words_ids": words})
    assert [one.tokens for one in ask_us(family, PROMPTS, "right", bad_words_ids=words, **ways)] == expected
    assert expected != free


@pytest.mark.parametrize("family", TWO_STACKS)
@pytest.mark.parametrize("search", ["greedy", "beam 1.0 late"])
def test_a_forced_first_token_and_a_least_length_in_a_decoder(family: str, search: str) -> None:
    ways = SEARCHES[search] | {"forced_bos_token_id": 9, "min_length": 8}
    expected = ask_them(family, PROMPTS, ways)
    assert [one.tokens for one in ask_us(family, PROMPTS, "right", **ways)] == expected
    assert all(tokens[0] == 9 and len(tokens) >= 8 for tokens in expected)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_text_without_ends_goes_on_to_the_limit(family: str) -> None:
    for search in ("greedy", "beam 1.0 late"):
        ways = SEARCHES[search] | {"eos_token_id": None}
        expected = ask_them(family, PROMPTS, ways)
        found = ask_us(family, PROMPTS, "right", **ways)
        assert [one.tokens for one in found] == expected
        assert {one.finish for one in found} == {"limit"}


def test_the_searches_differ_where_they_should() -> None:
    """What makes the tests above worth something: texts that end and that do not, beams that differ."""
    found = {
        (family, search): [tuple(tokens) for tokens in ask_them(family, PROMPTS, SEARCHES[search] | NEVER)]
        for family in THEIRS
        for search in ("greedy", "beam 1.0 early", "beam 1.0 late", "beam 2.0 late")
    }
    texts = [text for row in found.values() for text in row]
    ended = sum(text[-1] in ENDS for text in texts)
    assert 0.2 * len(texts) < ended < 0.95 * len(texts)
    assert sum(len(text) > 3 for text in texts) > len(texts) / 2
    for one, other in (
        ("greedy", "beam 1.0 late"),
        ("beam 1.0 early", "beam 1.0 late"),
        ("beam 1.0 late", "beam 2.0 late"),
    ):
        assert any(found[family, one] != found[family, other] for family in THEIRS), (one, other)


@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"), [(5, 0.7, 0.1), (None, 0.9, None), (3, None, 0.3), (30, 0.5, 0.02)]
)
def test_the_same_tokens_are_left_to_draw_from(top_k: int | None, top_p: float | None, min_p: float | None) -> None:
    warpers = hf.LogitsProcessorList()
    if top_k is not None:
        warpers.append(hf.TopKLogitsWarper(top_k))
    if top_p is not None:
        warpers.append(hf.TopPLogitsWarper(top_p))
    if min_p is not None:
        warpers.append(hf.MinPLogitsWarper(min_p))
    ways = plan(GenerationOptions(do_sample=True, top_k=top_k, top_p=top_p, min_p=min_p), 1)
    for logits in torch.randn(12, VOCABULARY):
        left = warpers(None, logits[None].clone())[0].isfinite().nonzero().flatten().tolist()
        random = np.random.default_rng(0)  # so many draws that what is least likely among those left comes too
        drawn = {draw_from_all(logits.numpy(), ways, random.random) for _ in range(2000)}
        assert sorted(drawn) == left
