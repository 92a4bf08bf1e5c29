"""Damaged and hostile model folders: each must load whole or be refused by name, in bounded time and memory.

    python stress/fuzz_checkpoints.py [--files 20000] [--seed 0] [--only ours] [--keep FOLDER]

Small valid folders are made, and one file of one of them at a time is changed: bits, cuts, lengths, shapes, offsets,
nesting, types. A loader may answer with a model whose weights are finite and of the shapes its spec says, or with a
ClearformerError. Any other exception, more than 512 MiB of new memory, or more than 10 seconds is a fault. What is
changed depends on the seed and the number of the file alone, so a fault can be had again with --first NUMBER --files 1.
"""

import argparse
import faulthandler
import json
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from fuzz_folders import MAKERS, Target

from clearformer.errors import ClearformerError

MEMORY = 512 * 2**20
SECONDS = 10  # of work; waiting for something that never comes is given longer, as a machine may be busy
PATIENCE = 120


# How it is changed

Change = Callable[[bytes, random.Random], bytes]


def flipped(raw: bytes, draw: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(draw.choice([1, 1, 2, 8, 64])):
        place = draw.randrange(len(changed) if draw.random() < 0.5 else min(len(changed), 400))
        changed[place] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut(raw: bytes, draw: random.Random) -> bytes:
    return raw[: draw.choice([0, 1, 7, 8, 9, len(raw) - 1, draw.randrange(len(raw))])]


def longer(raw: bytes, draw: random.Random) -> bytes:
    return raw + draw.choice([b"\0", b"}", b" ", raw, draw.randbytes(100)])


def moved(raw: bytes, draw: random.Random) -> bytes:
    """A piece taken out, doubled, blanked, or exchanged for noise."""
    start = draw.randrange(len(raw))
    end = min(len(raw), start + draw.choice([1, 2, 8, 50, 500]))
    piece = raw[start:end]
    instead = draw.choice([b"", piece * 2, b"\0" * len(piece), b"\xff" * len(piece), draw.randbytes(len(piece))])
    return raw[:start] + instead + raw[end:]


def noise(raw: bytes, draw: random.Random) -> bytes:
    return draw.randbytes(draw.choice([1, 8, 100, len(raw)]))


VALUES: list[Any] = [None, True, False, 0, 1, -1, 3, 0.5, -0.0, 1e308, 2**24, 2**31, 2**63, 2**64, 10**4000]
VALUES += ["", "x", "x" * 5000, "F32", "I64", "../../etc/passwd", "\0", "gelu", [], {}, [[]], [0], [-1], [None], ["x"]]
VALUES += [[2**40, 2**40], [0, 2**62], {"x": 1}, {"content": 3}, [1] * 1000, list(range(20)), "inf", "nan", "é😀"]
LITERALS = [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"[" * 100_000, b'{"a":' * 5000, b"9" * 9000, b'"\\ud800"']


def restructured(raw: bytes, draw: random.Random) -> bytes:
    """Valid JSON, and something else in it."""
    try:
        value = json.loads(raw)
    except ValueError:
        return moved(raw, draw)
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        value = _changed(value, draw)
    text = json.dumps(value).encode()
    if draw.random() < 0.1:  # what json.dumps never writes
        spots = [match.start() for match in re.finditer(rb"(?<=: )", text)] or [0]
        spot = draw.choice(spots)
        text = text[:spot] + draw.choice(LITERALS) + re.sub(rb"^[^,\]}]*", b"", text[spot:])
    return text


def _changed(value: Any, draw: random.Random) -> Any:
    places = list(_places(value))
    if not places:
        return deepcopy(draw.choice(VALUES))
    holder, key = draw.choice(places)
    match draw.randrange(6):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[draw.choice(["x", "", "é", "a" * 3000, key + "x", key[:-1]])] = holder.pop(key)
        case 2:
            other, where = draw.choice(places)
            holder[key] = other[where] if not isinstance(other[where], dict | list) else deepcopy(draw.choice(VALUES))
        case 3 if isinstance(holder[key], int | float):
            holder[key] = draw.choice([holder[key] * 2, holder[key] + 1, -holder[key], holder[key] * 1000, 0])
        case 4 if isinstance(holder[key], list):
            holder[key] = draw.choice([holder[key] * 2, holder[key][:-1], holder[key][::-1], holder[key] * 300])
        case _:
            holder[key] = deepcopy(draw.choice(VALUES))
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def header_changed(raw: bytes, draw: random.Random) -> bytes:
    """A safetensors file whose table is another, and whose length may be a lie."""
    length = struct.unpack("<Q", raw[:8])[0]
    header, data = restructured(raw[8 : 8 + length], draw), raw[8 + length :]
    told = len(header)
    if draw.random() < 0.2:
        told = draw.choice(
            [0, 1, told - 1, told + 1, len(raw), len(raw) - 8, 2**31, 2**63, 2**64 - 1, 10**8, 10**8 + 1]
        )
    return struct.pack("<Q", max(told, 0)) + header + data


def spoilt(raw: bytes, draw: random.Random) -> bytes:
    """Values that are no numbers, among the weights."""
    length = struct.unpack("<Q", raw[:8])[0]
    place = 8 + length + 4 * draw.randrange(max((len(raw) - 8 - length) // 4, 1))
    return raw[:place] + struct.pack("<f", draw.choice([float("nan"), float("inf"), 1e38])) + raw[place + 4 :]


ANY: list[Change] = [flipped, cut, longer, moved, noise]
FOR: dict[str, list[Change]] = {".json": [restructured] * 8, ".safetensors": [header_changed] * 6 + [spoilt]}


# The run


def fuzz(files: int, seed: int, first: int = 0, only: str | None = None, keep: Path | None = None) -> int:
    """How many faults there were; each is shown."""
    place = Path(tempfile.mkdtemp())
    faults, counts = 0, Counter[str]()
    try:
        chosen = [make(place / name) for name, make in MAKERS.items() if only in (None, name)]
        for target in chosen:
            target.load(target.folder)  # as it is, it is read
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
        faulthandler.enable()  # a crash below Python says where it was
        faulthandler.register(signal.SIGPROF, chain=True)
        for number in range(first, first + files):
            draw = random.Random(f"{seed} {number}")
            target = chosen[number % len(chosen)]
            outcome = _one(target, draw, f"file {number} of seed {seed}", keep)
            counts[f"{target.name}: {outcome}"] += 1
            faults += outcome == "fault"
            if number % 1_000 == 999:
                print(f"{number + 1:7,}", file=sys.stderr)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for what, count in sorted(counts.items()):
        print(f"{count:7,}  {what}")
    print(f"{files:,} files, {faults} faults")
    return faults


def _one(target: Target, draw: random.Random, label: str, keep: Path | None) -> str:
    path = target.folder / draw.choice(target.files)
    change = draw.choice(ANY + FOR.get(path.suffix, []))
    raw = path.read_bytes()
    _write(path, change(raw, draw))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # a hang ends the run, with where it hung
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    try:
        target.load(target.folder)
        return "loaded"
    except ClearformerError as error:
        str(error).encode("utf-8")  # it can be shown
        return "refused"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        print(f"{label}: {target.name}, {path.name}, {change.__name__}")
        traceback.print_exc(file=sys.stdout)
        if keep is not None:
            shutil.copytree(target.folder, keep / label.replace(" ", "-"))
        return "fault"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
        _write(path, raw)


def _write(path: Path, raw: bytes) -> None:
    path.unlink()  # a new file: the old one may still be mapped
    path.write_bytes(raw)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(MAKERS), help="one target")
    parser.add_argument("--keep", type=Path, help="copy the folders of faults here")
    given = parser.parse_args()
    sys.exit(1 if fuzz(given.files, given.seed, given.first, given.only, given.keep) else 0)
