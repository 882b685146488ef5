"""``causerie check``: valid or not, and what is in force."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from causerie.cli.root import app
from causerie.settings.load import load

TEXT = """\
[server]
port = 9000

[[models]]
id = "echo"
engine = "fake"
description = "\\u007f"
options = { "a b" = [1, { deep = "x" }], on = true, most = inf, day = 1979-05-27 }

[models.sampling]
temperature = 0.5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "causerie.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.parametrize("more", [[], ["--all"]])
def test_what_is_printed_is_the_same_configuration(
    file: Path, tmp_path: Path, more: list[str]
) -> None:
    result = CliRunner().invoke(app, ["check", "--config", str(file), *more])
    assert result.exit_code == 0, result.stderr
    again = tmp_path / "again.toml"
    again.write_text(result.stdout, encoding="utf-8")
    assert load(file=again, environ={}).settings == load(file=file, environ={}).settings


def test_a_template_must_be_one(file: Path) -> None:
    file.with_name("bad.jinja").write_text("{% if messages", encoding="utf-8")
    file.write_text('[[models]]\nid = "a"\nref = "pypi:a"\ntemplate = "bad.jinja"\n')
    result = CliRunner().invoke(app, ["check", "--config", str(file)])
    assert result.exit_code == 3
    assert "models[0].template: " in result.stderr
    assert "is not valid Jinja: line 1" in result.stderr


def test_providers_and_aliases_too(tmp_path: Path) -> None:
    text = """
[[providers]]
name = "a"
base_url = "http://a.example/v1"
key = { env = "A_KEY" }
[providers.timeouts]
connect = 1
[[providers.models]]
id = "big"
probed = 2026-11-21
supported_parameters = []
[[aliases]]
id = "x"
targets = [{ provider = "a", model = "big", weight = 2 }]
[aliases.limits]
concurrent = 3
"""
    file = tmp_path / "causerie.toml"
    file.write_text(text)
    result = CliRunner(env={"A_KEY": "hunter2"}).invoke(app, ["check", "-c", str(file)])
    assert result.exit_code == 0, result.stderr
    assert "hunter2" not in result.output
    again = tmp_path / "again.toml"
    again.write_text(result.stdout)
    assert load(file=again, environ={}).settings == load(file=file, environ={}).settings
    assert result.stdout.splitlines()[-4:] == [
        "# DOOR     KIND     KEYS  ADDRESS                           MODELS",
        "# gateway  gateway  off   http://127.0.0.1:8000/v1          x",
        "#                         http://127.0.0.1:8000/gateway/v1",
        "#                         http://gateway.localhost:8000/v1",
    ]


def test_keys_that_change_are_explained_and_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hunter2")
    text = ""
    for name, key in (
        ("a", '{ command = ["sh", "-c", "touch ran"], lifetime = 3600, environment = ["A"] }'),
        ("b", '{ command = ["no-such-program"] }'),
        ("c", f'{{ file = "{tmp_path}/key" }}'),
        ("d", '{ env = "D_KEY" }'),
    ):
        text += f'[[providers]]\nname = "{name}"\nbase_url = "http://a.example/v1"\nkey = {key}\n'
    file = tmp_path / "causerie.toml"
    file.write_text(text)
    result = CliRunner(env={"D_KEY": "x"}).invoke(app, ["check", "-c", str(file)])
    assert result.exit_code == 0, result.stderr
    assert not (tmp_path / "ran").exists()
    assert result.stdout.splitlines()[-3:] == [
        "# Key of a: the command sh is run, with PATH, HOME and the like, A, at the start, a "
        "reload, every 2880 s and after a 401",
        "# Key of b: the command no-such-program (not found in PATH here) is run, with PATH, HOME "
        "and the like, at the start, a reload and after a 401",
        f"# Key of c: the file {tmp_path}/key is read at the start, a reload, every 5 s and after "
        "a 401",
    ]
    again = tmp_path / "again.toml"
    again.write_text(result.stdout)
    assert load(file=again, environ={}).settings == load(file=file, environ={}).settings


def test_a_secret_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text(
        '[[providers]]\nname = "a"\nbase_url = "http://a.example/v1"\nkey = { env = "A_KEY" }\n'
    )
    result = CliRunner().invoke(app, ["check", "-c", str(file), "-q"])
    assert result.exit_code == 3
    assert result.stderr == (
        f"causerie: {file}:4: providers[0].key: the variable A_KEY is not set; set it for the "
        "service\n"
    )


def test_each_value_says_where_it_comes_from(file: Path) -> None:
    arguments = ["check", "-c", str(file), "--all", "--set", "engines.load_seconds=5"]
    result = CliRunner(env={"CAUSERIE_LOGGING_LEVEL": "debug"}).invoke(app, arguments)
    lines = result.stdout.splitlines()
    assert lines[0] == f"# {file}"
    assert "port = 9000  # line 2" in lines
    assert "temperature = 0.5  # line 11" in lines
    assert "load_seconds = 5.0  # --set" in lines
    assert 'level = "debug"  # variable CAUSERIE_LOGGING_LEVEL' in lines
    assert 'host = "127.0.0.1"  # default' in lines


def test_defaults_are_shown_only_with_all(file: Path) -> None:
    file.write_text("[server]\nport = 9000\n", encoding="utf-8")
    lines = CliRunner().invoke(app, ["check", "-c", str(file)]).stdout.splitlines()
    doors = next(index for index, line in enumerate(lines) if line.startswith("# DOOR"))
    assert lines[:doors] == [f"# {file}", "", "[server]", "port = 9000  # line 2", ""]


def test_so_does_what_stands_in_an_inline_table(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text("""\
[[models]]
id = "echo"
engine = "fake"
price = { prompt = "0.15" }
[[aliases]]
id = "x"
targets = [
  { model = "echo", weight = 2 },
]
""")
    lines = CliRunner().invoke(app, ["check", "-c", str(file), "--all"]).stdout.splitlines()
    assert 'prompt = "0.15"  # line 4' in lines
    assert 'completion = "0"  # default' in lines
    assert 'model = "echo"  # line 8' in lines
    assert "weight = 2.0  # line 8" in lines
    assert "priority = 0  # default" in lines


def test_secrets_are_left_out(file: Path) -> None:
    result = CliRunner(env={"HF_TOKEN": "hf_secret"}).invoke(app, ["check", "-c", str(file)])
    assert "hf_secret" not in result.output
    assert "# token: set, not shown  # variable HF_TOKEN" in result.stdout
    tomllib.loads(result.stdout)


def test_an_address_with_a_password_is_left_out(file: Path) -> None:
    mirror = '[weights]\nhub_endpoint = "https://user:word@hub.example"\n'
    file.write_text(TEXT + mirror, encoding="utf-8")
    result = CliRunner().invoke(app, ["check", "-c", str(file)])
    assert "word@" not in result.output
    assert "# hub_endpoint: set, not shown  # line 13" in result.stdout


def test_quiet_says_nothing(file: Path) -> None:
    result = CliRunner().invoke(app, ["check", "-c", str(file), "--quiet"])
    assert (result.exit_code, result.output) == (0, "")


def test_variables_that_set_nothing_are_named(file: Path) -> None:
    environ = {"CAUSERIE_SERVER_PROT": "1"}
    result = CliRunner(env=environ).invoke(app, ["check", "-c", str(file), "-q"])
    assert result.stderr == "causerie: the variable CAUSERIE_SERVER_PROT sets nothing\n"


def test_a_variable_that_the_file_names_is_not_idle(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text(
        '[[providers]]\nname = "a"\nbase_url = "http://a.example/v1"\n'
        'key = { env = "CAUSERIE_A_KEY" }\n'
    )
    runner = CliRunner(env={"CAUSERIE_A_KEY": "hunter2", "CAUSERIE_B_KEY": "hunter3"})
    result = runner.invoke(app, ["check", "-c", str(file), "-q"])
    assert result.exit_code == 0, result.stderr
    assert result.stderr == "causerie: the variable CAUSERIE_B_KEY sets nothing\n"


def test_what_is_wrong_is_code_3(file: Path) -> None:
    file.write_text("[server]\nprot = 1\n", encoding="utf-8")
    result = CliRunner().invoke(app, ["check", "-c", str(file)])
    assert (result.exit_code, result.stdout) == (3, "")
    expected = f"causerie: {file}:2: server.prot: is not a setting; did you mean `port`?\n"
    assert result.stderr == expected


@pytest.mark.parametrize("pair", ["server.port", "server.prot=1", "models=1"])
def test_set_takes_a_known_key_and_a_value(file: Path, pair: str) -> None:
    result = CliRunner().invoke(app, ["check", "-c", str(file), "--set", pair])
    assert result.exit_code in (2, 3)
    assert result.stderr.startswith("causerie: --set")


def test_without_secrets_the_rest_is_checked(tmp_path: Path) -> None:
    """In CI the variables and files of secrets are not there."""
    file = tmp_path / "causerie.toml"
    provider = '[[providers]]\nname = "a"\nbase_url = "http://a.example/v1"\nkey = {{ {} }}\n'
    for place in ('env = "UNSET"', f'file = "{tmp_path}/none"'):
        file.write_text(provider.format(place))
        assert CliRunner().invoke(app, ["check", "-c", str(file)]).exit_code == 3
        result = CliRunner().invoke(app, ["check", "-c", str(file), "--no-secrets"])
        assert result.exit_code == 0, result.stderr
    file.write_text(provider.format('env = "UNSET"') + "weight = 3\n")
    result = CliRunner().invoke(app, ["check", "-c", str(file), "--no-secrets"])
    assert (result.exit_code, "UNSET" in result.stderr) == (3, False)
