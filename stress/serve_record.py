"""All measurements of the server in one go, for docs/serving.md: a JSON file and tables in Markdown.

    python stress/serve_record.py OUT --folder FOLDER --gguf FILE --llama COMMAND --transformers COMMAND \\
        --sentences FOLDER --python PYTHON [--schemathesis COMMAND] [--only NAME ...] [--small]

What each option means stands in serve_throughput.py, serve_embeddings.py and serve_schemathesis.py; a measurement that
lacks its options is left out. The machine must have nothing else to do: some twenty minutes, and as many again for
schemathesis, which runs last and is not timed. --only runs some of them and keeps the rest of OUT/record.json; --small
is a rehearsal with little of everything.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
LONGEST = 3_600  # seconds of one measurement


def steps(given: argparse.Namespace) -> dict[str, list[str]]:
    """Names of measurements, and what is run for each."""
    small = given.small
    found: dict[str, list[str]] = {}
    if given.folder and (given.llama or given.transformers):
        words = ["serve_throughput.py", "--folder", given.folder, "--switch", "0.005"]
        words += ["--gguf", given.gguf, "--llama", given.llama] if given.llama else []
        words += ["--transformers", given.transformers] if given.transformers else []
        found["throughput"] = words + (["--clients", "1", "2", "--tokens", "4", "--rounds", "1"] if small else [])
    if given.sentences and given.python:
        words = ["serve_embeddings.py", "--folder", given.sentences, "--python", given.python]
        found["embeddings"] = words + (["--seconds", "2", "--rounds", "1"] if small else [])
    found["overload"] = ["serve_overload.py", "--seconds", "5" if small else str(given.overload)]
    found["disconnects"] = ["serve_disconnects.py", "--count", "100" if small else "1000"]
    found["slow sockets"] = ["serve_slow_sockets.py", "--sockets", "60" if small else "500"]
    found["soak"] = ["serve_soak.py", "--requests", "500" if small else "100000"]
    found["soak with a planted leak"] = ["serve_soak.py", "--plant", "--requests", "500" if small else "5000"]
    found["poison"] = ["serve_poison.py", "--requests", "200" if small else "5000"]
    found["kill"] = ["serve_kill.py", "--kills", "1" if small else "10"]
    if given.schemathesis:
        words = ["serve_schemathesis.py", "--program", given.schemathesis]
        found["schemathesis"] = [*words, "--examples", "3" if small else str(given.examples)]
    return {name: words for name, words in found.items() if not given.only or name in given.only}


def run(name: str, words: list[str], out: Path) -> dict[str, Any]:
    rows, log = out / "rows.json", out / f"{name.replace(' ', '-')}.log"
    rows.unlink(missing_ok=True)
    began = time.monotonic()
    print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
    with log.open("w") as text:
        try:
            code = subprocess.run(
                [sys.executable, str(HERE / words[0]), *words[1:]], stdout=text, stderr=subprocess.STDOUT,
                env=os.environ | {"RECORD": str(rows)}, timeout=LONGEST, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            code = -1
    made = json.loads(rows.read_text()) if rows.exists() else []
    rows.unlink(missing_ok=True)
    seconds = round(time.monotonic() - began, 1)
    missed = [row["name"] for row in made if not row["met"]]
    said = "did not end well, see " + log.name if not made else f"missed: {'; '.join(missed)}" if missed else "met"
    print(f"         {said} ({seconds:.0f} s)", flush=True)
    return {"seconds": seconds, "code": code, "rows": made, "command": " ".join(words)}


def machine() -> dict[str, str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())
    load = " ".join(f"{each:.2f}" for each in os.getloadavg())
    return {"processor": model, "cores": str(len(os.sched_getaffinity(0))), "torch": torch.__version__,
            "python": platform.python_version(), "load before": load, "date": time.strftime("%Y-%m-%d")}  # fmt: skip


def markdown(found: dict[str, Any]) -> str:
    said = ", ".join(f"{name} {value}" for name, value in found["machine"].items())
    lines = [said, ""]
    for name, step in found["steps"].items():
        lines += [f"### {name} ({step['seconds']:.0f} s)", "", "| | here | bar | |", "|---|---|---|---|"]
        lines += [
            f"| {row['name'].strip()} | {row['value']} | {row['bar']} | {'' if row['met'] else 'missed'} |"
            for row in step["rows"]
        ]
        lines += ["" if step["rows"] else "it did not come to an end", ""]
    return "\n".join(lines)


def main(given: argparse.Namespace) -> None:
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    place = out / "record.json"
    found = json.loads(place.read_text()) if place.exists() else {"steps": {}}
    found["machine"] = machine()
    chosen = steps(given)
    for name, words in chosen.items():
        found["steps"][name] = run(name, words, out)
        place.write_text(json.dumps(found, indent=1, ensure_ascii=False))
        (out / "record.md").write_text(markdown(found))
    print(f"{out / 'record.md'}")
    sys.exit(any(found["steps"][name]["code"] for name in chosen))


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("out", type=Path)
    for name in ("folder", "gguf", "llama", "transformers", "sentences", "python", "schemathesis"):
        words.add_argument(f"--{name}")
    words.add_argument("--only", nargs="+", default=[])
    words.add_argument("--small", action="store_true")
    words.add_argument("--overload", type=float, default=120.0, help="seconds; 600 for the record")
    words.add_argument("--examples", type=int, default=1_000, help="of schemathesis, an endpoint")
    main(words.parse_args())
