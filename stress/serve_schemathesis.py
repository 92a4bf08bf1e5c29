"""Requests that schemathesis makes of the server's own OpenAPI document, valid and not: none may end in a 5xx.

    pip install schemathesis
    python stress/serve_schemathesis.py [--examples 1000] [--minutes 60] [--program COMMAND]

Every verb has a model, or a server that says 501 for want of one would be taken for one that fails: tiny ones with
random weights, made as the tests make theirs.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from serve_process import Bars, server

sys.path.insert(0, str(Path(__file__).parent.parent))
KINDS = {
    "fills": ("BertForMaskedLM", {}),
    "tags": ("BertForTokenClassification", {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}}),
    "answers": ("BertForQuestionAnswering", {}),
}


def models(home: Path) -> list[str]:
    from tests.tasks.encoders import save
    from tests.tasks.test_see import save_seer

    made = []
    for name, (kind, more) in KINDS.items():
        made.append(f"{name}={save(home / name, kind, **more)[0]}")
    (home / "sees").mkdir()
    save_seer(home / "sees")
    return [*made, f"sees={home / 'sees'}"]


def main(examples: int, minutes: float, program: str | None) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    program = program or shutil.which("schemathesis", path=path)
    if program is None:
        sys.exit("schemathesis is not installed: pip install schemathesis")
    bars = Bars()
    flags = ("--no-access-log", "--max-new-tokens", "16", "--max-prompt-tokens", "256", "--request-seconds", "30")
    with (
        tempfile.TemporaryDirectory() as home,
        server("en-de", "sentences", "language-id", *models(Path(home)), flags=flags) as up,
    ):
        done = subprocess.run(
            [str(Path(program).absolute()), "run", f"http://127.0.0.1:{up.port}/openapi.json",
             "--max-examples", str(examples), "--checks", "not_a_server_error", "--mode", "all",
             "--request-timeout", "40", "--continue-on-failure"],
            timeout=60 * minutes, check=False, cwd=home,
        )  # fmt: skip
        bars.told("examples an endpoint", examples)
        bars.most("exit code of schemathesis", done.returncode, 0)
        bars.most("whether the server has ended", int(up.process.poll() is not None), 0)
        bars.most("exit code", abs(up.end()), 0)
    bars.end()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--examples", type=int, default=1_000)
    words.add_argument("--minutes", type=float, default=60.0)
    words.add_argument("--program", help="where schemathesis is, if it has an environment of its own")
    given = words.parse_args()
    main(given.examples, given.minutes, given.program)
