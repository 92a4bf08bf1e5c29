"""Goals whose examples are pairs: a text and its translation, label, tags or paraphrase."""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain, compress, repeat
from typing import Any

import numpy as np

from clearformer.assemble import count_parameters
from clearformer.checkpoints.metadata import Metadata
from clearformer.data.clean import Clean
from clearformer.data.corpus import Coder, Corpus, Report, Texts, Treatment, count, digest, encode
from clearformer.data.noise import Noiser, mixed
from clearformer.data.overlap import FILE as SEEN
from clearformer.data.overlap import Seen
from clearformer.data.pairs import Pair, Pairs
from clearformer.data.sampler import Sampler
from clearformer.data.taken import taken
from clearformer.data.training_pairs import Noise, TrainingPairs, names_of
from clearformer.errors import DataError
from clearformer.training.goals.base import DATA, Goal, Say, check_memory
from clearformer.training.state import replace_file

VALID = "valid.jsonl"
CAP = 0x636170  # what a draw is for


@dataclass(frozen=True)
class Source:
    """A set of pairs as a goal reads it: all of them, or those that its `cap` leaves."""

    goal: "PairGoal"
    part: Pairs

    @property
    def to(self) -> str | None:
        return self.part.to

    def read(self) -> Iterator[Pair]:
        found = self.goal.read(self.part)
        if not isinstance(self.part, TrainingPairs) or self.part.cap is None:
            return found
        return compress(found, self.goal.chosen(self.part, self.part.cap).tolist())


@dataclass(frozen=True)
class Lesson:
    """A set of training pairs as the tokenizer sees it: what the model will see of it, as often."""

    source: Source
    weight: float
    treatment: Treatment

    @property
    def to(self) -> str | None:
        return self.source.to

    def read(self) -> Iterator[Pair]:
        clean, noise, weight = self.treatment.clean, self.treatment.noise, Fraction(str(self.weight))
        for row, pair in enumerate(self.source.read()):
            many = int(weight * (row + 1)) - int(weight * row) if weight != 1 else 1
            if not many or clean.fault(pair.source, pair.target):
                continue
            yield from repeat(pair if noise is None else pair._replace(source=noise.text(pair.source, row)), many)


class PairGoal(Goal):
    # --- what a goal says ------------------------------------------------------------------------------------

    def read(self, part: Pairs) -> Iterator[Pair]:
        return part.read()

    def taken(self, part: Pairs) -> str | None:
        """A word about which columns or fields of a file are read."""
        return taken(part)

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

    may = frozenset({"weight", "cap"})

    def sources(self, parts: Sequence[Pairs]) -> list[Source]:
        return [Source(self, part) for part in parts]

    def chosen(self, part: TrainingPairs, cap: int) -> np.ndarray[Any, Any]:
        """Which pairs of a set its cap leaves: True for `cap` of them, by the seed and the number of the set."""
        number = self.settings.data.train.index(part)
        if number not in self._chosen:
            total = sum(1 for _ in self.read(part))
            mask = np.zeros(total, bool)
            mask[np.random.default_rng((self.settings.seed, number, CAP)).permutation(total)[:cap]] = True
            self._chosen[number] = mask
        return self._chosen[number]

    @cached_property
    def _chosen(self) -> dict[int, np.ndarray[Any, Any]]:
        return {}

    def treatments(self, coded: bool = True) -> list[Treatment]:
        """What is done to each set of training pairs; without what needs the tokenizer while that is not yet there."""
        data = self.settings.data
        return [
            Treatment(
                name,
                Clean(data.ratio, data.copies, part.script),
                self.front(part) if coded else (),
                None if part.noise is None else self.noiser(part.noise, number, coded),
            )
            for number, (name, part) in enumerate(zip(names_of(data.train), data.train, strict=True))
        ]

    def noiser(self, noise: Noise, number: int, coded: bool) -> Noiser:
        return Noiser(noise, mixed(self.settings.seed, number))

    def front(self, part: TrainingPairs) -> tuple[int, ...]:
        """The ids that stand in front of the sources of a set."""
        return ()

    def all_texts(self) -> Texts:
        """What the tokenizer learns from, as often as it asks."""
        train = self.settings.data.train
        lessons = [
            Lesson(source, part.weight, treatment)
            for source, part, treatment in zip(self.sources(train), train, self.treatments(False), strict=True)
        ]
        return Texts(lessons, self.settings.tokenizer.sentences, self.texts)

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
        for part in (*data.train, *data.valid):
            if said := self.taken(part):
                say(said)
        decided = self.learn(total, say)
        held = self._held_out(total)
        valid = self._write_valid(held)
        known = frozenset(digest(row["source"], row["target"], row["to"] or "") for row in valid)
        train = self.sources(data.train)
        same: dict[str, Any] = {"longest": self.limit, "duplicates": data.duplicates}
        done = self.treatments()
        reports = {
            "train": encode(folder, "train", train, self.coder, held_out=held, without=known, treatments=done, **same)
        }
        if data.valid:
            named, given = [Treatment(name) for name in names_of(data.valid)], self.sources(data.valid)
            same["duplicates"] = True
            reports["valid"] = encode(folder, "valid", given, self.coder, treatments=named, **same)
        else:
            plain = [Treatment(each.name, each.clean) for each in done]
            reports["valid"] = encode(folder, "valid", train, self.coder, only=held, treatments=plain, **same)
        learned = chain.from_iterable(part.read() for part in train)
        seen = Seen.of(pair[:2] for n, pair in enumerate(learned) if n not in held)
        replace_file(self.out / SEEN, seen.to_bytes())
        for name, report in reports.items():
            say(f"{name}: {self.told(report)}")
            if not report.kept:
                raise DataError(f"no {name} pairs are left: {report}")
            for line in self.shares(report) if name == "train" else ():
                say(line)
        shared = seen.overlap([row["source"] for row in valid], [row["target"] for row in valid])
        say(f"validation: {shared}" + ("; those pairs were left out of training" if shared.pairs else ""))
        return reports, decided

    def shares(self, report: Report) -> list[str]:
        """A line for every set: what is left of it, how often it comes, and its share of an epoch."""
        data = self.settings.data
        sets = report.sets or [report]
        if len(sets) == 1 and not data.train[0].told:
            return []
        drawn = [part.weight * each.kept for part, each in zip(data.train, sets, strict=True)]
        tokens = [part.weight * each.target_tokens for part, each in zip(data.train, sets, strict=True)]
        lines = []
        for part, each, pairs, words in zip(data.train, sets, drawn, tokens, strict=True):
            said = (
                f"  {each.name}: {each.kept:,} pairs × {part.weight:g}: {pairs / sum(drawn):.1%} of an epoch's pairs,"
            )
            said += f" {words / max(1, sum(tokens)):.1%} of its target tokens"
            said += f"; {part.cap:,} of {len(self.chosen(part, part.cap)):,} taken" if part.cap else ""
            said += f"; tag {part.tag}" if part.tag else ""
            said += f"; {part.noise.versions} versions" if part.noise else ""
            lines.append(said + (each.left_out() if len(sets) > 1 else ""))
        return lines

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
        numbers = self._untagged(total)
        return (
            frozenset(random.Random(asked.seed).sample(numbers, min(wanted, len(numbers))))
            if total > 1
            else frozenset({0})
        )

    def _untagged(self, total: int) -> Sequence[int]:
        """The numbers of pairs that may be held out: none of sets with a tag, whose sources are not what the model will
        be given, if there are others."""
        train = self.settings.data.train
        if not any(part.tag for part in train) or all(part.tag for part in train):
            return range(total)
        found, first = list[int](), 0
        for part, source in zip(train, self.sources(train), strict=True):
            end = first + count([source])
            found += [] if part.tag else range(first, end)
            first = end
        return found

    def _write_valid(self, held: frozenset[int]) -> list[dict[str, Any]]:
        """The validation texts themselves, to work on and compare."""
        data = self.settings.data
        rows, number, cleaned = [], 0, self.treatments(False)
        for place, part in enumerate(self.sources(data.valid or data.train)):
            for pair in part.read():
                fault = None if data.valid else cleaned[place].clean.fault(pair.source, pair.target)
                fair = bool(pair.source.strip() and pair.target.strip()) and fault is None
                if fair and (data.valid or number in held):
                    row = {"source": pair.source, "target": pair.target, "to": part.to, "more": pair.more}
                    rows.append({**row, "set": place})
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

    @cached_property
    def valid_corpus(self) -> Corpus:
        return Corpus(self.out / DATA, "valid")

    @property
    def valid_sets(self) -> list[str]:
        """The names of what is validated on: its own sets, or those that pairs were held out of."""
        found = names_of(self.settings.data.valid or self.settings.data.train)
        return found if len(found) == len(self.valid_corpus.stretches) else found[:1]  # of a run before sets were told

    def collate(self, corpus: Corpus, tokens: int, seed: int = 0) -> Any:
        """The batches of a corpus."""
        raise NotImplementedError

    def batches(self, settings: Any) -> Any:
        made = self.collate(self.corpus, settings.batch.tokens, settings.seed)
        train, sets = settings.data.train, self.corpus.stretches
        if all(part.weight == 1 for part in train) and all(each.versions == 1 for each in sets):
            return made
        return replace(made, sampler=Sampler(sets, tuple(part.weight for part in train), settings.seed))

    def valid_batches(self) -> Any:
        return self.collate(self.valid_corpus, 4_000)
