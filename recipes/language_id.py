"""Texts and their language, for recipes/language-id.toml: everyday ones where there are some, else programs' messages.

    python recipes/language_id.py data data/language-id WHEEL ...

`data` has tatoeba-en-de, tatoeba-en-hi and, if there, monolingual; each WHEEL is a Python package with gettext
catalogues (Django, Wagtail, Sphinx, django CMS, Django REST framework, allauth, Superset: BSD, MIT and Apache-2.0).
Writes train, valid and test.tsv: text, tab, language. Besides as it is, a training text comes in lower case, without
signs, or as its first words: people type so.
"""

import gettext
import gzip
import random
import re
import sys
import unicodedata
import zipfile
from pathlib import Path

LANGUAGES = ["en", "de", "hi", "fr", "es", "it", "pt", "nl", "pl", "sv", "ru", "tr"]
CATALOGUE = re.compile(r"/([a-z]{2})(?:[_-][A-Za-z]+)?/LC_MESSAGES/\w+\.mo$")
FILLED = re.compile(r"%\(\w+\)[a-z]|%[a-z]|\{[^}]*\}|<[^>]*>|&\w+;|https?://\S+|[*`_#\\|\[\]]")
EVERYDAY = {"en": "tatoeba-en-de", "de": "tatoeba-en-de", "hi": "tatoeba-en-hi"}
SPOKEN = {"de": "monolingual/commonvoice.de.gz", "hi": "monolingual/commonvoice.hi.gz"}
MOST = 20_000  # texts of one language and kind


def lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().split("\n")[:-1] if path.is_file() else []


def messages(wheels: list[Path]) -> dict[str, list[str]]:
    """What the catalogues say in each language, and in no other of them."""
    found: dict[str, dict[str, None]] = {language: {} for language in LANGUAGES}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as files:
            for name in files.namelist():
                match = CATALOGUE.search(name)
                if match and match[1] in found and match[1] != "en":
                    with files.open(name) as handle:
                        catalogue = gettext.GNUTranslations(handle)._catalog
                    for key, text in catalogue.items():
                        source = key[0] if isinstance(key, tuple) else key
                        for language, each in ((match[1], text), ("en", source)):
                            each = plain(each)
                            if enough(each) and (language == "en" or each != plain(source)):
                                found[language][each] = None
    times: dict[str, int] = {}
    for texts in found.values():
        for text in texts:
            times[text] = times.get(text, 0) + 1
    return {language: [text for text in texts if times[text] == 1] for language, texts in found.items()}


def plain(text: str) -> str:
    return " ".join(FILLED.sub(" ", text.partition("\n\n")[0]).split())[:300]


def enough(text: str) -> bool:
    letters = sum(character.isalpha() for character in text)
    return len(text.split()) >= 2 and letters >= 8 and letters > 0.6 * len(text)


def as_typed(text: str, draw: random.Random) -> str:
    """In lower case, without signs, or only its first words."""
    way = draw.randrange(4)
    if way == 0:
        return text.lower()
    if way == 1:
        return "".join(c for c in text if not unicodedata.category(c).startswith("P"))
    if way == 2:
        return " ".join(text.split()[: draw.randint(1, 4)])
    return text.upper() if draw.random() < 0.3 else " ".join(text.lower().split()[: draw.randint(2, 6)])


def main(data: Path, out: Path, wheels: list[Path]) -> None:
    draw = random.Random(0)
    parts: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for language, texts in messages(wheels).items():
        draw.shuffle(texts)
        held = len(texts) // 20
        parts["test"] += [(text, language) for text in texts[:held]]
        parts["valid"] += [(text, language) for text in texts[held : 2 * held]]
        texts = texts[2 * held :]
        every = texts + lines(data / SPOKEN.get(language, "-"))[:MOST]
        if language in EVERYDAY:
            folder = data / EVERYDAY[language]
            said = {part: lines(folder / f"{part}.{language}.gz") for part in parts}
            draw.shuffle(said["train"])
            every += said["train"][:MOST]
            for part in ("valid", "test"):
                parts[part] += [(text, language) for text in said[part][:1000]]
        typed = [as_typed(text, draw) for text in every for _ in range(1 if language in EVERYDAY else 3)]
        parts["train"] += [(text, language) for text in (*every, *typed) if text.strip()]
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in parts.items():
        draw.shuffle(rows)
        rows = [(" ".join(text.split()), language) for text, language in rows]
        (out / f"{name}.tsv").write_text("".join(f"{text}\t{language}\n" for text, language in rows), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(path) for path in sys.argv[3:]])
