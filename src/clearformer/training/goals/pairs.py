"""Goals whose examples are pairs: a text and its translation, label, tags or paraphrase."""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from clearformer.assemble import count_parameters
from clearformer.checkpoints.metadata import Metadata
from clearformer.data.corpus import Coder, Corpus, Report, Texts, count, digest, encode
from clearformer.data.overlap import FILE as SEEN
from clearformer.data.overlap import Seen
from clearformer.data.pairs import Pair, Pairs
from clearformer.errors import DataError
from clearformer.training.goals.base import DATA, Goal, Say, check_memory
from clearformer.training.state import replace_file

VALID = "valid.jsonl"


@dataclass(frozen=True)
class Source:
    """A set of pairs as a goal reads it."""

    goal: "PairGoal"
    part: Pairs

    @property
    def to(self) -> str | None:
        return self.part.to

    def read(self) -> Iterator[Pair]:
        return self.goal.read(self.part)


class PairGoal(Goal):
    # --- what a goal says ------------------------------------------------------------------------------------

    def read(self, part: Pairs) -> Iterator[Pair]:
        return part.read()

    def texts(self, pair: Pair) -> Iterable[str]:
        """What the tokenizer learns from."""
        return pair.source, pair.target

    def learn(self, total: int, say: Say) -> dict[str, Any]:
        """Make the tokenizer and whatever else is found in the data; settings that were decided."""
        raise NotImplementedError

    @property
    def coder(self) -> Coder:
        raise NotImplementedError

    def told(self, report: Report) -> str:
        return str(report)

    # --- the rest is the same --------------------------------------------------------------------------------

    def sources(self, parts: Sequence[Pairs]) -> list[Source]:
        return [Source(self, part) for part in parts]

    def all_texts(self) -> Texts:
        """What the tokenizer learns from, as often as it asks."""
        return Texts(self.sources(self.settings.data.train), self.settings.tokenizer.sentences, self.texts)

    def count(self) -> int:
        asked = self.settings
        self.check_pins()
        decided = self.advise(asked, Report(target_tokens=1, kept=1))
        check_memory(count_parameters(self.spec(decided, asked.tokenizer.vocabulary or 1_000)), asked)
        if asked.data.valid and not count(self.sources(asked.data.valid)):
            raise DataError("the validation data has no pairs")
        total = count(self.sources(asked.data.train))
        if not total:
            raise DataError(f"the training data has no pairs: {', '.join(map(str, asked.data.train))}")
        return total

    @property
    def limit(self) -> int:
        """Tokens of a side at most; longer pairs are left out."""
        return self.settings.data.longest

    def fill(self, total: int, say: Say) -> tuple[dict[str, Report], dict[str, Any]]:
        data, folder = self.settings.data, self.out / DATA
        folder.mkdir(exist_ok=True)
        decided = self.learn(total, say)
        held = self._held_out(total)
        valid = self._write_valid(held)
        known = frozenset(digest(row["source"], row["target"], row["to"] or "") for row in valid)
        train, same = self.sources(data.train), {"longest": self.limit, "duplicates": data.duplicates}
        reports = {"train": encode(folder, "train", train, self.coder, held_out=held, without=known, **same)}  # type: ignore[arg-type]
        if data.valid:
            more = self.sources(data.valid)
            reports["valid"] = encode(folder, "valid", more, self.coder, longest=self.limit, duplicates=True)
        else:
            reports["valid"] = encode(folder, "valid", train, self.coder, only=held, **same)  # type: ignore[arg-type]
        learned = chain.from_iterable(part.read() for part in train)
        seen = Seen.of(pair[:2] for n, pair in enumerate(learned) if n not in held)
        replace_file(self.out / SEEN, seen.to_bytes())
        for name, report in reports.items():
            say(f"{name}: {self.told(report)}")
            if not report.kept:
                raise DataError(f"no {name} pairs are left: {report}")
        shared = seen.overlap([row["source"] for row in valid], [row["target"] for row in valid])
        say(f"validation: {shared}" + ("; those pairs were left out of training" if shared.pairs else ""))
        return reports, decided

    def take(self, metadata: Metadata) -> None:
        data = self.settings.data
        self.keep(self.known(metadata))
        self._write_valid(frozenset())
        report = encode(
            self.out / DATA, "valid", self.sources(data.valid), self.coder, longest=self.limit, duplicates=True
        )
        if not report.kept:
            raise DataError(f"nothing to score is left: {report}")
        if report.long:
            raise DataError(f"{self.told(report)}; a score without them would be of other data")

    def known(self, metadata: Metadata) -> dict[str, Any]:
        """What the run of a model found in its data."""
        return {} if metadata.labels is None else {"labels": list(metadata.labels)}

    def _held_out(self, total: int) -> frozenset[int]:
        asked = self.settings
        if asked.data.valid:
            return frozenset()
        wanted = min(asked.data.held_out, max(1, total // 20))
        return frozenset(random.Random(asked.seed).sample(range(total), wanted)) if total > 1 else frozenset({0})

    def _write_valid(self, held: frozenset[int]) -> list[dict[str, Any]]:
        """The validation texts themselves, to work on and compare."""
        data = self.settings.data
        rows, number = [], 0
        for part in data.valid or data.train:
            for pair in self.read(part):
                if (data.valid or number in held) and pair.source.strip() and pair.target.strip():
                    rows.append({"source": pair.source, "target": pair.target, "to": part.to, "more": pair.more})
                number += 1
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        replace_file(self.out / DATA / VALID, text.encode())
        return rows

    @cached_property
    def valid_rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / DATA / VALID).read_bytes().split(b"\n") if line]

    @cached_property
    def corpus(self) -> Corpus:
        return Corpus(self.out / DATA, "train")

    def collate(self, corpus: Corpus, tokens: int, seed: int = 0) -> Any:
        """The batches of a corpus."""
        raise NotImplementedError

    def batches(self, settings: Any) -> Any:
        return self.collate(self.corpus, settings.batch.tokens, settings.seed)

    def valid_batches(self) -> Any:
        return self.collate(Corpus(self.out / DATA, "valid"), 4_000)
