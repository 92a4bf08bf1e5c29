"""The server as people start it: a process, its first line, its log, and signals."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 120.0  # seconds after which what hangs fails
FIRST = re.compile(r"clearformer: http://([0-9.]+):([0-9]+) serves ")


HELD = """
import sys, time
from pathlib import Path
from clearformer.cli import main
from clearformer.generate.cancel import check_cancelled
from clearformer.serve.work import Work

go, run = Path(sys.argv.pop(1)), Work.run

def held(self, scope, compute, model=""):
    def later():
        while not go.exists():
            check_cancelled()
            time.sleep(0.01)
        return compute()
    return run(self, scope, later, model)

Work.run = held
main()
"""


class Served:
    """A running `clearformer serve`. Where there is a file `go`, what is asked of models is computed once it exists."""

    def __init__(self, *words: str, environment: dict[str, str] | None = None, go: Path | None = None):
        program = ["-m", "clearformer"] if go is None else ["-c", HELD, str(go)]
        self.process = subprocess.Popen(
            [sys.executable, *program, "serve", "--port", "0", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | (environment or {}),
        )  # fmt: skip
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()
        found = FIRST.match(self.first_line)
        assert found is not None, self.process.communicate(timeout=PATIENCE)[1]
        self.port = int(found[2])
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self.lines)]

    @property
    def events(self) -> list[str]:
        """Of the log, but for requests."""
        return [line["event"] for line in self.log if line["event"] != "request"]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        made = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        content = None if body is None else json.dumps(body).encode()
        kind = {"content-type": "application/json"} if body is not None else {}
        made.request(method, path, content, kind | {name.replace("_", "-"): value for name, value in headers.items()})
        answer = made.getresponse()
        read = answer.read()
        made.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, read

    def end(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code."""
        self.process.send_signal(with_signal)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code


@contextmanager
def served(*words: str, **given: Any) -> Iterator[Served]:
    made = Served(*words, **given)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait(PATIENCE)
        for stream in (made.process.stdout, made.process.stderr):
            if stream is not None:
                stream.close()


def tiny_translator(folder: Path) -> Path:
    from tests.tasks.conftest import save

    return save(folder)
