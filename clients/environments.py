"""An environment of its own for every client, for they disagree about each other's versions. Made once, then kept."""

import os
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("CLEARFORMER_CLIENTS", Path.home() / ".cache" / "clearformer-clients"))
PYTHON = {  # the script of a client, and what it needs from PyPI
    "openai": ["openai"],
    "langchain": ["langchain-openai"],
    "llama-index": ["llama-index-llms-openai-like", "llama-index-embeddings-openai-like"],
    "litellm": ["litellm"],
    "instructor": ["instructor"],
    "pydantic-ai": ["pydantic-ai-slim[openai]"],
    "llm": ["llm"],
    "ollama": ["ollama"],
    "libretranslate": ["libretranslatepy"],
    "deepl": ["deepl"],
}
NODE = {"openai": ["openai"], "deepl": ["deepl-node"]}  # from npm


def python(name: str) -> Path:
    """The interpreter of a client's environment."""
    folder = CACHE / name
    ready = folder / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        words = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *PYTHON[name]]
        subprocess.run(words, check=True)
        ready.touch()
    return folder / "bin" / "python"


def node() -> Path:
    """The folder that Node finds packages in."""
    folder = CACHE / "node"
    wanted = sorted({package for packages in NODE.values() for package in packages})
    if not all((folder / "node_modules" / package).exists() for package in wanted):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}")
        subprocess.run(["npm", "install", "--silent", "--no-fund", "--no-audit", *wanted], cwd=folder, check=True)
    return folder
