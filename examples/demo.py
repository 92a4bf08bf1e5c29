"""What `make demo` shows: verbs on the models that come with the package, as one would type them. Offline.

python examples/demo.py
"""

import shlex
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.rule import Rule

from clearformer.cli import app
from clearformer.tasks.bundled import serving

SHOWN = (
    (
        "translate",
        "Translate",
        (
            'translate "How are you?" "I have to go home now." "She has been waiting for you since this morning."',
            'translate --to hi "How are you?" "I live here."',
        ),
    ),
    ("classify", "Tell languages apart", ('classify "Wo ist der Bahnhof?" "आप कैसे हैं?" "Where is the station?"',)),
    ("tag", "Name parts of speech", ('tag "The old man saw the boats."',)),
    ("fill", "Fill a gap", ('fill --top 3 "I would like a cup of [MASK], please."',)),
    ("complete", "Go on with a text", ('complete "ROMEO:" --max-new-tokens 160 --temperature 0.8 --seed 7',)),
    (
        "embed",
        "Find by meaning",
        (
            'search index --out {folder} "The cat is asleep." "Ich habe Hunger." "Where is the station?"',
            'search query {folder} "I am hungry."',
        ),
    ),
    ("translate", "Look inside", ('explain "I have to go home now." --num-beams 2',)),
    (
        "translate",
        "One number, and where it comes from",
        ('explain "I have to go home now." --address "decoder.2.cross.h3.weights[1,2]"',),
    ),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        show(Path(scratch) / "my.index")


def show(index: Path) -> None:
    console, began = Console(highlight=False), perf_counter()
    for verb, title, commands in SHOWN:
        if serving(verb) is None:  # a package without this model
            continue
        console.print(Rule(f"[bold]{title}[/]", align="left", style="dim"))
        for command in commands:
            console.print(f"[bold cyan]$ clearformer[/] {command.format(folder=index.name)}", soft_wrap=True)
            app([*shlex.split(command.format(folder=index)), "--model", _model(verb, command)], standalone_mode=False)
            sys.stdout.flush()
            console.print()
    console.print(f"[dim]{perf_counter() - began:.0f} s. Next:[/]")
    for line in (
        "clearformer models                    # what comes with the package, with licences and scores",
        "clearformer train --source YOURS.en --target YOURS.de --out models/mine --minutes 10",
        "clearformer notes                     # the Transformer by worked examples",
    ):
        console.print(f"  {line}", markup=False, soft_wrap=True)


def _model(verb: str, command: str) -> str:
    """Named, so that the demonstration is not interrupted by remarks on which model was taken."""
    return "en-hi" if "--to hi" in command else serving(verb) or verb


if __name__ == "__main__":
    main()
