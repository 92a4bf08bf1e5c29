"""What each of two processes does in `test_processes.py`: several runs, one after another, in one start of torchrun.

Each line of the file given is a run: its settings, or the folder to resume and what to change.
"""

import json
import sys
from pathlib import Path

from clearformer.training import distributed
from clearformer.training.run import resume, start
from clearformer.training.settings import Settings

leave = distributed.Group.leave
distributed.Group.leave = lambda self: None  # type: ignore[method-assign]
for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
    job = json.loads(line)
    if "start" in job:
        start(Settings._from(job["start"]))
    else:
        resume(Path(job["resume"]), changes=job["changes"])
