"""Lower case and Moses tokens for the raw Multi30k files, as the published comparison has them.

pip install sacremoses
python recipes/multi30k.py RAW OUT        # RAW/{train,valid,test2016}.{en,de} → OUT/{train,valid,test2016}.{en,de}
"""

import sys
from pathlib import Path

from sacremoses import MosesPunctNormalizer, MosesTokenizer


def main(raw: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for language in ("en", "de"):
        normal, tokens = MosesPunctNormalizer(language), MosesTokenizer(language)
        for part in ("train", "valid", "test2016"):
            with (
                (raw / f"{part}.{language}").open("rb") as lines,
                (out / f"{part}.{language}").open("wb") as written,
            ):
                for line in lines:
                    text = normal.normalize(line.decode().strip().lower())
                    written.write((tokens.tokenize(text, return_str=True, escape=False) + "\n").encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
