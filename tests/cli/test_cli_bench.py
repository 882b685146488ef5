"""``causerie bench``, run as people run it."""

from __future__ import annotations

import json
from pathlib import Path

import commandkit
import pytest
from faultkit import Fault, Reply, upstream


async def run(folder: Path, *arguments: str, **environ: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one run without a terminal."""
    return await commandkit.run("bench", *arguments, folder=folder, COLUMNS="80", **environ)


async def test_a_table_of_stretches(tmp_path: Path) -> None:
    async with upstream(Reply("Once upon a time.", pause=0.005), models=["m-1", "m-2"]) as there:
        code, out, err = await run(
            tmp_path, there.base_url, "-s", "1", "-s", "3", "--seconds", "0.4",
            "--max-tokens", "7", CAUSERIE_API_KEY="sesame",
        )  # fmt: skip
    assert code == 0, err
    head, one, three, *notes = out.splitlines()
    assert head.split() == [
        "streams",
        "replies",
        "failed",
        "first",
        "p95",
        "each",
        "p95",
        "tokens/s",
    ]
    assert one.split()[0] == "1"
    assert three.split()[0] == "3"
    assert "█" in three
    assert "A reply had 4 tokens to a prompt of 11, as the provider counts." in notes
    assert all(len(line) <= 80 for line in (head, one, three))
    assert "m-1" in err
    assert "3 at a time: " in err
    asked = there.requests[-1]
    assert (asked.body["model"], asked.body["max_tokens"]) == ("m-1", 7)
    assert asked.headers["authorization"] == "Bearer sesame"
    assert "sesame" not in out + err


async def test_json(tmp_path: Path) -> None:
    async with upstream(Reply("Once."), models=["m"]) as there:
        code, out, _ = await run(
            tmp_path, there.base_url, "-s", "2", "--seconds", "0.2", "--json", "--same"
        )
    [found] = json.loads(out)
    assert code == 0
    assert (found["streams"], found["failed"], found["completion"]) == (2, {}, 1)
    assert found["replies"] > 0
    assert len({request.raw for request in there.requests}) == 1


async def test_a_first_reply_that_fails_ends_it(tmp_path: Path) -> None:
    async with upstream(Fault.SERVER_ERROR) as there:
        code, out, err = await run(tmp_path, there.base_url, "-m", "m", "--seconds", "0.2")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("causerie: ")
    assert len(there.requests) == 1


async def test_failures_are_told_by_kind(tmp_path: Path) -> None:
    script = [Reply("Once."), Fault.TOO_MANY]
    async with upstream(script) as there:
        code, out, err = await run(
            tmp_path, there.base_url, "-m", "m", "-s", "2", "--seconds", "0.3"
        )
    assert code == 1
    assert "2 failed: status 429" in err
    assert out.splitlines()[1].split()[:3] == ["2", "0", "2"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("http://127.0.0.1:9/v1",), 4),
        (("nonsense",), 2),
        (("http://127.0.0.1:9/v1", "-s", "0"), 2),
        (("http://127.0.0.1:9/v1", "--key", "a b"), 2),
        (("http://127.0.0.1:9/v1", "--dialect", "klingon"), 2),
    ],
)
async def test_what_cannot_be_is_a_sentence(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    ended, out, err = await run(tmp_path, *arguments)
    assert (ended, out) == (code, "")
    assert "Traceback" not in err


async def test_two_providers_in_turns_and_a_saved_result(tmp_path: Path) -> None:
    async with (
        upstream(Reply("Once upon a time.", pause=0.002), models=["m"]) as here,
        upstream(Reply("Once upon a time.", pause=0.02), models=["m"]) as there,
    ):
        short = ("-s", "1", "-s", "2", "--seconds", "0.3")
        code, out, err = await run(tmp_path, here.base_url, "--compare", there.base_url, *short)
        assert code == 0, err
        compared = out.partition(f"Compared with {there.base_url}:\n")[2]
        head, one, two = compared.splitlines()
        assert head.split() == ["streams", "tokens/s", "there", "ratio", "first", "there", "ratio"]
        assert one.split()[0] == "1"
        rate, other, ratio = (float(number.replace(",", "")) for number in two.split()[1:4])
        assert ratio == pytest.approx(rate / other, rel=0.25)  # of rounded numbers
        order = [words.split(",")[0] for words in err.splitlines() if "at a time" in words]
        assert order == [here.base_url, there.base_url, there.base_url, here.base_url]
        asked = [{request.raw for request in one.requests} for one in (here, there)]
        assert not asked[0] & asked[1]  # one server behind both would know them
        code, out, _ = await run(tmp_path, there.base_url, "--json", *short)
        (tmp_path / "before.json").write_text(out)
        before = [one["tokens_a_second"] for one in json.loads(out)]
        code, out, _ = await run(
            tmp_path, here.base_url, "--compare", "before.json", "--json", *short
        )
        found = json.loads(out)
        assert (code, [one["streams"] for one in found["there"]]) == (0, [1, 2])
        assert [one["tokens_a_second"] for one in found["there"]] == before
        assert [one["tokens_a_second"] for one in found["here"]] != before
    (tmp_path / "other.json").write_text("{}")
    for file, words in (
        ("none.json", "neither an address nor a file"),
        ("other.json", "no output"),
    ):
        code, _, err = await run(tmp_path, "http://127.0.0.1:1/v1", "--compare", file)
        assert code == 2
        assert words in " ".join(err.split())
