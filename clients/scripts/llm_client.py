"""llm, the command line: a model of a server like OpenAI's, named in its own file."""

import os
import subprocess
import sys
from pathlib import Path

folder = Path(os.environ["LLM_USER_PATH"])
(folder / "extra-openai-models.yaml").write_text(
    f"- model_id: ours\n  model_name: chat\n  api_base: {sys.argv[1]}/v1\n  api_key_name: ours\n"
)
command = [str(Path(sys.executable).parent / "llm"), "-m", "ours", "-o", "max_tokens", "12", "--key", "none", "one two"]
streamed = subprocess.run([*command, "-u"], capture_output=True, text=True, check=True)
whole = subprocess.run([*command, "--no-stream"], capture_output=True, text=True, check=True)
assert streamed.stdout.strip()
assert streamed.stdout == whole.stdout
assert "12 output" in streamed.stderr, streamed.stderr
