"""Answers are the best spans that a search through all spans finds, with probabilities of all of them."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import models, normalizers, pre_tokenizers, processors
from torch import Tensor

import clearformer as cf
from clearformer import presets
from clearformer.errors import CheckpointError, DataError
from clearformer.spec import MaskedToken, Spans
from clearformer.tasks.answer import Answer, Answerer
from clearformer.tasks.load import load
from clearformer.text.tokenizer import PublicTokenizer
from tests.laws.cases import loud

WORDS = "the tower was built in 1889 by a company of paris and it is tall . ? when who what ##s ##ed".split()  # noqa: SIM905
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
CONTEXT = "The tower was built in 1889 by a company of Paris, and it is tall. "
QUESTIONS = ["When was it built?", "Who built the tower?"]


def engine() -> Engine:
    made = Engine(models.WordPiece({token: n for n, token in enumerate(TOKENS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made


def answerer(longest: int | None = 64, family: str = "bert", **rest: Any) -> Answerer:
    what = getattr(presets, family)("tiny", vocabulary=len(TOKENS), length=longest or 512, head=Spans(), **rest)
    words = PublicTokenizer(engine(), {"pad": 0, "unknown": 1, "first": 2, "separator": 3})
    return Answerer(loud(cf.build(what, seed=1)).eval(), words, {"task": "answer", "longest": longest})  # type: ignore[arg-type]


def windows(one: Answerer, question: str, context: str, room: int, step: int) -> list[tuple[Tensor, list[Any]]]:
    """The logits of every window, computed one by one, and where its context tokens are in the context."""
    first, second = one.tokenizer.encode(question, special=False), one.tokenizer.encode(context, special=False)
    found = []
    for start in range(0, len(second.ids), step):
        ids, offsets = second.ids[start : start + room], second.offsets[start : start + room]
        row = [2, *first.ids, 3, *ids, 3]
        sides = [0] * (len(first.ids) + 2) + [1] * (len(ids) + 1)
        has = one.spec.stack.embed.segments > 0
        with torch.inference_mode():
            logits = one.model(torch.tensor([row]), segments=torch.tensor([sides]) if has else None)[0]
        found.append((logits, [None] * (len(first.ids) + 2) + list(offsets) + [None]))
        if start + room >= len(second.ids):
            break
    return found


def brute(made: list[tuple[Tensor, list[Any]]], longest: int, none: bool) -> dict[tuple[int, int], float]:
    """Every allowed span with its probability, best first; (0, 0) is no answer."""
    scores: dict[tuple[int, int], float] = {}
    for logits, offsets in made:
        for start, begins in enumerate(offsets):
            for end, ends in enumerate(offsets):
                if begins is None or ends is None or not start <= end < start + longest:
                    continue
                span, score = (begins[0], ends[1]), float(logits[start, 0]) + float(logits[end, 1])
                scores[span] = max(score, scores.get(span, -math.inf))
    if none:
        scores[0, 0] = min(float(logits[0, 0]) + float(logits[0, 1]) for logits, _ in made)
    total = sum(math.exp(score) for score in scores.values())
    return {span: math.exp(scores[span]) / total for span in sorted(scores, key=lambda span: -scores[span])}


def agree(found: Answer, expected: dict[tuple[int, int], float], context: str, top: int) -> None:
    every = [found, *found.others]
    assert [(one.start, one.end) for one in every] == list(expected)[:top]
    assert [one.probability for one in every] == pytest.approx(list(expected.values())[:top], abs=1e-5)
    assert all(one.text == context[one.start : one.end] for one in every)


def save_public(folder: Path, family: str = "bert", longest: int = 28) -> Any:
    """A random model of Hugging Face with its tokenizer, saved as the hub has them."""
    sizes = {"vocab_size": len(TOKENS), "max_position_embeddings": longest, "initializer_range": 0.4}
    if family == "bert":
        config = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        kind = transformers.BertForQuestionAnswering
    else:
        config = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
        kind = transformers.DistilBertForQuestionAnswering
    torch.manual_seed(3)
    model = kind(kind.config_class(**config, **sizes)).eval()
    model.save_pretrained(folder)
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=engine(), **names, model_max_length=longest)
    words.save_pretrained(folder)
    return model


@pytest.mark.parametrize("family", ["bert", "distilbert"])
@pytest.mark.parametrize("stride", [0, 4, 9])
@pytest.mark.parametrize("context", [CONTEXT, CONTEXT * 5])
def test_a_public_model_answers_as_with_its_own_library(tmp_path: Path, family: str, stride: int, context: str) -> None:
    """Windows by Hugging Face's tokenizer, logits by its model, spans by search."""
    model = save_public(tmp_path, family)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    question = "When was it built in?"
    made = words(
        question,
        context,
        truncation="only_second",
        max_length=28,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    windows = []
    for row, ids in enumerate(made["input_ids"]):
        sides = {"token_type_ids": torch.tensor([made["token_type_ids"][row]])} if family == "bert" else {}
        with torch.inference_mode():
            found = model(torch.tensor([ids]), **sides)
        sequence, offsets = made.sequence_ids(row), made["offset_mapping"][row]
        inside = [offset if side == 1 else None for offset, side in zip(offsets, sequence, strict=True)]
        windows.append((torch.stack([found.start_logits[0], found.end_logits[0]], -1), inside))
    ours = load(tmp_path, precision="float32")
    assert isinstance(ours, Answerer)
    assert ours.longest == 28
    for none in (False, True):
        found = ours.answer(question, context, top=6, longest_answer=7, impossible=none, stride=stride)[0]
        agree(found, brute(windows, 7, none), context, 6)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
@pytest.mark.parametrize("none", [False, True])
@pytest.mark.parametrize("longest", [1, 4, 30])
def test_the_best_of_all_spans(family: str, none: bool, longest: int) -> None:
    one = answerer(family=family)
    found = one.answer(QUESTIONS, CONTEXT, top=5, longest_answer=longest, impossible=none)
    for question, answer in zip(QUESTIONS, found, strict=True):
        expected = brute(windows(one, question, CONTEXT, 99, 99), longest, none)
        agree(answer, expected, CONTEXT, 5)
        assert answer.window == 0
        assert answer.impossible == (pytest.approx(expected[0, 0], abs=1e-6) if none else None)


@pytest.mark.parametrize(("stride", "step"), [(0, 19), (5, 14), (9, 10), (128, 10)])
def test_long_contexts_are_read_through_windows(stride: int, step: int) -> None:
    """A model of 28 tokens: 9 for the question and the special ones, 19 for the context; half is shared at most."""
    one, context = answerer(28), CONTEXT * 7
    question = "When was it built in ?"
    made = windows(one, question, context, 19, step)
    assert len(made) > 5
    found = one.answer(question, context, top=8, longest_answer=6, impossible=True, stride=stride)[0]
    expected = brute(made, 6, True)
    agree(found, expected, context, 8)
    assert found.impossible == pytest.approx(expected[0, 0], rel=1e-4)
    for each in (found, *found.others):
        if each.text:
            inside = [offset for offset in made[each.window][1] if offset is not None]
            assert inside[0][0] <= each.start < each.end <= inside[-1][1]


def test_probabilities_sum_to_one() -> None:
    one = answerer(30)
    for impossible in (False, True):
        found = one.answer("Who?", CONTEXT * 3, top=10**6, longest_answer=5, impossible=impossible)[0]
        assert sum(each.probability for each in (found, *found.others)) == pytest.approx(1, abs=1e-6)
        assert len({(each.start, each.end) for each in (found, *found.others)}) == 1 + len(found.others)


def test_no_answer_competes_only_if_asked() -> None:
    one = answerer()
    with torch.no_grad():  # every token but the first is made a poor start and end
        one.model.head = Always(torch.tensor([5.0, 5.0]), torch.tensor([-5.0, -5.0]))
    plain, asked = (one.answer("Who?", CONTEXT, impossible=impossible)[0] for impossible in (False, True))
    assert plain.text
    assert plain.impossible is None
    assert (asked.text, asked.start, asked.end) == ("", 0, 0)
    assert asked.probability == asked.impossible > 0.9


class Always(torch.nn.Module):
    """A head that says one thing of the first token and another of the rest."""

    def __init__(self, first: Tensor, rest: Tensor):
        super().__init__()
        self.first, self.rest = first, rest

    def forward(self, x: Tensor, places: Any) -> Tensor:
        logits = self.rest.expand(*x.shape[:2], 2).clone()
        logits[:, 0] = self.first
        return logits


@given(st.lists(st.sampled_from([*WORDS[:12], "\n", "  ", "Ünïcode", "日本語", "🙂"]), min_size=1, max_size=60))
def test_answers_are_slices_whatever_the_text(parts: list[str]) -> None:
    context = " ".join([*parts, "paris"])
    for each in MODEL.answer(QUESTIONS, context, top=3, longest_answer=9):
        for one in (each, *each.others):
            assert one.text == context[one.start : one.end] == one.text.strip() != ""


MODEL = answerer(24)


def test_the_same_alone_and_together() -> None:
    contexts = [CONTEXT, CONTEXT * 4, "It is tall."]
    questions = [*QUESTIONS, "What is it?"]
    together = MODEL.answer(questions, contexts, longest_answer=5)
    for question, context, found in zip(questions, contexts, together, strict=True):
        alone = MODEL.answer(question, context, longest_answer=5)[0]
        assert alone.text == found.text
        assert (alone.start, alone.end, alone.window) == (found.start, found.end, found.window)
        assert alone.probability == pytest.approx(found.probability, abs=1e-5)


def test_one_for_all() -> None:
    by_context = MODEL.answer(QUESTIONS[0], [CONTEXT, "It is tall."], longest_answer=3)
    assert len(by_context) == 2
    assert len(MODEL.answer(QUESTIONS, [CONTEXT], longest_answer=3)) == 2
    with pytest.raises(DataError, match="2 questions given with 3 contexts"):
        MODEL.answer(QUESTIONS, [CONTEXT] * 3)


@pytest.mark.parametrize("at_once", [1, 700, 10**6])
def test_groups_and_progress(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are encoded at once, the answers and the names in errors are the same."""
    questions, contexts = [*QUESTIONS, "What?"], [CONTEXT * 5, CONTEXT, CONTEXT * 2]
    expected = [MODEL.answer(*each, longest_answer=5)[0].text for each in zip(questions, contexts, strict=True)]
    monkeypatch.setattr("clearformer.tasks.answer.AT_ONCE", at_once)
    seen: list[tuple[int, int]] = []
    found = MODEL.answer(questions, contexts, longest_answer=5, done=lambda now, total: seen.append((now, total)))
    assert [one.text for one in found] == expected
    assert seen == sorted(seen)
    assert seen[-1] == (8 * len(CONTEXT),) * 2
    with pytest.raises(DataError, match="question 3 has 40 tokens"):
        MODEL.answer([*QUESTIONS, "the tower " * 20], contexts, longest_answer=5)


def test_spaces_at_the_ends_are_no_part_of_an_answer() -> None:
    """Byte-level tokens carry the space before them, and may be nothing else."""
    made = Engine(models.BPE(vocab={c: n for n, c in enumerate("Ġabc")}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.post_processor = processors.TemplateProcessing(pair="$A $B:1", special_tokens=[])
    what = presets.bert("tiny", vocabulary=4, head=Spans())
    one = Answerer(loud(cf.build(what, seed=2)).eval(), PublicTokenizer(made, {}), {})  # type: ignore[arg-type]
    context = "  ab  c  "
    found = one.answer("a", context, top=99)[0]
    spans = {(each.start, each.end) for each in (found, *found.others)}
    assert spans == {(2, 3), (2, 4), (2, 7), (3, 4), (3, 7), (6, 7)}
    assert sum(each.probability for each in (found, *found.others)) == pytest.approx(1, abs=1e-6)
    with pytest.raises(DataError, match="context 1 is empty"):
        one.answer("a", "  ")


def test_json_holds_what_was_asked_for() -> None:
    plain = MODEL.answer("Who?", CONTEXT, longest_answer=3)[0].to_dict()
    assert set(plain) == {"text", "start", "end", "probability", "window"}
    full = MODEL.answer("Who?", CONTEXT, longest_answer=3, top=2, impossible=True)[0].to_dict()
    assert set(full) == {*plain, "impossible", "others"}
    assert set(full["others"][0]) == {*plain, "impossible"}


@pytest.mark.parametrize(
    ("question", "context", "how", "said"),
    [
        ("", CONTEXT, {}, "question 1 is empty; ask something"),
        (["Who?", " \n"], CONTEXT, {}, "question 2 is empty"),
        ("Who?", "", {}, "context 1 is empty"),
        (["Who?", 3], CONTEXT, {}, "question 2 is of type int, not text: 3"),
        ("Who?", " \t\n", {}, "context 1 is empty"),
        ("the tower " * 20, CONTEXT, {}, "question 1 has 40 tokens and leaves room for 0 of the context in"),
        ("the tower " * 6, CONTEXT, {"longest_answer": 10}, "leaves room for 9 of the context"),
        ("Who?", "\u200b\u200c", {}, "no tokens that this model's tokenizer knows"),
        ("Who?", CONTEXT, {"top": 0}, "top must be at least 1, given 0"),
        ("Who?", CONTEXT, {"longest_answer": 0}, "longest_answer must be at least 1"),
        ("Who?", CONTEXT, {"stride": -1}, "stride must be at least 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_said(question: Any, context: str, how: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        MODEL.answer(question, context, **how)


def test_other_verbs_and_other_heads() -> None:
    with pytest.raises(DataError, match=r"this model cannot classify: .*; it can answer"):
        MODEL.classify("a")
    model = cf.build(presets.bert("tiny", vocabulary=len(TOKENS), head=MaskedToken()))
    with pytest.raises(CheckpointError, match="to answer, a model needs 'spans'; its head is 'masked_token'"):
        Answerer(model, MODEL.tokenizer, {})  # type: ignore[arg-type]
