"""A test that hangs fails, and nothing that it started is left."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HANGS = """
import subprocess, sys, time

def test_hangs():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open("child", "w").write(str(child.pid))
    time.sleep(600)

def test_after_it():
    pass
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system does not tell what a process has started")
def test_a_test_that_hangs_fails_and_its_processes_end(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(HANGS)
    (tmp_path / "conftest.py").write_text((Path(__file__).parents[1] / "conftest.py").read_text(encoding="utf-8"))
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "3", "test_it.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "1 failed, 1 passed" in done.stdout
    assert "Timeout (>3.0s)" in done.stdout
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError(f"process {child} is still there")


def test_tests_have_a_limit(request: pytest.FixtureRequest) -> None:
    assert 0 < float(request.config.getini("timeout")) <= 300
