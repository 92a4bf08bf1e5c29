"""How long one waits for the see-through page: the first paint of `clearformer look`, and every change of level.

    python bench/page.py [--rounds 3] [--only look translation llama]

A headless chromium looks at the bundled translator with short and long sentences, and at a Llama of random weights
(`presets.llama("small")`) with 512 and 2,048 tokens. Each level is opened at places that were not seen before (`first`)
and then once more (`again`); a time is what passes from the change of the URL until nothing of the level is waited for
and the frame is drawn, the median of the rounds and the most. Needs chromium and playwright.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import clearformer as cf
from clearformer.checkpoints.huggingface import save_public

SHORT = "The animal didn't cross the street because it was tired."
LONG = " ".join(["The old woman who lives near the station told us a long story about her two sons and the river."] * 3)
PAINT, BARS = 1_000, {0: 100, 100: 300}  # milliseconds; at how many tokens the bar begins
ARGUMENTS = ["--no-sandbox", "--disable-gpu"]
COUNTING = """() => {
    const asked = window.fetch.bind(window);
    window.pending = 0;
    window.fetch = async (...given) => {
        window.pending++;
        try { return await asked(...given) } finally { setTimeout(() => window.pending--) }
    };
}"""
WAITED = "document.querySelector('.waiting, .room.busy, .loading')"
CHANGE = """place => new Promise((done, failed) => {
    const start = performance.now();
    const frame = (then) => requestAnimationFrame(() => setTimeout(() => then(performance.now())));
    let shown = 0;
    const look = (now) => {
        if (now - start > 120000) return failed(new Error('nothing came'));
        const waits = !!WAITED;
        if (waits) shown = 0;
        else if (!shown) shown = now;
        if (!waits && !window.pending && now - shown > 60) done(shown - start);
        else frame(look);
    };
    addEventListener('hashchange', () => frame(look), { once: true });
    location.hash = place;
})""".replace("WAITED", WAITED)


@contextmanager
def looked(*words: str) -> Iterator[str]:
    """`clearformer look`, and where it is."""
    command = [sys.executable, "-m", "clearformer", "look", "--no-browser", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://[^/]+/", process.stdout.readline())
        assert found is not None
        yield found[0]
    finally:
        process.kill()
        process.wait()


def painted(browser: Any, address: str, rounds: int) -> list[tuple[float, float]]:
    """Milliseconds from opening the address in a new browser profile to the first paint, and to the whole model."""
    found = []
    for _ in range(rounds):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(f"{address}#text={quote(SHORT)}")
        page.wait_for_function(f"() => document.querySelector('.level') && !{WAITED}", timeout=120_000)
        whole = page.evaluate("performance.now()")
        first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN")
        found.append((first, whole))
        context.close()
    return found


def places(stack: str, attention: str, blocks: int, heads: int, row: int) -> list[list[tuple[str, str]]]:
    """Ways from the model down to a cell, each through another block, head and row."""
    found = []
    for n in range(blocks):
        own = f"{stack}.{n}.{attention}"
        head = f"{own}.h{(3 * n + 1) % heads}"
        at = max(1, row - n)
        levels = {"model": "", "block": f"{stack}.{n}", "attention": own, "head": head,
                  "row": f"{head}.weights[{at}]", "cell": f"{head}.weights[{at},{at // 2}]"}  # fmt: skip
        found.append(list(levels.items()))
    return found


def walked(browser: Any, address: str, asked: str, ways: list[list[tuple[str, str]]]) -> tuple[int, dict[str, Any]]:
    """Tokens, and by level the times of the first opening and of the one after it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(180_000)
    page.add_init_script(f"({COUNTING})()")
    page.goto(f"{address}#{asked}")
    page.wait_for_function(f"() => document.querySelector('.level') && !{WAITED} && !window.pending", timeout=180_000)
    tokens = page.evaluate("""async () => {
        const { listing } = await import('page/state.js');
        return Math.max(...Object.values(listing.value.data.words).map((each) => each.length));
    }""")
    times: dict[str, Any] = {level: ([], []) for level, _ in ways[0]}
    for way in ways:
        for again in (0, 1):
            for level, place in [*way[1:], way[0]]:
                times[level][again].append(page.evaluate(CHANGE, f"{asked}&a={place}"))
    context.close()
    return tokens, times


def told(name: str, tokens: int, times: dict[str, Any]) -> None:
    bar = max((most for begin, most in BARS.items() if tokens >= begin), default=0)
    limit = f"bar {bar} ms" if tokens < 1_000 else "no bar: usable"
    print(f"\n{name}, {tokens} tokens ({limit}); milliseconds, median and most of {len(times['model'][0])}")
    print(f"{'':>10}  {'first':>14}  {'again':>14}")
    for level, (first, again) in times.items():
        said = [f"{statistics.median(each):>6.0f} {max(each):>7.0f}" for each in (first, again)]
        print(f"{level:>10}  {said[0]}  {said[1]}")
    print(flush=True)


def main(rounds: int, only: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        if {"look", "translation"} & set(only):
            with looked("--model", "en-de") as address:
                if "look" in only:
                    firsts, wholes = zip(*painted(browser, address, rounds + 1), strict=True)
                    for name, all_ in (("first paint", firsts), ("the model with its heads", wholes)):
                        print(f"{name}: {all_[0]:.0f} ms at first, then {min(all_[1:]):.0f} to {max(all_[1:]):.0f}"
                              f"{f' (bar {PAINT})' if name == 'first paint' else ''}", flush=True)  # fmt: skip
                if "translation" in only:
                    for text in (SHORT, LONG):
                        ways = places("decoder", "cross", min(rounds, 6), 4, 8)
                        told("en-de", *walked(browser, address, f"model=en-de&text={quote(text)}", ways))
        if "llama" in only:
            model = cf.build(cf.presets.llama("small"), seed=0).eval()
            made = save_public(model, Path(folder) / "llama")
            with looked("--model", str(made)) as address:
                for count in (512, 2_048):
                    ids = ",".join(str(5 + 7 * n % 4_000) for n in range(count))
                    ways = places("stack", "self", min(rounds, 4), 8, count - 2)
                    told("Llama", *walked(browser, address, f"ids={ids}&target=", ways))
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=["look", "translation", "llama"])
    given = parser.parse_args()
    main(given.rounds, given.only)
