"""A whole service of two workers: one address, one view, and nothing lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from openai import AsyncOpenAI
from service import free_port
from waiting import eventually
from workerkit import PATH, Setup, asked, body, logged, replaced, stream_of, two_workers

CONFIG = """
[server]
workers = 2
drain_seconds = 20

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
"""


async def test_all_workers_answer_and_are_counted_together(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        for _ in range(12):  # on connections of their own, which either worker accepts
            async with AsyncOpenAI(
                base_url=f"{made.service.root}/gateway/v1", api_key="-"
            ) as client:
                reply = await client.chat.completions.create(
                    model="fast", messages=[{"role": "user", "content": "Hi"}]
                )
            assert reply.choices[0].message.content == "Yes."
        await eventually(lambda: _counted(made, 12))
        async with made.session.get("/nowhere") as answer:
            assert answer.status == 404


async def _counted(made: Setup, number: int) -> bool:
    return await made.requests_counted() == number


@pytest.mark.full
async def test_a_provider_gets_no_more_than_its_slots(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG, concurrent=3) as made:
        made.provider.open.clear()
        waiting = [asyncio.create_task(made.ask("fast")) for _ in range(24)]
        await eventually(lambda: _ended(waiting, 21))
        made.provider.open.set()
        statuses = Counter(status for status, _ in await asyncio.gather(*waiting))
        assert set(statuses) == {200, 503}
        assert made.provider.most <= 3


async def _ended(waiting: list[asyncio.Task[tuple[int, dict[str, object]]]], number: int) -> bool:
    return sum(one.done() for one in waiting) >= number


async def test_a_killed_worker_loses_its_own_streams_only(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        assert {(await made.ask("fast"))[0] for _ in range(4)} == {200}
        before = await made.requests_counted()
        made.provider.open.clear()
        streams = [asyncio.create_task(stream_of(made, "fast")) for _ in range(16)]
        await eventually(lambda: asked(made, 16))
        victim, other = await made.workers()
        os.kill(victim, signal.SIGKILL)
        await eventually(lambda: replaced(made, victim))
        made.provider.open.set()
        ended = Counter(await asyncio.gather(*streams))
        assert set(ended) <= {"One two.", "broken"}
        assert ended["One two."] > 0
        assert other in await made.workers()
        assert {(await made.ask("fast"))[0] for _ in range(8)} == {200}
        assert await made.requests_counted() >= before + 8  # those of the dead stay counted


@pytest.mark.full
async def test_a_reload_reaches_all_workers(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        file = tmp_path / "causerie.toml"
        text = await asyncio.to_thread(file.read_text)
        changed = text.replace('id = "fast"', 'id = "swift"')
        await asyncio.to_thread(file.write_text, changed)
        made.service.process.send_signal(signal.SIGHUP)
        await eventually(lambda: _all_answer(made, "swift"))
        wrong = changed.replace('kind = "gateway"', 'kind = "gate"')
        await asyncio.to_thread(file.write_text, wrong)
        made.service.process.send_signal(signal.SIGHUP)
        await eventually(lambda: logged(made, "configuration not reloaded"))
        assert (await made.ask("swift"))[0] == 200


async def _all_answer(made: Setup, model: str) -> bool:
    return {(await made.ask(model))[0] for _ in range(8)} == {200}


async def test_a_stop_loses_no_stream(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        made.provider.open.clear()
        streams = [asyncio.create_task(stream_of(made, "fast")) for _ in range(8)]
        await eventually(lambda: asked(made, 8))
        made.service.process.send_signal(signal.SIGTERM)
        await eventually(lambda: logged(made, "stopping"))
        made.provider.open.set()
        assert await asyncio.gather(*streams) == ["One two."] * 8
        assert await asyncio.to_thread(made.service.process.wait, 30) == 0


@pytest.mark.full
async def test_a_stop_is_announced_by_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.full
async def test_a_second_signal_ends_all_workers_at_once(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        made.provider.open.clear()
        streams = [asyncio.create_task(stream_of(made, "fast")) for _ in range(8)]
        await eventually(lambda: asked(made, 8))
        made.service.process.send_signal(signal.SIGINT)
        await eventually(lambda: logged(made, "stopping"))
        made.service.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(made.service.process.wait, 15) == 0  # 20 s to drain
        assert "One two." not in await asyncio.gather(*streams)


async def _stopping(made: Setup) -> bool:
    async with made.session.get("/health/ready") as answer:
        return answer.status == 503


@pytest.mark.full
async def test_commands_reach_all_workers_and_nothing_is_left_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    async with two_workers(tmp_path, CONFIG) as made:
        pid = made.service.process.pid
        assert await _command("ps") == 0
        assert await _command("reload", "--pid", str(pid)) == 0
        log = await asyncio.to_thread(made.service.log.read_text)
        assert log.count("configuration reloaded") == 2
        os.kill((await made.workers())[0], signal.SIGKILL)  # which cannot remove its socket
        assert await _command("stop", "--pid", str(pid)) == 0
        assert await asyncio.to_thread(made.service.process.wait, 30) == 0
        assert not await asyncio.to_thread(lambda: list((folder / "causerie").iterdir()))


async def _command(*words: str) -> int:
    made = await asyncio.create_subprocess_exec(sys.executable, "-m", "causerie", *words)
    return await made.wait()


@pytest.mark.full
async def test_sockets_of_a_killed_supervisor_are_removed_by_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run" / "causerie"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder.parent))
    async with two_workers(tmp_path, CONFIG) as made:
        workers = await made.workers()
        for pid in (workers[0], made.service.process.pid):
            os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(made.service.process.wait, 30)
        await eventually(lambda: _gone(workers))
        assert await asyncio.to_thread(lambda: len(list(folder.iterdir()))) == 2
        assert await _command("ps") == 0
        assert not await asyncio.to_thread(lambda: list(folder.iterdir()))


@pytest.mark.full
async def test_metrics_at_an_address_of_their_own_are_those_of_all(tmp_path: Path) -> None:
    port = free_port()
    apart = f'[metrics]\nlisten = "127.0.0.1:{port}"\n{CONFIG}'
    async with two_workers(tmp_path, apart, metrics=f"http://127.0.0.1:{port}/metrics") as made:
        for _ in range(6):
            assert (await made.ask("fast"))[0] == 200
        await eventually(lambda: _counted(made, 6))
        async with made.session.get("/metrics") as answer:
            assert answer.status == 404


def test_a_configuration_that_one_process_can_read_is_refused(tmp_path: Path) -> None:
    text = CONFIG.format(base_url="http://127.0.0.1:9/v1", concurrent=9)
    command = [sys.executable, "-m", "causerie", "serve", "--port", str(free_port())]
    ended = subprocess.run(
        [*command, "--config", "/dev/stdin"], input=text, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert "/dev/stdin is a pipe, which one process can read" in ended.stderr


async def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        workers = await made.workers()
        made.service.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(made.service.process.wait, 30)
        await eventually(lambda: _gone(workers))


async def _gone(workers: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in workers)


@pytest.mark.full
async def test_a_worker_that_stands_still_is_replaced(tmp_path: Path) -> None:
    async with two_workers(tmp_path, CONFIG) as made:
        victim = (await made.workers())[0]
        os.kill(victim, signal.SIGSTOP)
        await eventually(lambda: replaced(made, victim))
        assert {(await made.ask("fast"))[0] for _ in range(6)} == {200}


@pytest.mark.full
async def test_a_service_whose_workers_cannot_start_ends(tmp_path: Path) -> None:
    broken = (
        CONFIG + '[store]\nfolder = "/dev/null/data"\n[[doors]]\nname = "hosted"\nkind = "hosted"\n'
    )
    broken += '[shared]\nurl = "valkey://127.0.0.1:1/0"\n'
    with pytest.raises(AssertionError, match="cannot be used"):
        async with two_workers(tmp_path, broken):
            pass
