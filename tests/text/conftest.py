"""Tokenizers that several files of tests look at: ours and those of transformers, over the same folders.

What makes them is imported only where they are asked for: it takes seconds, and other tests here do not need it.
"""

from pathlib import Path
from typing import Any

import pytest

from clearformer.text.learn import learn
from clearformer.text.tokenizer import PublicTokenizer


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from tests.text.kinds import KINDS

    return {name: make(tmp_path_factory.mktemp(name)) for name, make in KINDS.items()}


@pytest.fixture(scope="session")
def words(folders: dict[str, Path]) -> dict[str, PublicTokenizer]:
    from tests.text.kinds import TEXTS

    public = {name: PublicTokenizer.load(folder) for name, folder in folders.items()}
    own = {kind: PublicTokenizer.of(learn(TEXTS, kind, 600, extra=("<mask>",))) for kind in ("bpe", "unigram", "char")}
    return {**public, **own, "word": PublicTokenizer.of(learn(TEXTS, "word", 300), start=False)}


@pytest.fixture(scope="session")
def theirs(folders: dict[str, Path]) -> dict[str, Any]:
    from tests.text import kinds

    made = {name: each.from_pretrained(folders[name]) for name, each in kinds.THEIRS.items()}
    made |= {"t5": kinds.public_t5(folders["t5"]), "llama": kinds.public_llama(folders["llama"], add_bos_token=True)}
    return made
