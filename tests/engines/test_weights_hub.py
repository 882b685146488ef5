"""Weights from a hub: the whole way over real HTTP, and every way it goes wrong."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pytest
from hub import TOKEN, Hub, Recorder, gguf, serving, split

from causerie.engines.weights import HubOptions, Silent
from causerie.engines.weights.cache import Cache, delete_weights
from causerie.engines.weights.errors import (
    Ambiguous,
    BadReference,
    ChecksumMismatch,
    Gated,
    NoNetwork,
    NoSpace,
    NotGguf,
    Offline,
    WeightsError,
    WeightsNotFound,
)
from causerie.engines.weights.fetching import fetch
from causerie.engines.weights.reference import Reference

MODEL = gguf(padding=3_000_000)


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with serving() as hub:
        hub.repositories["org/repo"] = {"m-Q4_K_M.gguf": MODEL, "README.md": b"# m"}
        yield hub


def options(hub: Hub, token: str | None = None, attempts: int = 3) -> HubOptions:
    return HubOptions(endpoint=hub.url, token=token, attempts=attempts, retry_seconds=0)


def partials(folder: Path) -> list[Path]:
    return list(folder.rglob("*.partial"))


def models(folder: Path) -> list[Path]:
    return list(folder.rglob("*.gguf"))


@pytest.mark.parametrize("name", ["../m.gguf", "/m.gguf", "a/../../m.gguf", "C:m.gguf", ""])
def test_no_name_leaves_the_cache(tmp_path: Path, name: str) -> None:
    with pytest.raises(WeightsError, match="unusable name"):
        Cache(tmp_path).place(Reference.parse("hf:org/repo"), name)


async def test_fetched_checked_and_kept(hub: Hub, tmp_path: Path) -> None:
    seen = Recorder()
    weights = await fetch("hf:org/repo", tmp_path, progress=seen, hub=options(hub))
    assert weights.path.read_bytes() == MODEL
    assert weights.sha256 == hashlib.sha256(MODEL).hexdigest()
    assert (weights.ref, weights.size) == ("hf:org/repo", len(MODEL))
    assert seen.totals == [(len(MODEL), "Fetching m-Q4_K_M.gguf")]
    assert (sum(seen.counts), seen.ends) == (len(MODEL), 1)
    alongside = weights.path.with_name("m-Q4_K_M.gguf.sha256").read_text("utf-8")
    assert alongside == f"{weights.sha256}  m-Q4_K_M.gguf\n"
    assert partials(tmp_path) == []
    assert Cache(tmp_path).every() == (weights,)


async def test_the_second_time_asks_nobody(hub: Hub, tmp_path: Path) -> None:
    first = await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    hub.asked.clear()
    nowhere = HubOptions(endpoint="http://127.0.0.1:1", offline=True)
    assert await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=nowhere) == first
    assert hub.asked == []


async def test_two_names_of_one_file_share_it(hub: Hub, tmp_path: Path) -> None:
    first = await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    again = await fetch("hf:org/repo:q4_k_m", tmp_path, progress=Silent(), hub=options(hub))
    assert (again.path, again.sha256) == (first.path, first.sha256)
    assert hub.downloads() == 1


async def test_a_projector_comes_along_and_stays_while_others_need_it(
    hub: Hub, tmp_path: Path
) -> None:
    eye = gguf({"general.architecture": "clip"}, padding=10)
    files = {"m-Q4_K_M.gguf": MODEL, "m-Q8_0.gguf": MODEL + b"x", "mmproj-m-F16.gguf": eye}
    hub.repositories["org/eye"] = {**files, "mmproj-m-F32.gguf": eye}
    four, eight = [
        await fetch(f"hf:org/eye:{kind}", tmp_path, progress=Silent(), hub=options(hub))
        for kind in ("Q4_K_M", "Q8_0")
    ]
    assert four.path.read_bytes() == MODEL
    assert four.size == len(MODEL) + len(eye)
    assert sorted(file.name for file in models(tmp_path)) == sorted(files)
    assert hub.downloads() == 3
    await delete_weights(tmp_path, four)
    assert Cache(tmp_path).every() == (eight,)
    assert {file.name for file in models(tmp_path)} == {"m-Q8_0.gguf", "mmproj-m-F16.gguf"}
    await delete_weights(tmp_path, eight)
    assert models(tmp_path) == []


async def test_a_damaged_copy_is_fetched_again(hub: Hub, tmp_path: Path) -> None:
    first = await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    first.path.write_bytes(MODEL[:100])
    first.path.with_name("m-Q4_K_M.gguf.sha256").unlink()
    again = await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    assert again.path.read_bytes() == MODEL


async def test_a_copy_cut_short_is_fetched_again(hub: Hub, tmp_path: Path) -> None:
    first = await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    first.path.write_bytes(MODEL[:1000])
    again = await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    assert again == first
    assert again.path.read_bytes() == MODEL


async def test_broken_off_bodies_are_taken_up(hub: Hub, tmp_path: Path) -> None:
    hub.behaviour.cuts = [1_000_000, 1_000_000]
    seen = Recorder()
    weights = await fetch("hf:org/repo", tmp_path, progress=seen, hub=options(hub))
    assert weights.path.read_bytes() == MODEL
    assert len(hub.ranges) == 2
    assert sum(seen.counts) == len(MODEL)


async def test_another_try_takes_up_what_is_there(hub: Hub, tmp_path: Path) -> None:
    hub.behaviour.cuts = [2_000_000]
    with pytest.raises(NoNetwork, match="try again"):
        await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub, attempts=0))
    (left,) = partials(tmp_path)
    here = left.stat().st_size
    assert here > 0
    seen = Recorder()
    weights = await fetch("hf:org/repo", tmp_path, progress=seen, hub=options(hub))
    assert hub.ranges == [f"bytes={here}-"]
    assert seen.counts[0] == here
    assert weights.path.read_bytes() == MODEL


async def test_server_without_ranges_begins_anew(hub: Hub, tmp_path: Path) -> None:
    hub.behaviour.cuts = [1_000_000]
    hub.behaviour.ranges = False
    seen = Recorder()
    weights = await fetch("hf:org/repo", tmp_path, progress=seen, hub=options(hub))
    assert weights.path.read_bytes() == MODEL
    assert sum(seen.counts) == len(MODEL)


async def test_a_server_without_ranges_that_always_breaks_off_is_given_up(
    hub: Hub, tmp_path: Path
) -> None:
    hub.behaviour.cuts = [1_000_000] * 50
    hub.behaviour.ranges = False
    with pytest.raises(NoNetwork, match="broke off too often"):
        await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    assert hub.downloads() < 10


async def test_more_than_was_announced_is_not_taken(hub: Hub, tmp_path: Path) -> None:
    hub.behaviour.surplus = 50_000_000
    seen = Recorder()
    with pytest.raises(NoNetwork, match="more than was announced"):
        await fetch("hf:org/repo", tmp_path, progress=seen, hub=options(hub, attempts=0))
    assert max(accumulate(seen.counts)) < len(MODEL) + 2_000_000
    assert models(tmp_path) == []


async def test_passing_statuses_are_tried_again(hub: Hub, tmp_path: Path) -> None:
    hub.behaviour.statuses = [503, 429]
    weights = await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    assert weights.path.read_bytes() == MODEL


async def test_a_silent_server_is_given_up(hub: Hub, tmp_path: Path) -> None:
    hub.behaviour.held = 0
    impatient = HubOptions(endpoint=hub.url, attempts=1, retry_seconds=0, read_seconds=0.05)
    with pytest.raises(NoNetwork, match="broke off too often"):
        await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=impatient)


async def test_cancelled_in_the_middle(hub: Hub, tmp_path: Path) -> None:
    hub.behaviour.held = 1_500_000
    task = asyncio.ensure_future(
        fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    )
    await hub.sending.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    hub.behaviour.held = None
    weights = await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    assert weights.path.read_bytes() == MODEL


async def test_at_once_downloads_once(hub: Hub, tmp_path: Path) -> None:
    every = await asyncio.gather(
        *(fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub)) for _ in range(3))
    )
    assert len(set(every)) == 1
    assert hub.downloads() == 1


async def test_split_model(hub: Hub, tmp_path: Path) -> None:
    contents = [gguf(padding=500), b"second", b"third"]
    hub.repositories["org/big"] = {f"Q8_0/{k}": v for k, v in split("b-Q8_0", contents).items()}
    seen = Recorder()
    weights = await fetch("hf:org/big", tmp_path, progress=seen, hub=options(hub))
    assert weights.path.name == "b-Q8_0-00001-of-00003.gguf"
    assert weights.size == sum(map(len, contents))
    assert len(seen.totals) == seen.ends == 3
    (weights.path.parent / "b-Q8_0-00002-of-00003.gguf").unlink()
    again = await fetch("hf:org/big", tmp_path, progress=Silent(), hub=options(hub))
    assert again == weights
    assert hub.downloads() == 4


class Failure(NamedTuple):
    """A reference that cannot be had from the hub as ``gated`` says, and why."""

    ref: str
    kind: type[WeightsError]
    said: str
    gated: bool = False
    token: str | None = None


FAILURES = (
    Failure("hf:org/none", WeightsNotFound, "no repository org/none"),
    Failure("hf:org/repo:Q9", WeightsNotFound, "m-Q4_K_M.gguf"),
    Failure("hf:org/two", Ambiguous, "a.gguf, b.gguf"),
    Failure("hf:org/html", NotGguf, "letters GGUF"),
    Failure("hf:org/evil", WeightsError, "unusable name"),
    Failure("hf:org/a--b", BadReference, "names no repository"),
    Failure("hf:org/répo", BadReference, "names no repository"),
    Failure("hf:org/repo", Gated, "HF_TOKEN", gated=True),
    Failure("hf:org/repo", Gated, "no token has", gated=True, token="hf_wrong\nhf_wrong"),
    Failure("hf:org/repo", Gated, "no token has", gated=True, token="hf_wröng"),
    Failure("hf:org/repo", Gated, "accept its terms", gated=True, token="hf_wrong"),
)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda item: f"{item.ref} {item.token}")
async def test_failures(hub: Hub, tmp_path: Path, failure: Failure) -> None:
    hub.repositories["org/two"] = {"a.gguf": MODEL, "b.gguf": MODEL}
    hub.repositories["org/html"] = {"m.gguf": b"<html>"}
    hub.repositories["org/evil"] = {"..\\..\\m.gguf": MODEL}
    hub.behaviour.gated = failure.gated
    with pytest.raises(failure.kind, match=failure.said) as caught:
        await fetch(failure.ref, tmp_path, progress=Silent(), hub=options(hub, failure.token))
    assert "\n" not in str(caught.value)
    assert "hf_wrong" not in str(caught.value)
    assert Cache(tmp_path).every() == ()
    assert models(tmp_path) == []


async def test_gated_opens_to_its_token(hub: Hub, tmp_path: Path) -> None:
    hub.behaviour.gated = True
    token = f"{TOKEN}\n"  # as it stands in a file
    weights = await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub, token))
    assert weights.path.read_bytes() == MODEL


async def test_wrong_content_is_thrown_away(hub: Hub, tmp_path: Path) -> None:
    hub.announced["m-Q4_K_M.gguf"] = "0" * 64
    with pytest.raises(ChecksumMismatch, match="000000"):
        await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    assert partials(tmp_path) == []
    assert models(tmp_path) == []


async def test_nobody_there(tmp_path: Path) -> None:
    dead = HubOptions(endpoint="http://127.0.0.1:1", retry_seconds=0)
    with pytest.raises(NoNetwork, match=r"127\.0\.0\.1:1 could not be reached"):
        await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=dead)


async def test_offline_and_absent(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(Offline, match="not in the cache"):
        await fetch(
            "hf:org/repo",
            tmp_path,
            progress=Silent(),
            hub=HubOptions(endpoint=hub.url, offline=True),
        )
    assert hub.asked == []


async def test_no_space(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    full = type(usage)(usage.total, usage.total, 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(NoSpace, match="free some space"):
        await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options(hub))
    assert hub.downloads() == 0


async def test_cache_that_cannot_be_made(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(WeightsError, match="cannot be used"):
        await fetch("hf:org/repo", tmp_path / "file", progress=Silent(), hub=options(hub))


async def test_own_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(MODEL)
    weights = await fetch(str(path), tmp_path / "cache", progress=Silent())
    assert (weights.path, weights.sha256, weights.size) == (path, None, len(MODEL))
    assert not (tmp_path / "cache").exists()


async def test_own_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(WeightsNotFound, match="hf:org/nothing"):
        await fetch("org/nothing", tmp_path, progress=Silent())
    with pytest.raises(WeightsNotFound, match="is a folder"):
        await fetch(str(tmp_path), tmp_path, progress=Silent())
    with pytest.raises(WeightsError, match="cannot be read: File name too long"):
        await fetch(f"{'x' * 300}.gguf", tmp_path, progress=Silent())
    with pytest.raises(BadReference, match="no known user"):
        await fetch("~nobody-of-that-name/m.gguf", tmp_path, progress=Silent())
    first = tmp_path / "m-00001-of-00002.gguf"
    first.write_bytes(MODEL)
    with pytest.raises(WeightsNotFound, match="00002-of-00002"):
        await fetch(str(first), tmp_path, progress=Silent())
