"""The files of the page, as they are served and as they go into one file.

Modules name each other by bare specifiers, `preact` or `page/source.js`, which the import map leads to: to URLs where
the page is served, to `data:` URLs in a file that stands alone. Nothing comes from elsewhere, and the policy says so.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from clearformer.errors import DataError

ASSETS = Path(str(files("clearformer") / "page" / "assets"))
INDEX, MAP = "index.html", "<!-- importmap -->"
LIVE = "lessons/"  # what needs a server, and is not in a file that stands alone
VENDOR = {  # what a vendored file is called where it is imported
    "preact.js": "preact",
    "preact-hooks.js": "preact/hooks",
    "htm.js": "htm",
    "signals-core.js": "@preact/signals-core",
    "signals.js": "@preact/signals",
}
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
}
INLINE = re.compile(r"<(script|style)\b([^>]*)>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
SHEET = re.compile(r'<link\b[^>]*rel="stylesheet"[^>]*>', re.IGNORECASE)
HREF = re.compile(r'href="([^"]*)"')
ICON = re.compile(r'[ \t]*<link\b[^>]*rel="icon"[^>]*>\n?', re.IGNORECASE)


class File(NamedTuple):
    content: bytes
    media: str
    tag: str  # of this content alone, for If-None-Match


@cache
def names() -> tuple[str, ...]:
    """All files of the page, by their paths."""
    found = (path.relative_to(ASSETS) for path in ASSETS.rglob("*") if path.is_file())
    return tuple(sorted(path.as_posix() for path in found if path.suffix in TYPES or path.name.startswith("LICENSE")))


@cache
def read(name: str) -> File | None:
    """A file, or None where there is none of this name: only those that are listed are ever opened."""
    if name not in names():
        return None
    path = ASSETS / name
    return _file(path.read_bytes(), TYPES.get(path.suffix, TYPES[".txt"]))


def _file(content: bytes, media: str) -> File:
    return File(content, media, f'"{sha256(content).hexdigest()[:32]}"')


def modules() -> dict[str, str]:
    """Specifier → the path of its file."""
    given = read("vendor/NAMES.json")
    vendored = VENDOR if given is None else json.loads(given.content)
    found = {}
    for name in names():
        if name.endswith(".js"):
            inside = name.removeprefix("vendor/")
            found[vendored.get(inside, inside) if name.startswith("vendor/") else f"page/{name}"] = name
    return found


@cache
def page() -> tuple[File, str]:
    """The page as it is served, and the policy that goes with it."""
    text = index().replace(MAP, _map({name: f"./assets/{path}" for name, path in modules().items()}))
    return _file(text.encode(), TYPES[".html"]), policy(text, "'self'")


def index() -> str:
    found = read(INDEX)
    if found is None:
        raise DataError("the files of the page are missing from this installation; install clearformer anew")
    return found.content.decode()


def _map(imports: dict[str, str]) -> str:
    return f'<script type="importmap">{json.dumps({"imports": imports})}</script>'


def alone(data: str, title: str) -> str:
    """The page as one file with its data, for a browser without a network."""
    imports = {}
    for name, path in modules().items():
        found = read(path)
        if found is None or path.startswith(LIVE):
            continue
        imports[name] = f"data:text/javascript;base64,{b64encode(found.content).decode()}"
    embedded = f'<script type="application/json" id="clearformer-data">{data.replace("<", chr(92) + "u003c")}</script>'
    text = ICON.sub("", index()).replace(MAP, f"{embedded}\n{_map(imports)}")
    text = SHEET.sub(lambda link: f"<style>{_sheet(link[0])}</style>", text)
    safe = title.replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"<title>.*?</title>", lambda _: f"<title>{safe}</title>", text, count=1, flags=re.DOTALL)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy(text, "data:")}">'
    return text.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{meta}', 1)


def _sheet(link: str) -> str:
    href = HREF.search(link)
    found = read(href[1].removeprefix("./").removeprefix("/").removeprefix("assets/")) if href else None
    if found is None:
        raise DataError(f"the page names a stylesheet that is not there: {link[:100]}")
    return found.content.decode()


def policy(text: str, own: str) -> str:
    """What the page may do: run its own scripts and those that stand in it, ask its own server, and nothing else."""
    scripts = " ".join(_hashes(text, "script"))
    styles = " ".join(_hashes(text, "style"))
    asks = "'self'" if own == "'self'" else "'none'"
    pictures = f"{own if own == chr(39) + 'self' + chr(39) else ''} data: blob:".strip()
    return (
        f"default-src 'none'; script-src {own} {scripts}; style-src {own} {styles}; img-src {pictures};"
        f" font-src {own}; connect-src {asks}; base-uri 'none'; form-action 'none'"
    )


def _hashes(text: str, kind: str) -> Iterable[str]:
    for name, _, inside in INLINE.findall(text):
        if name.lower() == kind and inside:
            yield f"'sha256-{b64encode(sha256(inside.encode()).digest()).decode()}'"
