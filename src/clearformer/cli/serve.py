"""`clearformer serve`: models behind HTTP."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from clearformer.errors import ClearformerError


def _option(kind: Any, help: str, group: str) -> Any:
    return Annotated[kind | None, typer.Option(help=help, rich_help_panel=group, show_default=False)]


def _switch(name: str, help: str, group: str) -> Any:
    words = f"--{name}/--no-{name}"
    return Annotated[bool | None, typer.Option(words, help=help, rich_help_panel=group, show_default=False)]


WHAT, WHO, MOST, TIME = "What and where", "Who may ask", "How much", "How long"
FLAGS = {  # in the words of `ServerSettings`, which has the defaults
    "model": _option(
        list[str], "A model folder or the name of a bundled model; again for more. NAME=FOLDER gives it a name that"
        " clients use. [default: all bundled models]", WHAT
    ),
    "host": _option(str, "The address to listen at. 127.0.0.1: only this machine can ask; 0.0.0.0: others too, which"
                    " needs --key-file. [default: 127.0.0.1]", WHAT),
    "port": _option(int, "0 takes one that is free, and the first line says which. [default: 8000]", WHAT),
    "precision": _option(str, "auto, int8 (small and fast) or float32. [default: auto]", WHAT),
    "page": _switch("page", "Whether there is a page to try the models and look inside. [default: yes]", WHAT),
    "traces": _option(int, "Answers that can be looked into later, at /runs/ID. [default: 64, beyond this machine 0]",
                      WHAT),
    "lenient": _switch("lenient", "Pass over fields of a request that are not known, instead of refusing it."
                       " [default: no]", WHAT),
    "access_log": _switch("access-log", "A line of JSON on stderr for every request, without its texts."
                          " [default: yes]", WHAT),
    "key_file": _option(Path, "A file with a key a line; every request but /live must then have one of them, as"
                        " Authorization: Bearer KEY.", WHO),
    "insecure": _switch("insecure", "Listen beyond this machine without keys. [default: no]", WHO),
    "allow_host": _option(list[str], "A name under which the server may be asked, such as that of the proxy before it;"
                          " again for more, * for any.", WHO),
    "allow_origin": _option(list[str], "Pages of this origin, such as https://example.org, may ask (CORS); again for"
                            " more, * for any.", WHO),
    "queue_tokens": _option(int, "Tokens of all requests that wait or run; beyond them a request is told at once to try"
                            " again later (429). [default: 131072]", MOST),
    "max_prompt_tokens": _option(int, "Tokens of a prompt. [default: 32768]", MOST),
    "max_new_tokens": _option(int, "Tokens that a request may have written. [default: 8192]", MOST),
    "max_rows": _option(int, "Texts that a request may have written side by side: n, or n × beams. [default: 32]",
                        MOST),
    "max_texts": _option(int, "Texts of a request to an encoder or a translator. [default: 2048]", MOST),
    "max_stops": _option(int, "Texts to stop at. [default: 16]", MOST),
    "max_logprobs": _option(int, "Log-probabilities of a token. [default: 20]", MOST),
    "max_header": _option(int, "Bytes of the headers of a request. [default: 32768]", MOST),
    "max_body": _option(int, "Bytes of the body of a request. [default: 16777216]", MOST),
    "max_connections": _option(int, "Connections at a time. [default: 1024]", MOST),
    "max_pixels": _option(int, "Pixels of an image, once it is decoded. [default: 40000000]", MOST),
    "header_seconds": _option(float, "For a client to send its headers. [default: 5]", TIME),
    "body_seconds": _option(float, "For a client to send its body. [default: 8]", TIME),
    "send_seconds": _option(float, "For a client to take some of its answer. [default: 8]", TIME),
    "idle_seconds": _option(float, "That a connection is kept for the next request. [default: 30]", TIME),
    "request_seconds": _option(float, "From a request's arrival to the end of its answer, waiting included."
                               " [default: 600]", TIME),
    "grace_seconds": _option(float, "For what runs when the server is told to stop. [default: 30]", TIME),
}  # fmt: skip


def register(app: typer.Typer) -> None:
    app.command()(_with_flags(serve))


def _with_flags(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with a flag for every setting."""
    signature = inspect.signature(verb)
    own = [each for each in signature.parameters.values() if each.name != "given"]
    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in FLAGS.items()
    ]
    verb.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
    return verb


def serve(
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with the words below: port = 8000, max_body = 1000000, ...")
    ] = None,
    **given: Any,
) -> None:
    """Serve models over HTTP, to the clients of OpenAI, DeepL, LibreTranslate, Ollama and text-embeddings-inference.

    Every setting is a flag (--max-body), a variable of the environment (CLEARFORMER_MAX_BODY; lists with commas) or a
    word of the TOML file (max_body); the first of these that says something counts. The first line on stdout says where
    the server is and what it serves; the log on stderr is JSON, a line each. Ctrl-C or SIGTERM ends it: what runs is
    finished.
    """
    from clearformer.serve.settings import read_settings

    settings = read_settings(given, config)
    try:
        from clearformer.serve.run import serve as run
    except ModuleNotFoundError as error:
        hint = "pip install 'clearformer[serve]'"
        raise ClearformerError(f"the server needs {error.name}: {hint}", hint=hint) from None
    run(settings)
