"""Every problem of a configuration is reported in one run, whatever else is wrong."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from causerie.cli.root import app
from causerie.composition.entries import checked
from causerie.settings.load import load
from causerie.settings.problems import SettingsError

# Each line of a valid configuration, and where it can be wrong: the line then, and the key.
LINES: tuple[tuple[str, str, str], ...] = (
    ("", "prot = 1", "prot"),
    ("[server]", "", ""),
    ("port = 8000", 'port = "abc"', "server.port"),
    ('host = "127.0.0.1"', "host = 3", "server.host"),
    ("", 'keys = "maybe"', "server.keys"),
    ("", "drian_seconds = 3", "server.drian_seconds"),
    ("[logging]", "", ""),
    ('level = "info"', 'level = "loud"', "logging.level"),
    ("[store]", "", ""),
    ("", 'secret_keys = [{ env = "NOT_SET_KEY" }]', "store.secret_keys[0]"),
    ('journal = "write"', "journal = 1", "store.journal"),
    ("[console]", "", ""),
    ("proxies = []", 'proxies = ["1.2.3.4/99"]', "console.proxies"),
    ('address = "https://a.example"', 'address = "a.example"', "console.address"),
    ("[[models]]", "", ""),
    ('id = "own"', 'id = "a b"', "models[0].id"),
    ('engine = "fake"', 'engine = "fkae"', "models[0].engine"),
    ("", 'template = "nowhere.jinja"', "models[0].template"),
    ("", 'format = "quen"', "models[0].format"),
    ("", 'context = "long"', "models[0].context"),
    ("[[models]]", "", ""),
    ('id = "other"', "", "models[1].id"),
    ('engine = "fake"', 'engine = "fake"\ntemplate = "broken.jinja"', "models[1].template"),
    ("[[providers]]", "", ""),
    ('name = "north"', "name = 3", "providers[0].name"),
    ('base_url = "https://a.example/v1"', 'base_url = "https://u:p@a/v1"', "providers[0].base_url"),
    ("", 'key = { env = "NOT_SET" }', "providers[0].key"),
    ("", 'proxy = { file = "nowhere" }', "providers[0].proxy"),
    ("", 'dialect = "frob"', "providers[0].dialect"),
    ("[providers.tls]", "", ""),
    ("", 'ca_file = "nowhere.pem"', "providers[0].tls.ca_file"),
    ("[[providers]]", "", ""),
    ('name = "south"', 'name = "South"', "providers[1].name"),
    ('base_url = "https://b.example/v1"', "", "providers[1].base_url"),
    ("[[aliases]]", "", ""),
    ('id = "fast"', 'id = ["fast"]', "aliases[0].id"),
    ('targets = [{ provider = "north", model = "m" }, { model = "own" }]',
     'targets = [{ provider = "north" }, { model = "own" }]', "aliases[0].targets[0].model"),
    ("[[aliases]]", "", ""),
    ('id = "slow"', 'id = "slow"\ndescription = 3', "aliases[1].description"),
    ('targets = [{ provider = "south", model = "m" }]', "targets = 3", "aliases[1].targets"),
)  # fmt: skip
FAULTS = [number for number, (_, _, key) in enumerate(LINES) if key]


def text(faults: frozenset[int]) -> str:
    return "\n".join(bad if n in faults else good for n, (good, bad, _) in enumerate(LINES)) + "\n"


def told(folder: Path, faults: frozenset[int]) -> list[tuple[str, str]]:
    """Place and key of each problem."""
    (folder / "broken.jinja").write_text("{% if %}")
    file = folder / "causerie.toml"
    file.write_text(text(faults))
    try:
        checked(lambda: load(file=file, environ={}))
    except SettingsError as error:
        return [(problem.where, problem.key) for problem in error.problems]
    return []


def test_without_faults_it_holds(tmp_path: Path) -> None:
    assert told(tmp_path, frozenset()) == []


@given(st.frozensets(st.sampled_from(FAULTS)))
def test_as_many_faults_as_there_are_are_told(faults: frozenset[int]) -> None:
    with TemporaryDirectory() as folder:
        problems = told(Path(folder), faults)
        assert sorted(key for _, key in problems) == sorted(LINES[n][2] for n in faults)
        lines = (Path(folder) / "causerie.toml").read_text().splitlines()
    for where, _ in problems:
        file, _, line = where.rpartition(":")
        assert Path(file).name == "causerie.toml"
        assert 1 <= int(line) <= len(lines)


def test_all_faults_at_once_each_with_its_line(tmp_path: Path) -> None:
    problems = {key: where for where, key in told(tmp_path, frozenset(FAULTS))}
    lines = (tmp_path / "causerie.toml").read_text().splitlines()
    for number in FAULTS:
        _, bad, key = LINES[number]
        if bad and "\n" not in bad:
            assert lines[int(problems[key].rpartition(":")[2]) - 1] == bad


def test_the_command_shows_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text(text(frozenset(FAULTS)).replace("broken.jinja", "nowhere2.jinja"))
    ended = CliRunner().invoke(app, ["check", "--config", str(file)])
    assert ended.exit_code == 3
    for number in FAULTS:
        assert f": {LINES[number][2]}: " in ended.stderr


PATHS = """\
[[models]]
id = "a"
ref = "nowhere/a.gguf"
[[models]]
id = "b"
ref = "./here.gguf"
[[models]]
id = "c"
engine = "vllm"
ref = "nowhere/c"
[[models]]
id = "d"
ref = "nobody/such-repository-by-path"
[[models]]
id = "e"
ref = "hf:nobody/such-repository"
[models.llamacpp]
command = "bin/llama-server"
[[models]]
id = "f"
ref = "pypi:no-such-package"
[[models]]
id = "g"
engine = "fake"
ref = "./nowhere"
[[models]]
id = "h"
ref = "hf:no"
"""
REPOSITORY = "; a repository is written hf:nobody/such-repository-by-path"


def test_the_check_tells_of_each_path_without_weights(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text(PATHS)
    (tmp_path / "here.gguf").touch()
    ended = CliRunner().invoke(app, ["check", "--config", str(file)])
    assert ended.exit_code == 3
    told = [line for line in ended.stderr.splitlines() if "models[" in line]
    gone, folder = tmp_path / "nowhere/a.gguf", tmp_path / "nowhere/c"
    path = "nobody/such-repository-by-path"
    wanted = {
        f'{file}:3: models[0].ref: "{gone}" does not exist; name a .gguf file',
        f'{file}:10: models[2].ref: "{folder}" does not exist; name a model folder',
        f'{file}:13: models[3].ref: "{path}" does not exist; name a .gguf file{REPOSITORY}',
        f'{file}:18: models[4].llamacpp.command: "{tmp_path / "bin/llama-server"}" does not exist; '
        "name the program `llama-server` of a build of llama.cpp",
    }
    found = {line.removeprefix("causerie: ").strip() for line in told}
    assert wanted < found
    assert [line for line in found - wanted if "models[7].ref: 'hf:no'" not in line] == []


def test_a_service_still_begins_without_the_weights_of_one_model(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text(PATHS.replace('hf:no"', 'hf:no/such"'))
    loaded, _ = checked(lambda: load(file=file, environ={}), commands=False)
    assert len(loaded.settings.models) == 8
