"""Real clients, as people install them, against `clearformer serve` as people start it. Run by `make test-clients`.

Every client is a script in `scripts/`, run by its own interpreter with the server's address; it fails by an assertion.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve.models import completer, embedder
from tests.tasks.writers import save

from clients.environments import NODE, PYTHON, node, python

SCRIPTS = Path(__file__).parent / "scripts"
PATIENCE = 280
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}  # nothing is asked but the server


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a tiny model that chats, one that embeds, and a bundled one that translates."""
    folder = tmp_path_factory.mktemp("models")
    save(completer(), folder / "chat")
    save(embedder(), folder / "vectors")  # type: ignore[arg-type]
    words = [sys.executable, "-m", "clearformer", "serve", "--port", "0", "--no-access-log"]
    for model in (f"chat={folder / 'chat'}", f"vectors={folder / 'vectors'}", "en-de"):
        words += ["--model", model]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if said := re.search(r"http://127\.0\.0\.1:\d+", line):
            found = said[0]
            break
    else:
        raise AssertionError(f"the server did not start: {process.wait()}")
    threading.Thread(target=process.stderr.read, daemon=True).start()  # so that it never waits for a reader
    yield found
    process.terminate()
    assert process.wait(60) == 0


def run(words: list[str], **environment: str) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **QUIET, **environment}, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"[-6000:]


@pytest.mark.timeout(900)  # the first time, packages are fetched
@pytest.mark.parametrize("name", PYTHON)
def test_python(name: str, address: str, tmp_path: Path) -> None:
    script = SCRIPTS / f"{name.replace('-', '_')}_client.py"
    run([str(python(name)), str(script), address], HOME=str(tmp_path), LLM_USER_PATH=str(tmp_path))


@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node here")
@pytest.mark.parametrize("name", NODE)
def test_node(name: str, address: str, tmp_path: Path) -> None:
    script = shutil.copy(SCRIPTS / f"{name}_client.mjs", node())  # packages are looked for beside the script
    run(["node", str(script), address], HOME=str(tmp_path))
