"""Providers, aliases and doors in the configuration: what holds, and what is refused where."""

from __future__ import annotations

import datetime
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from causerie.settings.credentials import read_credentials, secret_value
from causerie.settings.doors import default_address, door_addresses
from causerie.settings.load import Loaded, load
from causerie.settings.problems import SettingsError
from causerie.settings.values import Secret

DIGEST = "ab" * 32
PROVIDER = '[[providers]]\nname = "a"\nbase_url = "http://a.example/v1"\n'
FAKE = '[[models]]\nid = "m"\nengine = "fake"\n'
ALIAS = '[[aliases]]\nid = "x"\n'


def loaded(folder: Path, text: str) -> Loaded:
    file = folder / "causerie.toml"
    file.write_text(text, encoding="utf-8")
    return load(file=file, environ={})


def refused(folder: Path, text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        loaded(folder, text)
    return [str(problem).replace(str(folder), "") for problem in caught.value.problems]


def running_in_group(group: str) -> bool:
    """Whether a process of this group runs, by Linux; one that nobody has awaited does not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group, *_ = stat.read_text().rpartition(")")[2].split()
            if its_group == group and state not in "ZX":
                return True
    return False


FULL = """\
[[models]]
id = "local-qwen"
engine = "fake"

[[providers]]
name = "vllm-a"
base_url = "https://10.0.0.5:8000/v1"
dialect = "vllm"
key = { env = "VLLM_KEY" }
proxy = { file = "proxy.txt" }
max_concurrent = 64
[providers.timeouts]
connect = 1
first_token = 2.5
[providers.tls]
verify = false
server_name = "vllm.internal"
[providers.health]
path = ""
[[providers.models]]
id = "Qwen/Qwen3-8B"
context_length = 32768
supported_parameters = ["tools", "tool_choice"]
thinking = "switch"
continues = true
probed = "2026-11-21"

[[aliases]]
id = "qwen3-8b"
targets = [
  { provider = "vllm-a", model = "Qwen/Qwen3-8B", weight = 2 },
  { model = "local-qwen", priority = 1 },
]
[aliases.limits]
requests_per_minute = 60
"""


def test_the_whole_of_it(tmp_path: Path) -> None:
    settings = loaded(tmp_path, FULL).settings
    (provider,) = settings.providers
    assert provider.key == Secret(env="VLLM_KEY")
    assert provider.proxy == Secret(file=str(tmp_path / "proxy.txt"))
    assert (provider.timeouts.connect, provider.timeouts.first_token) == (1.0, 2.5)
    assert (provider.timeouts.between_chunks, provider.timeouts.total) == (60.0, 1800.0)
    assert (provider.tls.verify, provider.tls.server_name) == (False, "vllm.internal")
    assert provider.health.path == ""
    (model,) = provider.models
    assert model.probed == datetime.date(2026, 11, 21)
    (alias,) = settings.aliases
    assert [(one.name, one.priority, one.weight) for one in alias.targets] == [
        ("vllm-a/Qwen/Qwen3-8B", 0, 2.0),
        ("local-qwen", 1, 1.0),
    ]
    assert alias.limits.requests_per_minute == 60


def test_with_aliases_the_first_door_is_a_gateway(tmp_path: Path) -> None:
    settings = loaded(tmp_path, FULL).settings
    assert [
        (way.door.name, way.door.kind, way.prefix, way.hosts, way.models)
        for way in door_addresses(settings)
    ] == [
        ("gateway", "gateway", "/gateway/v1", ("gateway.localhost",), ("qwen3-8b",)),
        (
            "endpoint",
            "endpoint",
            "/endpoints/endpoint/v1",
            ("endpoint.localhost",),
            ("local-qwen",),
        ),
        (
            "local-qwen",
            "endpoint",
            "/endpoints/local-qwen/v1",
            ("local-qwen.localhost",),
            ("local-qwen",),
        ),
    ]
    assert default_address(settings).door.name == "gateway"


def test_a_gateway_alone_needs_no_model_of_its_own(tmp_path: Path) -> None:
    text = PROVIDER + ALIAS + 'targets = [{ provider = "a", model = "y" }]\n'
    settings = loaded(tmp_path, text).settings
    assert settings.models == ()
    assert [way.door.name for way in door_addresses(settings)] == ["gateway"]


def test_providers_without_aliases_leave_the_default_model(tmp_path: Path) -> None:
    settings = loaded(tmp_path, PROVIDER).settings
    assert [model.id for model in settings.models] == ["smollm2-135m"]
    assert [way.door.name for way in door_addresses(settings)] == ["endpoint", "smollm2-135m"]


def test_fields_that_a_provider_gets_besides(tmp_path: Path) -> None:
    text = PROVIDER + 'dialect = "openai"\npasses = ["top_k", "messages.content.cache_control"]\n'
    text += 'passes_privileged = ["service_tier", "messages.content.cache_control.ttl"]\n'
    [one] = loaded(tmp_path, text).settings.providers
    assert one.passes == ("top_k", "messages.content.cache_control")
    assert one.passes_privileged == ("service_tier", "messages.content.cache_control.ttl")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ('id = "Qwen/Qwen3-8B.Q4"', "qwen-qwen3-8b-q4"),
        ('id = "m"\ndoor = "mine"', "mine"),
        (f'id = "{"x" * 62}-y"', "x" * 62),
    ],
)
def test_every_model_has_a_door_of_its_own(tmp_path: Path, model: str, name: str) -> None:
    text = f'[server]\npublic_host = "llm.example"\n[[models]]\nengine = "fake"\n{model}\n'
    way = door_addresses(loaded(tmp_path, text).settings)[-1]
    assert (way.door.name, way.prefix, way.hosts, way.own) == (
        name,
        f"/endpoints/{name}/v1",
        (f"{name}.llm.example",),
        True,
    )


def test_keys_of_a_models_own_door(tmp_path: Path) -> None:
    other = "cd" * 32
    text = (
        f'[server]\nkeys = ["{DIGEST}"]\n'
        + FAKE
        + '[[models]]\nid = "open"\nengine = "fake"\nkeys = "off"\n'
        + f'[[models]]\nid = "own"\nengine = "fake"\nkeys = ["{other}"]\n'
    )
    found = {
        way.door.name: way.door.keys for way in door_addresses(loaded(tmp_path, text).settings)
    }
    assert found == {"endpoint": (DIGEST,), "m": (DIGEST,), "open": "off", "own": (other,)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FAKE + '[[doors]]\nname = "m"\n',
         ':2: models[0].id: "m" is taken by doors[0]; set another `door` for the model '
         "(/causerie.toml:4)"),
        (FAKE + '[[models]]\nid = "M"\nengine = "fake"\n',
         ':5: models[1].id: "m" is taken by the own door of models[0]; set another `door` for '
         "the model (/causerie.toml:1)"),
        (FAKE + '[[doors]]\nname = "d"\nhosts = ["m.localhost"]\n',
         ':2: models[0].id: "m.localhost" leads to doors[0] already; set another `door`'),
        (FAKE + '[[doors]]\nname = "d"\nprefix = "/endpoints/m/v1"\n',
         ':2: models[0].id: "/endpoints/m/v1" leads to doors[0] already; set another `door`'),
        ('[[models]]\nid = "_:"\nengine = "fake"\n', ':2: models[0].id: is "_:"; it takes'),
        (FAKE + '[[doors]]\nname = "g"\nkind = "gateway"\n',
         ":6: doors[0].kind: leads nowhere, for there is no alias; list some, or make it a door of "
         '`kind = "endpoint"`'),
        (FAKE + '[[doors]]\nname = "d"\nreasoning = true\n',
         ':6: doors[0].reasoning: is for doors of `kind = "gateway"` only'),
        (FAKE + '[[doors]]\nname = "d"\nprefix = "/v1/chat"\n',
         ':6: doors[0].prefix: "/v1/chat" is in use by the service itself'),
        (FAKE + '[[doors]]\nname = "d"\nprefix = "/a/../v1"\n', ":6: doors[0].prefix:"),
        (FAKE + ALIAS + 'targets = [{ model = "m" }]\n[[doors]]\nname = "g"\nkind = "gateway"\n'
         'models = ["m"]\n',
         ':10: doors[0].models: no alias has the id "m"; known: x'),
        (FAKE + '[[aliases]]\nid = "m"\ntargets = [{ model = "m" }]\n',
         ':5: aliases[0].id: "m" is taken by models[0].id; names are unique (/causerie.toml:2)'),
        (FAKE + ALIAS + "targets = []\n", ":6: aliases[0].targets: is empty; name at least one"),
        (FAKE + ALIAS + 'targets = [\n  { model = "m" },\n  { provider = "b", model = "m" },\n]\n',
         ':8: aliases[0].targets[1].provider: no provider is named "b"; known: none'),
        (FAKE + ALIAS + 'targets = [{ model = "n" }]\n',
         ':6: aliases[0].targets[0].model: no model of our own has the id "n"; known: m; '
         "a model of a provider needs `provider`"),
        (FAKE + ALIAS + 'targets = [{ model = "m" }, { model = "m", priority = 1 }]\n',
         ':6: aliases[0].targets[1]: "m" is in the list already'),
        (FAKE + ALIAS + 'targets = [{ model = "m", wieght = 1 }]\n',
         ":6: aliases[0].targets[0].wieght: is not a setting; did you mean `weight`?"),
        (PROVIDER + PROVIDER,
         ':5: providers[1].name: "a" is taken; names are unique (/causerie.toml:2)'),
        (PROVIDER + 'dialect = "vlm"\n',
         ':4: providers[0].dialect: there is no dialect "vlm"; did you mean `vllm`?'),
        (PROVIDER + '[[models]]\nid = "a/x"\nengine = "fake"\n',
         ':5: models[0].id: "a/x" could be taken for a model of provider "a"; choose another id '
         "(/causerie.toml:2)"),
        ('[[providers]]\nname = "a"\nbase_url = "a.example/v1"\n',
         ':3: providers[0].base_url: is "a.example/v1"; it takes an address that begins'),
        ('[[providers]]\nname = "a"\nbase_url = "http://a.example/v1?x=1"\n',
         ":3: providers[0].base_url: cannot be used: an address has no `?`"),
        ('[[providers]]\nname = "a"\nbase_url = "http://a.example:99999/v1"\n',
         ":3: providers[0].base_url: cannot be used: "),
        (PROVIDER + '[providers.tls]\nca_file = "no.pem"\n',
         ":5: providers[0].tls.ca_file: there is no file"),
        (PROVIDER + '[[providers.models]]\nid = "y"\nsupported_parameters = ["tool"]\n',
         ':6: providers[0].models[0].supported_parameters: "tool" is no parameter of a request; '
         "did you mean `tools`?"),
        (PROVIDER + "key = {}\n", ":4: providers[0].key: has nothing; it takes `{ env"),
        (PROVIDER + 'key = { env = "A", file = "b" }\n',
         ":4: providers[0].key: has `env` and `file`; it takes `{ env"),
        (PROVIDER + "[providers.health]\npath = \"models\"\n",
         ':5: providers[0].health.path: is "models"; it takes a path like `/models`, or'),
        (PROVIDER + 'passes = ["models"]\n',
         ':4: providers[0].passes: "models" chooses the model: another model than the one that was '
         "priced answers, and is billed to your key; if you accept that, move it to "
         "`passes_privileged`"),
        (PROVIDER + 'passes = ["x.callbackUrl"]\n',
         ':4: providers[0].passes: "x.callbackUrl" chooses the address: '),
        (PROVIDER + 'passes = ["service_tier"]\n',
         ':4: providers[0].passes: "service_tier" chooses the price: '),
        (PROVIDER + 'passes_privileged = ["top_a"]\n',
         ':4: providers[0].passes_privileged: "top_a" is not privileged; move it to `passes`'),
        (PROVIDER + 'passes = ["messages.content"]\n',
         ':4: providers[0].passes: "messages.content" is sent already; leave it out'),
        (PROVIDER + 'passes = ["tools"]\n',
         ':4: providers[0].passes: "tools" is sent as the dialect says; leave it out'),
        (PROVIDER + 'passes = ["top_k"]\n',
         ':4: providers[0].passes: "top_k" is sent as the dialect says; leave it out'),
        (PROVIDER + 'dialect = "mistral"\npasses = ["seed"]\n',
         ':5: providers[0].passes: "seed" is sent as the dialect says; leave it out'),
        (PROVIDER + 'passes = ["functions"]\n',
         ':4: providers[0].passes: "functions" is refused at every door: Define functions in'),
        (PROVIDER + 'passes = ["a..b"]\n',
         ':4: providers[0].passes: is ["a..b"]; it takes a list, each the name of a field'),
        (PROVIDER + 'private_image_hosts = ["127.1"]\n',
         ':4: providers[0].private_image_hosts: "127.1" is no name in lower case, suffix'),
    ],
)  # fmt: skip
def test_what_cannot_be(tmp_path: Path, text: str, expected: str) -> None:
    problems = refused(tmp_path, text)
    assert any(problem.startswith("/causerie.toml" + expected) for problem in problems), problems


@pytest.mark.parametrize("name", ["ca_file", "client_cert"])
def test_files_that_hold_no_certificate(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.pem").write_text("hunter2")
    text = PROVIDER.replace("http:", "https:") + f'[providers.tls]\n{name} = "x.pem"\n'
    (problem,) = refused(tmp_path, text)
    assert problem.startswith(f"/causerie.toml:5: providers[0].tls.{name}: cannot be used: ")
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    "line",
    [
        'key = "sk-hunter2"',
        'key = ["sk-hunter2"]',
        'key = { env = ["hunter2"] }',
        'key = { env = "sk-hunter2" }',
        'key = { value = "hunter2" }',
        'proxy = "http://me:hunter2@proxy.example"',
        'proxy = "ftp://me:hunter2@proxy.example"',
    ],
)
def test_secrets_in_the_file_are_refused_and_not_repeated(tmp_path: Path, line: str) -> None:
    (problem,) = refused(tmp_path, PROVIDER + line + "\n")
    assert problem.startswith("/causerie.toml:4: providers[0].")
    assert "hunter2" not in problem


def test_an_address_with_a_password_is_refused(tmp_path: Path) -> None:
    text = '[[providers]]\nname = "a"\nbase_url = "http://me:hunter2@a.example/v1"\n'
    (problem,) = refused(tmp_path, text)
    assert problem == (
        "/causerie.toml:3: providers[0].base_url: holds a user name or a password; take it out "
        "and name its key by `key`"
    )


class TestCredentials:
    """Secrets come from where the file says they are."""

    def read(self, folder: Path, lines: str, **environ: str) -> dict[str, str]:
        found = read_credentials(loaded(folder, PROVIDER + lines), environ)
        assert "hunter2" not in repr(found)
        return {**found.keys, **{f"proxy {name}": one for name, one in found.proxies.items()}}

    def test_variable(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, 'key = { env = "K" }\n', K=" hunter2\n") == {"a": "hunter2"}

    def test_file(self, tmp_path: Path) -> None:
        (tmp_path / "key.txt").write_text("hunter2\n")
        assert self.read(tmp_path, 'key = { file = "key.txt" }\n') == {"a": "hunter2"}

    def test_command(self, tmp_path: Path) -> None:
        line = f'key = {{ command = ["{sys.executable}", "-c", "print(\'hunter2\')"] }}\n'
        assert self.read(tmp_path, line) == {"a": "hunter2"}

    def test_a_command_gets_no_variable_of_ours_that_is_not_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("OPENAI_API_KEY", "CAUSERIE_STORE_URL", "PROFILE", "VAULT_TOKEN"):
            monkeypatch.setenv(name, "hunter2")
        script = 'echo "${OPENAI_API_KEY-}${CAUSERIE_STORE_URL-}${PROFILE-}=${VAULT_TOKEN-}"'
        given = ', environment = ["VAULT_TOKEN"] }\n'
        line = f"key = {{ command = ['sh', '-c', '{script}']{given}"
        assert self.read(tmp_path, line) == {"a": "=hunter2"}

    @pytest.mark.parametrize(
        ("script", "words"),
        [
            ("echo hunter2; sleep 60 & sleep 60", "has not ended after 0.3 s"),
            ("sleep 60 & echo hunter2", "has not ended after 0.3 s"),  # the child holds the pipe
            ("yes hunter2", "prints more than 64 KiB"),
            (r"printf '\377'", "does not print text"),
        ],
    )
    def test_a_command_is_bounded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
    ) -> None:
        monkeypatch.setattr("causerie.settings.credentials._COMMAND_SECONDS", 0.3)
        place = Secret(command=("sh", "-c", f"cd '{tmp_path}'; echo $$ > pid; {script}"))
        began = time.monotonic()
        with pytest.raises(ValueError, match=f"^the command sh {words}$"):
            secret_value(place, {})
        assert time.monotonic() - began < 20
        while running_in_group((tmp_path / "pid").read_text().strip()):  # not for ever
            time.sleep(0.01)

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ('key = { env = "K", lifetime = 60 }', "which belong to a `command`"),
            ('key = { file = "k", environment = ["A"] }', "which belong to a `command`"),
            ('key = { command = ["a"], lifetime = 0.5 }', "a number from 1 to"),
            ('proxy = { command = ["a"], lifetime = 60 }', "only keys of providers change"),
        ],
    )
    def test_options_where_they_have_no_effect(self, tmp_path: Path, line: str, words: str) -> None:
        [problem] = refused(tmp_path, PROVIDER + line + "\n")
        assert words in problem

    def test_proxy(self, tmp_path: Path) -> None:
        address = "http://me:hunter2@proxy.example"
        assert self.read(tmp_path, 'proxy = { env = "P" }\n', P=address) == {"proxy a": address}

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ('key = { env = "GONE" }', "the variable GONE is not set; set it for the service"),
            ('key = { file = "gone.txt" }', "cannot be read: No such file or directory"),
            ('key = { env = "TWO" }', "the variable TWO gives more than one word in ASCII"),
            ('key = { env = "LINES" }', "the variable LINES gives more than one word in ASCII"),
            ('key = { env = "BLANK" }', "the variable BLANK gives nothing; it takes one line"),
            ('key = { command = ["no-such-program"] }', "cannot be run: No such file"),
            (f'key = {{ command = ["{sys.executable}", "-c", "print(\'hunter2\'); exit(3)"] }}',
             "ended with code 3"),
            ('proxy = { env = "TOKEN" }', "an address begins with http:// or https://"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_had(self, tmp_path: Path, line: str, words: str) -> None:
        environ = {
            "TWO": "hunter2 hunter2",
            "LINES": "hunter2\r\nx-evil:1",
            "BLANK": " ",
            "TOKEN": "hunter2",
        }
        found = loaded(tmp_path, PROVIDER + line + "\n")
        with pytest.raises(SettingsError) as caught:
            read_credentials(found, environ)
        (problem,) = caught.value.problems
        assert problem.where == f"{tmp_path}/causerie.toml:4"
        assert words in problem.advice
        assert "hunter2" not in str(problem)
