"""Clients that translate and rank, against a server that wants a key and knows languages: what they send is answered so
that they understand it, right or wrong."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.environments import node, python

SCRIPTS = Path(__file__).parent / "scripts"
PATIENCE = 120
KEY = "a-key-of-the-server"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"{KEY}\n")
    words = [sys.executable, "-m", "clearformer", "serve", "--port", "0", "--no-access-log", "--key-file", str(keys)]
    for model in ("en-de", "en-hi", "language-id", "sentences"):
        words += ["--model", model]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = next((said[0] for line in process.stderr if (said := re.search(r"http://127\.0\.0\.1:\d+", line))), None)
    assert found is not None, f"the server did not start: {process.wait()}"
    threading.Thread(target=process.stderr.read, daemon=True).start()  # so that it never waits for a reader
    yield found
    process.terminate()
    assert process.wait(60) == 0


def run(*words: str) -> None:
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"[-6000:]


@pytest.mark.timeout(900)  # the first time, packages are fetched
@pytest.mark.parametrize(
    ("name", "does"), [("libretranslate", "translates"), ("deepl", "translates"), ("litellm", "ranks")]
)
def test_python(name: str, does: str, address: str) -> None:
    run(str(python(name)), str(SCRIPTS / f"{name}_{does}.py"), address, KEY)


@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node here")
def test_node(address: str) -> None:
    script = shutil.copy(SCRIPTS / "deepl_translates.mjs", node())  # packages are looked for beside the script
    run("node", str(script), address, KEY)
