"""More pairs to learn copying from: names, numbers, times, prices, addresses and emoji that stand on both sides.

In a pair whose sides share a name or a number, both are replaced by others, drawn from names that occur in the data
and from made-up ones; a few frames add what sentences hardly have. A model that has seen thousands of names, each
once or twice, copies what it has not seen. Reads line-aligned (gzipped) files, writes tab-separated pairs.

python recipes/copied_spans.py --out copied.tsv --frames de train.en.gz train.de.gz [more.en.gz more.de.gz ...]
"""

import argparse
import gzip
import random
import re
from collections import Counter
from functools import partial
from pathlib import Path

NAME = re.compile(r"(?<![\w'’-])[A-Z][a-zäöüß]{2,}(?![\w'’-])")
NUMBER = re.compile(r"(?<![\w.,:])\d[\d.,:]*\d(?![\w:])|(?<![\w.,:])\d(?![\w.,:])")
BEGINNINGS = re.findall("[A-Z][a-z]*", "ABBrChDElFGGrHIJKKlLMNOPPhRSSchShStTThUVWYZ")
CONSONANTS = re.findall("[a-z][rhtln]?", "bbrdfghjkllmnnprrsshstttvz")
VOWELS = ["a", "e", "i", "o", "u"]
CLOSING = ["", "n", "r", "s", "l", "m", "ng", "sh", "v", "t", "ck"]
EMOJI = "😀😂😊😍👍🎉🙏😢🤔🔥🎂"
FRAMES = {
    "de": [
        ("My name is {name}.", "Ich heiße {name}."),
        ("Hello, {name}!", "Hallo, {name}!"),
        ("Good morning, {name}.", "Guten Morgen, {name}."),
        ("Happy birthday, {name}!", "Alles Gute zum Geburtstag, {name}!"),
        ("Have you met {name}?", "Hast du {name} schon kennengelernt?"),
        ("{name} and {other} are getting married.", "{name} und {other} heiraten."),
        ("I live in {name}.", "Ich wohne in {name}."),
        ("{name} is from {other}.", "{name} kommt aus {other}."),
        ("Thank you, {name}.", "Danke, {name}."),
        ("{name}, where are you?", "{name}, wo bist du?"),
        ("Write to me at {mail}.", "Schreib mir an {mail}."),
        ("My e-mail address is {mail}.", "Meine E-Mail-Adresse ist {mail}."),
        ("Send it to {mail}, please.", "Schicke es bitte an {mail}."),
        ("You can find it at {link}.", "Du findest es unter {link}."),
        ("Our website is {link}.", "Unsere Website ist {link}."),
        ("My phone number is {phone}.", "Meine Telefonnummer ist {phone}."),
        ("Call me at {phone}.", "Ruf mich unter {phone} an."),
        ("The train leaves at {time}.", "Der Zug fährt um {time} ab."),
        ("The meeting is at {time}.", "Die Besprechung ist um {time}."),
        ("It is {time}.", "Es ist {time} Uhr."),
        ("The shop closes at {time}.", "Das Geschäft schließt um {time}."),
        ("It costs {price}.", "Es kostet {price}."),
        ("That will be {price}, please.", "Das macht {price}, bitte."),
        ("I paid {price} for it.", "Ich habe {price} dafür bezahlt."),
        ("She was born in {year}.", "Sie wurde {year} geboren."),
        ("The house was built in {year}.", "Das Haus wurde {year} gebaut."),
        ("Our room number is {count}.", "Unsere Zimmernummer ist {count}."),
    ],
    "hi": [
        ("My phone number is {phone}.", "मेरा फ़ोन नंबर {phone} है।"),
        ("The train leaves at {time}.", "ट्रेन {time} बजे चलती है।"),
        ("The meeting is at {time}.", "बैठक {time} बजे है।"),
        ("It is {time}.", "{time} बजे हैं।"),
        ("It costs {price}.", "इसकी क़ीमत {price} है।"),
        ("She was born in {year}.", "उसका जन्म {year} में हुआ था।"),
        ("The house was built in {year}.", "यह घर {year} में बना था।"),
        ("Our room number is {count}.", "हमारे कमरे का नंबर {count} है।"),
        ("Write to me at {mail}.", "मुझे {mail} पर लिखिए।"),
        ("My e-mail address is {mail}.", "मेरा ई-मेल पता {mail} है।"),
        ("Our website is {link}.", "हमारी वेबसाइट {link} है।"),
    ],
}


def made_up(draw: random.Random) -> str:
    parts = [draw.choice(BEGINNINGS), draw.choice(VOWELS)]
    for _ in range(draw.choice([0, 1, 1, 2])):
        parts += [draw.choice(CONSONANTS), draw.choice([*VOWELS, "ia", "ei"])]
    return "".join(parts) + draw.choice(CLOSING)


def other_number(text: str, draw: random.Random) -> str:
    """Another number of the same shape; a time stays a time of the day."""
    if re.fullmatch(r"\d{1,2}:\d\d", text):
        return f"{draw.randrange(24)}:{draw.randrange(60):02}"
    digits = [draw.choice("0123456789") if each.isdigit() else each for each in text]
    if digits[0] == "0":
        digits[0] = draw.choice("123456789")
    return "".join(digits)


def read(paths: list[Path]) -> list[tuple[str, str]]:
    found = []
    for source, target in zip(paths[::2], paths[1::2], strict=True):
        sides = [gzip.decompress(path.read_bytes()).decode().split("\n")[:-1] for path in (source, target)]
        found += list(zip(*sides, strict=True))
    return found


def shared_names(source: str, target: str) -> set[str]:
    """Names that stand on both sides, just as they are; the first word of a source may be any word."""
    return {each[0] for each in NAME.finditer(source) if each.start() > 0} & set(NAME.findall(target))


def _swapped(swap: dict[str, str], match: re.Match[str]) -> str:
    return swap[match[1]]


def spans(pairs: list[tuple[str, str]], draw: random.Random) -> list[tuple[str, str]]:
    counts = Counter(name for source, target in pairs for name in shared_names(source, target))
    known = {name for name, count in counts.items() if count >= 3}
    pool = sorted(counts)
    found = []
    for source, target in pairs:
        swap: dict[str, str] = {}
        for name in sorted(
            (known | shared_names(source, target)) & set(NAME.findall(source)) & set(NAME.findall(target))
        ):
            swap[name] = draw.choice(pool) if draw.random() < 0.5 else made_up(draw)
        for number in sorted(set(NUMBER.findall(source)) & set(NUMBER.findall(target))):
            swap[number] = other_number(number, draw)
        if swap:
            both = re.compile(r"(?<!\w)(" + "|".join(map(re.escape, sorted(swap, key=len, reverse=True))) + r")(?!\w)")
            found.append((both.sub(partial(_swapped, swap), source), both.sub(partial(_swapped, swap), target)))
    return found


def frames(language: str, pool: list[str], many: int, draw: random.Random) -> list[tuple[str, str]]:
    def name() -> str:
        return draw.choice(pool) if draw.random() < 0.5 else made_up(draw)

    found = []
    for _ in range(many):
        host = made_up(draw).lower() + draw.choice([".com", ".org", ".de", ".net", ".in"])
        fill = {
            "name": name(),
            "other": name(),
            "mail": draw.choice([name().lower(), f"{name()}.{name()}".lower(), f"{name().lower()}{draw.randrange(99)}"])
            + "@"
            + host,
            "link": draw.choice(["www." + host, "https://" + host, f"https://{host}/{name().lower()}"]),
            "phone": draw.choice(["555-", "030 ", "+49 30 ", "0"]) + str(draw.randrange(1000, 9999999)),
            "time": f"{draw.randrange(24)}:{draw.randrange(60):02}",
            "price": draw.choice("$€£") + f"{draw.randrange(1, 400)}" + draw.choice(["", f".{draw.randrange(100):02}"]),
            "year": str(draw.randrange(1100, 2040)),
            "count": str(draw.randrange(1, 2000)),
        }
        source, target = draw.choice(FRAMES[language])
        tail = f" {draw.choice(EMOJI)}" if draw.random() < 0.1 else ""
        found.append((source.format(**fill) + tail, target.format(**fill) + tail))
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument(
        "files", type=Path, nargs="+", help="source and target files in turn; the first two are rewritten"
    )
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--frames", choices=sorted(FRAMES), required=True, help="the target language")
    asked.add_argument("--most", type=int, default=60_000)
    asked.add_argument("--framed", type=int, default=12_000)
    given = asked.parse_args()
    draw, pairs = random.Random(1), read(given.files)
    pool = sorted({name for source, target in pairs for name in shared_names(source, target)}) or ["Tom"]
    first = read(given.files[:2])
    found = spans(first, draw)
    draw.shuffle(found)
    found = found[: given.most] + frames(given.frames, pool, given.framed, draw)
    given.out.write_text("".join(f"{source}\t{target}\n" for source, target in found if "\t" not in source + target))
    print(f"{given.out}: {len(found):,} pairs, {len(pool):,} names")


if __name__ == "__main__":
    main()
