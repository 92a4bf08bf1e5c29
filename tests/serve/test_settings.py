"""Settings: one set of words for flags, environment and file; wrong ones are errors that name them."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from clearformer.cli import app
from clearformer.cli import serve as command
from clearformer.errors import CheckpointError, ClearformerError, DataError
from clearformer.serve.registry import _named
from clearformer.serve.settings import LOOPBACK, ServerSettings, read_settings

runner = CliRunner()


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[ServerSettings]:
    """What the command would serve with."""
    found: list[ServerSettings] = []
    monkeypatch.setattr("clearformer.serve.run.serve", found.append)
    return found


def told(*words: str, given: list[ServerSettings], **environment: str) -> ServerSettings:
    result = runner.invoke(app, ["serve", *words], env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return given.pop()


def test_every_setting_has_a_flag_that_says_its_default() -> None:
    assert set(command.FLAGS) == set(ServerSettings.model_fields)
    for name, flag in command.FLAGS.items():
        default = ServerSettings.model_fields[name].default
        said = get_args(flag)[1].help
        if isinstance(default, bool):
            assert f"[default: {'yes' if default else 'no'}]" in said, name
        elif isinstance(default, int | float | str):
            assert f"[default: {default if isinstance(default, int | str) else format(default, 'g')}]" in said, name


def test_help_names_every_flag() -> None:
    shown = runner.invoke(app, ["serve", "--help"], terminal_width=200).output
    for name in [*command.FLAGS, "config"]:
        assert f"--{name.replace('_', '-')}" in shown


VALUES: dict[str, tuple[list[str], str, Any, Any]] = {  # flag, environment, TOML, what it comes to
    "model": (["--model", "a", "--model", "b=c"], "a, b=c", ["a", "b=c"], ("a", "b=c")),
    "host": (["--host", "::1"], "::1", "::1", "::1"),
    "port": (["--port", "0"], "0", 0, 0),
    "precision": (["--precision", "int8"], "int8", "int8", "int8"),
    "page": (["--no-page"], "false", False, False),
    "lenient": (["--lenient"], "1", True, True),
    "access_log": (["--no-access-log"], "no", False, False),
    "insecure": (["--insecure"], "true", True, True),
    "key_file": (["--key-file", "k"], "k", "k", Path("k")),
    "allow_host": (["--allow-host", "a.org"], "a.org", ["a.org"], ("a.org",)),
    "allow_origin": (["--allow-origin", "https://a.org"], "https://a.org", ["https://a.org"], ("https://a.org",)),
}
for _name, _field in ServerSettings.model_fields.items():
    if _name not in VALUES:
        VALUES[_name] = ([f"--{_name.replace('_', '-')}", "17"], "17", 17, 17)


@pytest.mark.parametrize("name", ServerSettings.model_fields)
def test_three_ways_to_say_it(name: str, given: list[ServerSettings], tmp_path: Path) -> None:
    flags, variable, toml, wanted = VALUES[name]
    file = tmp_path / "serve.toml"
    written = str(toml).lower() if isinstance(toml, bool) else repr(toml).replace("'", '"')
    file.write_text(f"{name} = {written}\n")
    assert getattr(told(*flags, given=given), name) == wanted
    assert getattr(told(given=given, **{f"CLEARFORMER_{name.upper()}": variable}), name) == wanted
    assert getattr(told("--config", str(file), given=given), name) == wanted


def test_flags_come_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('port = 1\nmax_body = 1\nmodel = ["a"]\nmax_rows = 1\n')
    found = read_settings(
        {"port": 3, "model": []}, file, {"CLEARFORMER_PORT": "2", "CLEARFORMER_MAX_BODY": "2", "PORT": "9"}
    )
    assert (found.port, found.max_body, found.max_rows, found.model) == (3, 2, 1, ("a",))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"port": 70_000}, "port"),
        ({"port": -1}, "port"),
        ({"queue_tokens": 0}, "queue_tokens"),
        ({"header_seconds": 0}, "header_seconds"),
        ({"request_seconds": float("inf")}, "request_seconds"),
        ({"precision": "int4"}, "precision.*'auto', 'int8' or 'float32'"),
        ({"host": "0.0.0.0"}, "0.0.0.0 can be reached from other machines: give key_file"),
        ({"host": "example.org"}, "can be reached"),
        ({"prot": 1}, "prot: unknown field; did you mean 'port'"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_settings(given, None, {})


@pytest.mark.parametrize("content", [b"port = ", b"\xff", b"[port]\na = 1\n", b'port = "many"', None])
def test_a_file_that_is_wrong_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "serve.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DataError, match=r"is not TOML|cannot read|port"):
        read_settings({}, file, {})


def test_a_variable_that_is_a_slip_is_named() -> None:
    with pytest.raises(DataError, match=re.escape("CLEARFORMER_PROT")):
        read_settings({}, None, {"CLEARFORMER_PROT": "1"})


def test_beyond_this_machine_keys_or_the_word_insecure_are_needed(tmp_path: Path) -> None:
    for host in (*LOOPBACK, "127.0.0.2"):
        assert ServerSettings(host=host).on_loopback
        assert ServerSettings(host=host).kept_runs == 64
    assert ServerSettings(host="0.0.0.0", insecure=True).kept_runs == 0
    assert ServerSettings(host="0.0.0.0", key_file=tmp_path / "keys", traces=5).kept_runs == 5
    with pytest.raises(ClearformerError):
        ServerSettings(host="::")


def test_a_model_is_named_before_the_first_sign_of_equality(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run=3" / "best"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert _named(f"mine={folder}") == ("mine", folder)
    assert _named(str(folder)) == ("", folder)
    assert _named("run=3/best") == ("", Path("run=3/best"))
    assert _named("a=run=3/best") == ("a", Path("run=3/best"))
    with pytest.raises(CheckpointError, match="run=4"):
        _named(str(tmp_path / "run=4"))
