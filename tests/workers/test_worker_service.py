"""A whole service of a parent and two workers: exact limits, one view, and nothing lost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from waiting import eventually
from workerkit import PATH, Setup, asked, body, logged, replaced, stream_of, two_workers

CONFIG = """
[server]
workers = 2
drain_seconds = 20

[[models]]
id = "small"
engine = "fake"
options = {{ replies = ["From our own engine."] }}

[[doors]]
name = "gateway"
kind = "gateway"

[[providers]]
name = "there"
base_url = "{base_url}"
max_concurrent = {concurrent}
health = {{ path = "" }}

[[aliases]]
id = "fast"
targets = [{{ provider = "there", model = "m" }}]

[[aliases]]
id = "few"
targets = [{{ provider = "there", model = "m" }}]
limits = {{ requests_per_minute = 25, concurrent = 6 }}

[[aliases]]
id = "mixed"
targets = [{{ provider = "there", model = "m", priority = 1 }}, {{ model = "small" }}]

[[providers]]
name = "spare"
base_url = "{base_url}/spare"
health = {{ path = "" }}

[[aliases]]
id = "two"
[[aliases.targets]]
provider = "there"
model = "m"
[[aliases.targets]]
provider = "spare"
model = "m"
priority = 1
"""


async def test_limits_are_exact_over_all_processes(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        made.provider.open.clear()
        waiting = [asyncio.create_task(made.ask("few")) for _ in range(30)]
        await eventually(lambda: asked(made, 6))
        await eventually(lambda: _ended(waiting, 24))
        made.provider.open.set()
        statuses = Counter(status for status, _ in await asyncio.gather(*waiting))
        assert statuses == {200: 6, 429: 24}  # so many at once
        more = Counter([(await made.ask("few"))[0] for _ in range(30)])
        assert more == {200: 19, 429: 11}  # and so many in a minute
        assert made.provider.asked == 25


async def test_places_at_a_provider_are_those_of_all_processes(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG, concurrent=3) as made:
        made.provider.open.clear()
        waiting = [asyncio.create_task(made.ask("fast")) for _ in range(12)]
        done, _ = await asyncio.wait(waiting, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert done
        await eventually(lambda: _ended(waiting, 9))
        await eventually(lambda: asked(made, 3))  # the last may still be on its way there
        made.provider.open.set()
        statuses = Counter(status for status, _ in await asyncio.gather(*waiting))
        assert (statuses, made.provider.most) == ({200: 3, 503: 9}, 3)


async def _ended(waiting: list[asyncio.Task[tuple[int, dict[str, Any]]]], number: int) -> bool:
    return sum(one.done() for one in waiting) >= number


async def test_what_workers_have_not_is_answered_by_the_parent(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        for _ in range(3):  # on connections that come and go between the processes
            status, answer = await made.ask("mixed")
            assert (status, answer["choices"][0]["message"]["content"]) == (
                200,
                "From our own engine.",
            )
            assert (await made.ask("fast"))[0] == 200
            async with made.session.get("/gateway/v1/models") as listed:
                names = [one["id"] for one in (await listed.json())["data"]]
            assert names == ["fast", "few", "mixed", "two"]
        assert await pipelined(made, "fast", "mixed", "fast", "mixed") == [200] * 4
        status, answer = await made.ask("nobody")
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        async with made.session.get("/nowhere") as answer404:
            assert answer404.status == 404
        large = "x" * 900_000  # more than one message between processes has room for
        assert (await made.ask("mixed", user=large))[0] == 200
        async with AsyncOpenAI(base_url=f"{made.service.root}/gateway/v1", api_key="-") as client:
            stream = await client.chat.completions.create(
                model="mixed", messages=[{"role": "user", "content": "Hi"}], stream=True
            )
            text = "".join([part.choices[0].delta.content or "" async for part in stream])
        assert text == "From our own engine."
        await eventually(lambda: _counted(made, 13))


async def pipelined(made: Setup, *models: str) -> list[int]:
    """The statuses of requests that were sent at once on one connection."""
    host, _, port = made.service.root.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for model in models:
        text = json.dumps(body(model)).encode()
        head = f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
    statuses = []
    async with asyncio.timeout(60):
        for _ in models:
            answer = (await reader.readuntil(b"\r\n\r\n")).decode()
            statuses.append(int(answer.split()[1]))
            length = re.search(r"content-length: (\d+)", answer)
            assert length is not None
            await reader.readexactly(int(length[1]))
    writer.close()
    await writer.wait_closed()
    return statuses


async def _counted(made: Setup, number: int) -> bool:
    return await made.requests_counted() == number


async def test_a_killed_worker_loses_its_own_streams_only(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        made.provider.open.clear()
        streams = [asyncio.create_task(stream_of(made, "few")) for _ in range(6)]
        await eventually(lambda: asked(made, 6))
        assert (await made.ask("few"))[0] == 429
        victim, other = await made.workers()
        os.kill(victim, signal.SIGKILL)
        await eventually(lambda: _free_again(made))  # its leases are freed
        await eventually(lambda: replaced(made, victim))
        made.provider.open.set()
        ended = Counter(await asyncio.gather(*streams))
        assert ended["One two."] == ended["broken"] == 3  # connections are dealt in turn
        assert other in await made.workers()
        assert {(await made.ask("fast"))[0] for _ in range(8)} == {200}


async def _free_again(made: Setup) -> bool:
    """Three of the six slots are free once the worker has been found to be dead."""
    before = made.provider.here
    attempt = asyncio.create_task(stream_of(made, "few"))
    done, _ = await asyncio.wait([attempt], timeout=0.5)
    if done:
        return False
    attempt.cancel()
    await asyncio.wait([attempt])
    return made.provider.here >= before - 3


async def test_a_provider_that_fails_is_left_alone_by_all(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        made.provider.status = 500
        for _ in range(8):  # at whichever process they arrive
            assert (await made.ask("two"))[0] == 200
        assert made.provider.asked <= 2  # the one that found out, and the one that tries again
        async with made.session.get("/metrics") as answer:
            state = re.search(
                r'target_state\{state="(\w+)",target="there/m"\}', await answer.text()
            )
        assert state is not None
        assert state[1] in ("down", "half_open")


async def test_a_reload_is_in_force_in_all_processes_at_once(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        file = tmp_path / "causerie.toml"
        text = await asyncio.to_thread(file.read_text)
        changed = text.replace('id = "fast"', 'id = "swift"')
        await asyncio.to_thread(file.write_text, changed)
        made.service.process.send_signal(signal.SIGHUP)
        await eventually(lambda: _answers(made, "swift"))
        for _ in range(8):
            assert (await made.ask("swift"))[0] == 200
            assert (await made.ask("fast"))[0] == 404
        wrong = changed.replace('kind = "gateway"', 'kind = "gate"')
        await asyncio.to_thread(file.write_text, wrong)
        made.service.process.send_signal(signal.SIGHUP)
        await eventually(lambda: logged(made, "configuration not reloaded"))
        assert (await made.ask("swift"))[0] == 200


async def _answers(made: Setup, model: str) -> bool:
    return (await made.ask(model))[0] == 200


async def test_a_stop_loses_no_stream(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        made.provider.open.clear()
        streams = [asyncio.create_task(stream_of(made, "fast")) for _ in range(8)]
        await eventually(lambda: asked(made, 8))
        made.service.process.send_signal(signal.SIGTERM)
        await eventually(lambda: _stopping(made))
        made.provider.open.set()
        assert await asyncio.gather(*streams) == ["One two."] * 8
        assert await asyncio.to_thread(made.service.process.wait, 30) == 0


async def test_a_stop_is_announced_by_workers_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that a worker keeps ends with an answer that says so."""
    monkeypatch.setenv("CAUSERIE_SERVER_SHUTDOWN_DELAY_SECONDS", "600")
    async with two_workers(tmp_path, CONFIG) as made:
        assert (await made.ask("fast"))[0] == 200
        made.service.process.send_signal(signal.SIGTERM)
        await eventually(lambda: _stopping(made))
        for _ in range(6):
            async with made.session.post(PATH, json=body("fast")) as answer:
                assert answer.status == 200
                assert answer.headers["connection"] == "close"
        made.service.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(made.service.process.wait, 30) == 0


async def _stopping(made: Setup) -> bool:
    async with made.session.get("/health/ready") as answer:
        return answer.status == 503


@pytest.mark.parametrize("number", [signal.SIGKILL])
async def test_workers_end_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        workers = await made.workers()
        made.service.process.send_signal(number)
        await asyncio.to_thread(made.service.process.wait, 30)
        await eventually(lambda: _gone(workers))


async def _gone(workers: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in workers)


async def test_a_worker_that_is_stopped_is_replaced(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        victim = (await made.workers())[0]
        os.kill(victim, signal.SIGSTOP)
        await eventually(lambda: replaced(made, victim))
        assert {(await made.ask("fast"))[0] for _ in range(6)} == {200}
