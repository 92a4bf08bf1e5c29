"""Greedy generation is Hugging Face's, token for token, with and without padding."""

import pytest
import torch

from clearformer.generate.search import greedy
from tests.checkpoints.cases import batch, pair, suitable

MOST = 12
DECODERS = ("gpt2", "llama", "llama tied", "llama llama3", "mistral", "qwen2", "qwen2 windows", "qwen3")


def theirs_after(tokens: list[int], end: int) -> list[int]:
    """Up to the first end, which their batches pad after."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def common(rows: list[list[int]]) -> int:
    """A token that comes up in the middle, so that stopping is tried too."""
    return rows[0][MOST // 2]


@torch.no_grad()
@pytest.mark.parametrize("name", DECODERS)
def test_decoders_continue_alike(name: str) -> None:
    theirs, ours, _ = pair(name)
    given = batch("left")
    options = {"max_new_tokens": MOST, "do_sample": False, "pad_token_id": 0}
    free = theirs.generate(given.ids, attention_mask=given.mask.long(), eos_token_id=-1, **options)
    rows = free[:, given.ids.size(1) :].tolist()
    assert [one.tokens for one in greedy(ours, given.ids, mask=given.mask, max_new_tokens=MOST)] == rows
    end = common(rows)
    stopped = theirs.generate(given.ids, attention_mask=given.mask.long(), eos_token_id=end, **options)
    expected = [theirs_after(row, end) for row in stopped[:, given.ids.size(1) :].tolist()]
    assert [
        one.tokens for one in greedy(ours, given.ids, mask=given.mask, max_new_tokens=MOST, eos_token_id=end)
    ] == expected
    alone = theirs.generate(given.ids[:1], attention_mask=given.mask[:1].long(), eos_token_id=-1, **options)
    assert greedy(ours, given.ids[:1], max_new_tokens=MOST)[0].tokens == alone[0, given.ids.size(1) :].tolist()


@torch.no_grad()
@pytest.mark.parametrize("name", ["t5", "flan_t5", "marian", "marian two tables", "pegasus", "captions"])
def test_encoder_decoders_write_alike(name: str) -> None:
    theirs, ours, _ = pair(name)
    source = suitable(name)[0] if name == "captions" else batch("right")
    inputs = {"pixel_values": source.ids} if name == "captions" else {"input_ids": source.ids}
    if source.mask is not None:
        inputs["attention_mask"] = source.mask.long()
    options = {"max_new_tokens": MOST, "do_sample": False, "pad_token_id": 0, "decoder_start_token_id": 7}
    rows = theirs.generate(**inputs, eos_token_id=-1, forced_eos_token_id=None, **options)[:, 1:].tolist()
    start = torch.full((len(source.ids), 1), 7)
    mine = greedy(ours, start, source=source.ids, source_mask=source.mask, max_new_tokens=MOST)
    assert [one.tokens for one in mine] == rows
    end = common(rows)
    stopped = theirs.generate(**inputs, eos_token_id=end, forced_eos_token_id=None, **options)[:, 1:].tolist()
    mine = greedy(ours, start, source=source.ids, source_mask=source.mask, max_new_tokens=MOST, eos_token_id=end)
    assert [one.tokens for one in mine] == [theirs_after(row, end) for row in stopped]
