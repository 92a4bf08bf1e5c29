"""What the server is told: flags, environment (`CLEARFORMER_PORT`) and one TOML file, all the same words."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from clearformer.errors import DataError, SpecError, nearest
from clearformer.spec.base import Part, Positive

Count = Annotated[int, Field(gt=0, le=2**31)]
PREFIX = "CLEARFORMER_"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ServerSettings(Part):
    """Where to listen, what to serve, and how much of it. Times are in seconds, sizes in bytes."""

    model: tuple[str, ...] = ()  # folders or names of bundled models, each also as NAME=FOLDER; none: all bundled
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000  # 0: any that is free
    precision: Literal["auto", "int8", "float32"] = "auto"
    key_file: Path | None = None  # a key a line; every route but /live then wants one
    insecure: bool = False  # listen beyond this machine without keys
    allow_host: tuple[str, ...] = ()  # names besides this machine's under which it may be asked
    allow_origin: tuple[str, ...] = ()  # pages of these origins may ask it (CORS)
    lenient: bool = False  # fields that are not known are passed over instead of refused
    traces: Annotated[int, Field(ge=0, le=100_000)] | None = (
        None  # answers that can be looked into later; None: 64 on loopback, 0 beyond
    )
    page: bool = True  # the see-through page

    queue_tokens: Count = 131_072  # of all requests that wait or run; more is refused with 429
    max_prompt_tokens: Count = 32_768
    max_new_tokens: Count = 8_192
    max_rows: Count = 32  # texts that one request may have written side by side: n, or n × beams
    max_texts: Count = 2_048  # of one request to an encoder or a translator
    max_stops: Count = 16
    max_logprobs: Annotated[int, Field(ge=0, le=100)] = 20
    max_header: Count = 32_768
    max_body: Count = 16 * 2**20
    max_connections: Count = 1_024
    max_pixels: Count = 40_000_000  # of an image, decoded

    header_seconds: Positive = 5.0  # for all headers of a request, from its first byte
    body_seconds: Positive = 8.0  # for its body
    send_seconds: Positive = 8.0  # for a client to take some of what is sent to it
    idle_seconds: Positive = 30.0  # for the next request of a connection
    request_seconds: Positive = 600.0  # from its arrival to its answer, the queue included
    grace_seconds: Positive = 30.0  # for those that run when the server is told to stop
    access_log: bool = True

    @property
    def on_loopback(self) -> bool:
        return self.host in LOOPBACK or self.host.startswith("127.")

    @property
    def kept_runs(self) -> int:
        return self.traces if self.traces is not None else 64 if self.on_loopback else 0

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if not self.on_loopback and self.key_file is None and not self.insecure:
            raise ValueError(
                f"host {self.host} can be reached from other machines: give key_file, or insecure if that is meant"
            )
        return self

    def read_keys(self) -> tuple[bytes, ...]:
        """The keys of the key file; none where there is no file."""
        if self.key_file is None:
            return ()
        try:
            lines = self.key_file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read the key file {self.key_file}: {error}", path=self.key_file) from None
        found = tuple(line.strip().encode() for line in lines if line.strip() and not line.startswith("#"))
        if not found:
            raise DataError(f"{self.key_file} holds no key; write one a line", path=self.key_file)
        return found


def read_settings(
    given: Mapping[str, Any], file: Path | None = None, environment: Mapping[str, str] | None = None
) -> ServerSettings:
    """Settings from a TOML file, the environment and what was given; what comes later in this list wins. Lists are
    separated by commas in the environment."""
    content: dict[str, Any] = {}
    if file is not None:
        try:
            content = tomllib.loads(file.read_bytes().decode())
        except OSError as error:
            raise DataError(f"cannot read {file}: {error.strerror}", path=file) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{file} is not TOML: {error}", path=file) from None
    for name, value in (os.environ if environment is None else environment).items():
        field = name.removeprefix(PREFIX).lower()
        if name.startswith(PREFIX):
            if field not in ServerSettings.model_fields:
                raise DataError(f"there is no setting {name}{nearest(field, ServerSettings.model_fields)}", param=name)
            several = "tuple" in str(ServerSettings.model_fields[field].annotation)
            content[field] = [part.strip() for part in value.split(",") if part.strip()] if several else value
    content |= {name: value for name, value in given.items() if value is not None and value != []}
    try:
        return ServerSettings._from(content)
    except SpecError as error:
        raise DataError(f"settings of the server: {error}") from None
