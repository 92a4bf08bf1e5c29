"""Vectors, compared with states that Hugging Face's models give, pooled here by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import clearformer as cf
from clearformer.errors import CheckpointError, DataError
from clearformer.tasks.embed import Embedder, unit
from tests.tasks.encoders import LONGEST, TEXTS, byte_pieces, long_text, save

Each = tuple[Embedder, Any, Any]
POOLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": lambda states: states.mean(0),
    "first": lambda states: states[0],
    "last": lambda states: states[-1],
}


@pytest.fixture(scope="module", params=["BertModel", "DistilBertModel", "RobertaModel", "BertForMaskedLM"])
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Each:
    folder, model, tokenizer = save(tmp_path_factory.mktemp("embed") / "model", request.param)
    return cf.load(folder, precision="float32"), getattr(model, "bert", model), tokenizer


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    return cf.load(save(tmp_path_factory.mktemp("one") / "model", "BertModel")[0], precision="float32")


def states(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).last_hidden_state[0]


@pytest.mark.parametrize("pool", POOLS)
def test_vectors_are_pooled_states(each: Each, pool: Any) -> None:
    ours, model, tokenizer = each
    wanted = np.stack([POOLS[pool](states(model, tokenizer(text)["input_ids"])).numpy() for text in TEXTS])
    found = ours.embed(TEXTS, pool=pool, normalise=False)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    lengths = np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(ours.embed(TEXTS, pool=pool, normalise=True), wanted / lengths, atol=1e-5)


def test_a_split_text_is_the_mean_of_its_windows(each: Each) -> None:
    ours, model, tokenizer = each
    text = long_text()
    windows = tokenizer(text, truncation=True, max_length=LONGEST, return_overflowing_tokens=True)["input_ids"]
    weights = np.array([len(ids) - 2 for ids in windows])
    rows = np.stack([states(model, ids).mean(0).numpy() for ids in windows])
    found = ours.embedded([text, TEXTS[0]], pool="mean", normalise=False, on_long="split")
    np.testing.assert_allclose(found.vectors[0], weights / weights.sum() @ rows, atol=1e-5)
    assert found.finish == ["split", "whole"]


def test_a_truncated_text_is_its_start_and_says_so(each: Each) -> None:
    ours, model, tokenizer = each
    ids = tokenizer(long_text(), truncation=True, max_length=LONGEST)["input_ids"]
    found = ours.embedded([TEXTS[0], long_text()], pool="mean", normalise=False, on_long="truncate")
    np.testing.assert_allclose(found.vectors[1], states(model, ids).mean(0).numpy(), atol=1e-5)
    assert found.finish == ["whole", "truncated"]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([*TEXTS, *(text[:9] for text in TEXTS)]), min_size=1, max_size=20))
def test_neither_batch_nor_order_matters(embedder: Embedder, texts: list[str]) -> None:
    together = embedder.embed(texts)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(embedder.embed(text)[0], vector, atol=2e-6)


def test_more_texts_than_are_read_at_once(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = embedder.embed(TEXTS)
    monkeypatch.setattr("clearformer.tasks.encoder_task.AT_ONCE", 3)
    monkeypatch.setattr("clearformer.tasks.encoder_task.BUDGET", 30)
    finished: list[int] = []
    np.testing.assert_allclose(embedder.embed(TEXTS, done=finished.append), wanted, atol=2e-6)
    assert sum(finished) == len(TEXTS)
    with pytest.raises(DataError, match="text 7 is too long"):
        embedder.embed([*TEXTS[:6], long_text()])


def test_the_model_says_how(embedder: Embedder) -> None:
    def told(**facts: Any) -> Embedder:
        return Embedder(embedder.model, embedder.tokenizer, facts)

    plain = embedder.embed(TEXTS, pool="mean", normalise=False)
    np.testing.assert_array_equal(told().embed(TEXTS), plain)
    np.testing.assert_array_equal(told(pool="first").embed(TEXTS), embedder.embed(TEXTS, pool="first", normalise=False))
    np.testing.assert_array_equal(told(normalise=True).embed(TEXTS), unit(plain))
    np.testing.assert_array_equal(told(normalise=True).embed(TEXTS, normalise=False), plain)
    with pytest.raises(DataError, match="this model takes 8 tokens"):
        told(longest=8).embed(TEXTS)


@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM"])
def test_where_the_model_does_not_say_how_it_is_the_mean_as_it_is(name: str, tmp_path: Path) -> None:
    found = cf.load(save(tmp_path, name)[0], precision="float32")
    np.testing.assert_array_equal(found.embed(TEXTS), found.embed(TEXTS, pool="mean", normalise=False))


def test_cosines(embedder: Embedder) -> None:
    a, b = embedder.embed(TEXTS[:2]).astype(float), embedder.embed(TEXTS[2:5]).astype(float)
    wanted = [[x @ y / np.sqrt((x @ x) * (y @ y)) for y in b] for x in a]
    np.testing.assert_allclose(embedder.similarity(TEXTS[:2], TEXTS[2:5]), wanted, atol=1e-6)
    assert embedder.similarity("It rains.", "It rains.")[0, 0] == pytest.approx(1)
    assert np.array_equal(unit(np.zeros((1, 3), np.float32)), np.zeros((1, 3)))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([TEXTS[0], " "], "text 2 is empty"),
        (["\u200b"], "text 1 has no tokens"),
        ([3.5], "text 1 is of type float"),
        ([long_text()], "text 1 is too long: this model takes 24 tokens"),
        (["a b " * 2_500_000], "text 1 is too long: this model takes 24 tokens"),
    ],
)
def test_bad_texts(embedder: Embedder, texts: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        embedder.embed(texts)


def test_other_misuse(embedder: Embedder) -> None:
    with pytest.raises(DataError, match="pool must be mean, first or last, given 'max'"):
        embedder.embed("It rains.", pool="max")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"cannot classify: .* it can embed"):
        embedder.classify("It rains.")
    with pytest.raises(CheckpointError, match="needs one stack; it is another"):
        Embedder(cf.build(cf.presets.t5("tiny")), embedder.tokenizer, {})  # type: ignore[arg-type]
    assert embedder.embed([]).shape == (0, 32)


def test_our_own_folder_gives_the_same(embedder: Embedder, tmp_path: Path) -> None:
    cf.save_model(embedder.model, tmp_path / "ours")
    embedder.tokenizer.save(tmp_path / "ours")
    (tmp_path / "ours" / "task.json").write_text('{"task": "embed", "pool": "last", "normalise": true, "longest": 24}')
    again = cf.load(tmp_path / "ours", precision="float32")
    np.testing.assert_array_equal(again.embed(TEXTS), embedder.embed(TEXTS, pool="last", normalise=True))


# --- folders of sentence-transformers ---------------------------------------------------------------------


class Sentences:
    """What sentence-transformers 6 does with a folder, text by text, on transformers' own model and tokenizer."""

    def __init__(self, folder: Path, pooling: dict[str, Any], said: dict[str, Any]):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModel.from_pretrained(folder).eval()
        self.prompt = said.get("prompts", {}).get(said.get("default_prompt_name"), "")
        self.skips = not pooling.get("include_prompt", True)
        self.mode = next(key.removeprefix("pooling_mode_") for key, value in pooling.items() if value is True)

    @torch.no_grad()
    def encode(self, texts: str | list[str], prompt: str | None = None) -> np.ndarray:
        if isinstance(texts, str):
            return self.encode([texts], prompt)[0]
        return np.stack([self._vector(self.prompt if prompt is None else prompt, text) for text in texts])

    def _vector(self, prompt: str, text: str) -> np.ndarray:
        ids = self.tokenizer(prompt + text, truncation=True, max_length=self.longest)["input_ids"]
        states = self.model(torch.tensor([ids])).last_hidden_state[0]
        if prompt and self.skips:
            begun = self.tokenizer(prompt)["input_ids"]
            states = states[len(begun) - (begun[-1] in self.tokenizer.all_special_ids) :]
        pooled = {"mean_tokens": states.mean(0), "cls_token": states[0], "lasttoken": states[-1]}[self.mode]
        return torch.nn.functional.normalize(pooled, dim=0).numpy()

    @property
    def longest(self) -> int:
        return self.model.config.max_position_embeddings


def sentences(folder: Path, pooling: dict[str, Any], **said: Any) -> Sentences:
    """Makes a model's folder one of a sentence encoder, and gives it as it is to be read."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate(kinds.items())
    ]
    (folder / "1_Pooling").mkdir(exist_ok=True)
    for name, value in {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": 32, **pooling},
        "config_sentence_transformers.json": said,
    }.items():
        (folder / name).write_text(json.dumps(value))
    return Sentences(folder, pooling, said)


@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token", "lasttoken"])
@pytest.mark.parametrize("include", [True, False])
def test_a_default_prompt_is_put_before_each_text(mode: str, include: bool, tmp_path: Path) -> None:
    folder = save(tmp_path / "model", "BertModel")[0]
    pooling: dict[str, Any] = {
        f"pooling_mode_{each}": each == mode for each in ("mean_tokens", "cls_token", "lasttoken")
    }
    prompts = {"query": "the film: ", "passage": "a cat "}
    theirs = sentences(folder, {**pooling, "include_prompt": include}, prompts=prompts, default_prompt_name="query")
    ours, texts = cf.load(folder, precision="float32"), TEXTS[3:]
    np.testing.assert_allclose(ours.embed(texts), theirs.encode(texts), atol=1e-5)
    for prompt in ("a cat ", ""):
        np.testing.assert_allclose(ours.embed(texts, prompt=prompt), theirs.encode(texts, prompt=prompt), atol=1e-5)
    if mode != "lasttoken" or include:
        assert np.abs(ours.embed(texts) - ours.embed(texts, prompt="")).max() > 1e-3
    with pytest.raises(DataError, match="text 1 is empty"):
        ours.embed(" ")


def test_a_prompt_that_is_left_out_cannot_be_split(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", "BertModel")[0]
    pooling = {"pooling_mode_mean_tokens": True, "include_prompt": False}
    theirs = sentences(folder, pooling, prompts={"query": "the film: "}, default_prompt_name="query")
    ours = cf.load(folder, precision="float32")
    with pytest.raises(DataError, match="only the first part of a text that is split has one; truncate"):
        ours.embed(long_text(), on_long="split")
    np.testing.assert_allclose(ours.embed(long_text(), on_long="truncate")[0], theirs.encode(long_text()), atol=1e-5)


@pytest.mark.parametrize("headed", [True, False])
def test_a_decoder_with_a_pooling_embeds_by_its_last_token(headed: bool, tmp_path: Path) -> None:
    """As Qwen3-Embedding: the class of a language model, one table for both ends, and padding before the texts."""
    tokenizer = byte_pieces()
    tokenizer.padding_side = "left"
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    more = {"num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": True, "max_position_embeddings": 64}
    config = transformers.Qwen3Config(vocab_size=len(tokenizer), **sizes, **more)
    torch.manual_seed(7)
    model = (transformers.Qwen3ForCausalLM if headed else transformers.Qwen3Model)(config)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    theirs = sentences(tmp_path, {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False})
    ours, texts = cf.load(tmp_path, precision="float32"), [TEXTS[3], TEXTS[7], "a"]
    assert ours.can == ("embed",)
    np.testing.assert_allclose(ours.embed(texts), theirs.encode(texts), atol=1e-5)
