"""Addresses that must come out as they went in: the model reads and writes a short placeholder instead of each.

hide("Write to ann@example.com.")  ->  "Write to @1.", ("ann@example.com",)
show("Schreib an @1.", ("ann@example.com",))  ->  "Schreib an ann@example.com."
"""

import re

_END = r"(?<![.,;:!?…'\"’”)\]}>])"  # what ends a sentence or a bracket is no part of an address
ADDRESS = re.compile(
    rf"(?:https?|ftp)://[^\s<>\"”]+{_END}"  # https://example.com/help?id=3
    rf"|\bwww\.[^\s<>\"”]+{_END}"
    r"|[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"  # ann@example.com
    r"|(?<!\S)@\w{2,}",  # @ann
    re.ASCII,
)
PLACEHOLDER = re.compile(r"@\d")


def hide(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with a placeholder for each address, and the addresses. One that has `@1` already stays as it is."""
    if PLACEHOLDER.search(text):
        return text, ()
    found: list[str] = []

    def placeholder(match: re.Match[str]) -> str:
        if match[0] not in found:
            found.append(match[0])
        return f"@{found.index(match[0]) + 1}"

    hidden = ADDRESS.sub(placeholder, text)
    return (hidden, tuple(found)) if len(found) < 10 else (text, ())


def kept(text: str, hidden: str, addresses: tuple[str, ...]) -> bool:
    """Whether a translation has every placeholder as often as its source has it."""
    if not addresses:
        return True
    return sorted(PLACEHOLDER.findall(text)) == sorted(PLACEHOLDER.findall(hidden))


def show(text: str, addresses: tuple[str, ...]) -> str:
    """The text with the addresses in their places again."""
    return PLACEHOLDER.sub(lambda match: _address(match[0], addresses), text) if addresses else text


def _address(placeholder: str, addresses: tuple[str, ...]) -> str:
    number = int(placeholder[1:])
    return addresses[number - 1] if 1 <= number <= len(addresses) else placeholder
