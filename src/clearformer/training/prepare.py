"""From settings to a run's folder: data read and checked, tokenizer learned, corpus encoded, everything decided.

OUT/settings.json    what was asked
OUT/run.json         what that came to: every setting, the data's report and fingerprints; written last
OUT/data/            the encoded corpora, and the validation texts
OUT/states/          the run's states                 OUT/log.jsonl   what happened
OUT/spec.json, weights.safetensors, tokenizer.json, task.json, README.md      the model, as soon as there is one
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from clearformer import presets
from clearformer.assemble import count_parameters
from clearformer.data.batches import Batches
from clearformer.data.corpus import Corpus, Report, count, digest, encode, texts
from clearformer.data.lines import fingerprint
from clearformer.data.overlap import FILE as SEEN
from clearformer.data.overlap import Seen
from clearformer.data.pairs import Pairs
from clearformer.data.tokenizer import Tokenizer, learn
from clearformer.errors import DataError, SpecError, TrainingError
from clearformer.spec import EncoderDecoder, NextToken, Spec
from clearformer.training.advice import advise, lay_out, vocabulary_for
from clearformer.training.settings import Settings, known
from clearformer.training.state import replace_file

ASKED, RUN, TOKENIZER, DATA, STATES, VALID = (
    "settings.json",
    "run.json",
    "tokenizer.json",
    "data",
    "states",
    "valid.jsonl",
)
MADE = (TOKENIZER, *(f"{DATA}/{name}.{end}" for name in ("train", "valid") for end in ("tokens", "safetensors")))
Say = Callable[[str], None]


@dataclass
class Prepared:
    """A run that can begin: every setting decided, every file in place."""

    settings: Settings
    spec: EncoderDecoder
    tokenizer: Tokenizer
    train: Batches
    valid: Corpus
    valid_texts: list[tuple[str, str, str | None]]
    reports: dict[str, Report]
    steps_an_epoch: int

    @property
    def folder(self) -> Path:
        return self.settings.out


def prepare(
    asked: Settings, say: Say, measure: Callable[[Prepared], float] | None = None, precision: str | None = None
) -> Prepared:
    """Fill an empty folder. `measure` tells the seconds of a step, for a run whose length is given in minutes;
    `precision` is what `auto` came to: measured once, so that a resumed run computes in the same format."""
    out = asked.out
    total = _check_inputs(asked)
    out.mkdir(parents=True, exist_ok=True)
    replace_file(out / ASKED, (asked.to_json() + "\n").encode())
    shutil.rmtree(out / DATA, ignore_errors=True)
    data, vocabulary = asked.data, asked.tokenizer.vocabulary or vocabulary_for(total)
    inputs = [path for part in (*data.train, *data.valid) for path in part.files()]
    inputs += [asked.model.spec] if asked.model.spec is not None else []
    prints = {str(path): fingerprint(path)._asdict() for path in inputs}
    languages = asked.languages if len(asked.languages) > 1 else []  # with one, nothing is to be told apart
    wanted = asked.tokenizer
    tokenizer = learn(texts(data.train, wanted.sentences), wanted.kind, vocabulary, wanted.form, languages)
    replace_file(out / TOKENIZER, tokenizer.to_json().encode())
    say(f"tokenizer: {wanted.kind}, {len(tokenizer):,} tokens" + (f", to {', '.join(languages)}" if languages else ""))
    held = _held_out(asked, total)
    same = {"longest": data.longest, "duplicates": data.duplicates}
    valid = _write_valid(asked, held)
    known_pairs = frozenset(digest(row["source"], row["target"], row["to"] or "") for row in valid)
    reports = {
        "train": encode(out / DATA, "train", data.train, tokenizer, held_out=held, without=known_pairs, **same)  # type: ignore[arg-type]
    }
    if data.valid:
        reports["valid"] = encode(out / DATA, "valid", data.valid, tokenizer, longest=data.longest, duplicates=True)
    else:
        reports["valid"] = encode(out / DATA, "valid", data.train, tokenizer, only=held, **same)  # type: ignore[arg-type]
    learned = (pair[:2] for n, pair in enumerate(chain.from_iterable(p.read() for p in data.train)) if n not in held)
    seen = Seen.of(learned)
    replace_file(out / SEEN, seen.to_bytes())
    for name, report in reports.items():
        say(f"{name}: {report}")
        if not report.kept:
            raise DataError(f"no {name} pairs are left: {report}")
    shared = seen.overlap([row["source"] for row in valid], [row["target"] for row in valid])
    say(f"validation: {shared}" + ("; those pairs were left out of training" if shared.pairs else ""))
    settings = advise(asked, reports["train"].target_tokens, reports["train"].kept)
    settings = settings.replace(
        {"tokenizer.vocabulary": vocabulary, "machine.precision": precision or asked.machine.precision}
    )
    made = _assembled(settings, spec_of(settings, len(tokenizer)), reports, 0)
    batches = len(made.train.plan(0))
    per_epoch = max(1, batches // settings.batch.accumulate)
    say(
        f"model: {count_parameters(made.spec):,} parameters; batches of {settings.batch.tokens:,} tokens,"
        f" {batches:,} an epoch, {made.train.padding():.1%} padding"
    )
    steps = settings.length.steps or max(1, round((settings.length.epochs or 0) * per_epoch))
    if settings.length.minutes is not None:
        assert measure is not None
        seconds = measure(made)
        steps = max(20, int(settings.length.minutes * 60 * 0.95 / seconds))  # validations and saves take the rest
        say(f"one step takes {seconds:.3f} s: {steps:,} steps fit into {settings.length.minutes:g} minutes")
    settings = lay_out(settings, steps, per_epoch)
    facts = {
        "settings": json.loads(settings.to_json()),
        "spec": json.loads(made.spec.to_json()),
        "files": prints,
        "made": {name: fingerprint(out / name)._asdict() for name in MADE},
        "reports": {name: asdict(report) for name, report in reports.items()},
        "steps_an_epoch": per_epoch,
    }
    replace_file(out / RUN, _json(facts))
    return _assembled(settings, made.spec, reports, per_epoch)


def _json(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, indent=1, ensure_ascii=False).encode()


def reopen(out: Path) -> Prepared | None:
    """The run of a folder as it was prepared; None if that was never finished."""
    if not (out / RUN).is_file():
        return None
    facts = read_facts(out)
    try:
        reports = {
            name: Report(**{**report, "longest": tuple(report["longest"])}) for name, report in facts["reports"].items()
        }
        settings = Settings._from({**facts["settings"], "out": out})
        return _assembled(settings, EncoderDecoder._from(facts["spec"]), reports, facts["steps_an_epoch"])
    except (KeyError, TypeError, AttributeError, SpecError) as error:
        raise TrainingError(f"{out / RUN} cannot be used: {error}; restore it, or start a new run") from None


def amend(out: Path, asked: Settings, changes: Mapping[str, Any]) -> None:
    """Write down what a resumed run is told anew, so that the next one need not be told again."""
    facts = read_facts(out)
    settings = Settings._from({**facts["settings"], "out": out}).replace(changes)
    replace_file(out / RUN, _json({**facts, "settings": json.loads(settings.to_json())}))
    replace_file(out / ASKED, (asked.to_json() + "\n").encode())


def read_facts(out: Path) -> dict:
    try:
        return dict(json.loads((out / RUN).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise TrainingError(f"{out / RUN} cannot be read: {error}; restore it, or start a new run") from None


def changed_files(out: Path) -> list[str]:
    """The run's input files that are not what they were; ones that are gone do not matter, their ids are kept."""
    files = {Path(name): before for name, before in read_facts(out).get("files", {}).items()}
    return [str(path) for path, before in files.items() if path.is_file() and fingerprint(path)._asdict() != before]


def damaged_files(out: Path) -> list[str]:
    """The files that were made of them and are not what they were."""
    files = {out / name: before for name, before in read_facts(out).get("made", {}).items()}
    return [str(path) for path, before in files.items() if not path.is_file() or fingerprint(path)._asdict() != before]


def spec_of(settings: Settings, vocabulary: int) -> EncoderDecoder:
    model = settings.model
    if model.spec is not None:
        try:
            found = Spec.from_json(model.spec.read_bytes())
        except OSError as error:
            raise SpecError(f"model.spec: cannot read {model.spec}: {error.strerror}") from None
        if not isinstance(found, EncoderDecoder) or not isinstance(found.head, NextToken):
            raise SpecError(f"model.spec: {model.spec} is no encoder–decoder with a next-token head")
        return found.replace({f"{stack}.embed.vocabulary": vocabulary for stack in ("encoder", "decoder")})
    width, heads = known(model.width), known(model.heads)
    if width % heads:
        raise SpecError(f"model.heads ({heads}) must divide model.width ({width})")
    return presets.encoder_decoder(
        width=width,
        layers=(known(model.layers), known(model.decoder_layers)),
        heads=heads,
        inner=known(model.inner),
        vocabulary=vocabulary,
        dropout=known(model.dropout),
        norm=model.norm,
        activation=model.activation,
    )


def _check_inputs(asked: Settings) -> int:
    """Read everything once: what is wrong with files or sizes is found before anything is written."""
    for part in (*asked.data.train, *asked.data.valid):
        part.check()
    _check_memory(count_parameters(spec_of(advise(asked, 1, 1), asked.tokenizer.vocabulary or 1_000)), asked)
    if asked.data.valid and not count(asked.data.valid):
        raise DataError("the validation data has no pairs")
    total = count(asked.data.train)
    if not total:
        raise DataError(f"the training data has no pairs: {', '.join(map(str, asked.data.train))}")
    return total


def _check_memory(parameters: int, asked: Settings) -> None:
    """Weights, gradients and two moments must fit, whatever the rest takes."""
    needed, there = 16 * parameters, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there and asked.machine.device in ("auto", "cpu"):
        raise TrainingError(
            f"a model of {parameters:,} parameters needs {needed / 2**30:,.0f} GiB to train, and this machine has"
            f" {there / 2**30:,.0f}; give smaller model.width, layers, inner or tokenizer.vocabulary"
        )


def _held_out(asked: Settings, total: int) -> frozenset[int]:
    if asked.data.valid:
        return frozenset()
    wanted = min(asked.data.held_out, max(1, total // 20))
    return frozenset(random.Random(asked.seed).sample(range(total), wanted)) if total > 1 else frozenset({0})


def _write_valid(asked: Settings, held: frozenset[int]) -> list[dict[str, Any]]:
    """The validation texts themselves, to translate and compare."""
    parts: tuple[Pairs, ...] = asked.data.valid or asked.data.train
    rows, number = [], 0
    for part in parts:
        for pair in part.read():
            if (asked.data.valid or number in held) and pair.source.strip() and pair.target.strip():
                rows.append({"source": pair.source, "target": pair.target, "to": part.to})
            number += 1
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (asked.out / DATA).mkdir(exist_ok=True)
    replace_file(asked.out / DATA / VALID, text.encode())
    return rows


def _assembled(settings: Settings, spec: EncoderDecoder, reports: dict[str, Report], per_epoch: int) -> Prepared:
    out, tokenizer = settings.out, Tokenizer.load(settings.out / TOKENIZER)
    corpus = Corpus(out / DATA, "train")
    batches = Batches(corpus, known(settings.batch.tokens), tokenizer.start, tokenizer.pad, settings.seed)
    rows = [json.loads(line) for line in (out / DATA / VALID).read_bytes().split(b"\n") if line]
    valid = [(row["source"], row["target"], row["to"]) for row in rows]
    return Prepared(
        settings,
        spec,
        tokenizer,
        batches,
        Corpus(out / DATA, "valid"),
        valid,
        reports,
        per_epoch,
    )
