"""A service whose model is a pool of servers: what clients and operators see of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from contextlib import AsyncExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from uuid import uuid4

from kvkit import ENCODINGS, EngineCache, Publisher, two_ports
from servicekit import ServiceView, service_view
from test_vllm_engine import asked, behave, made, processes
from test_vllm_pool import Place, places
from waiting import eventually

from causerie.cli.command import library
from causerie.cli.services import Service, show_services
from causerie.composition.control import ServiceFacts, sockets
from causerie.composition.control import asked as asked_by_command


def configuration(folder: Path, every: list[Place]) -> str:
    addresses = ", ".join(f'"{place.address}"' for place in every)
    return (
        f'[[models]]\nid = "m"\nengine = "vllm"\nref = "{folder}"\npreload = true\n'
        f"[models.vllm]\naddresses = [{addresses}]\nparallel = 4\n"
    )


def named(text: str) -> str:
    """One of the members by a name, which the system resolves."""
    return text.replace("127.0.0.1", "localhost", 1)


async def sources(service: ServiceView) -> list[str]:
    """By what each member is chosen."""
    _, health = await service.get("/health")
    return [one.get("prefix_source", "") for one in health["engines"][0]["members"]]


async def hear_events(service: ServiceView, count: int) -> bool:
    """So many members are chosen by their events."""
    return await sources(service) == ["kv_events"] * count


async def test_members_change_while_a_stream_runs(tmp_path: Path) -> None:
    folder = made(tmp_path)
    async with (
        places(tmp_path, 3) as every,
        service_view(folder, configuration(folder, every[:2])) as service,
    ):
        status, _, answer = await service.ask("/v1", "m")
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "Hi")
        for place in every:
            behave(place.folder, "endless")
        began = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            streams = [group.create_task(service.stream("/v1", "m", began)) for _ in range(4)]
            await began.wait()
            outcome = await service.reload(configuration(folder, every[1:]))
            assert outcome.applied
            _, health = await service.get("/health")
            (engine,) = health["engines"]
            names = [member["address"] for member in engine["members"]]
            assert names == [place.address for place in every[1:]]
            for place in every:
                behave(place.folder, "")
        for stream in streams:
            assert stream.result().startswith("Hi")
        await every[1].go()
        for _ in range(4):
            assert (await service.ask("/v1", "m"))[0] == 200


async def test_a_prompt_goes_where_events_say_that_it_lies(tmp_path: Path) -> None:
    folder = made(tmp_path)
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    every = [Place(tmp_path / host, host) for host in hosts]
    published = [Publisher(EngineCache(encoding)) for encoding in ENCODINGS[1:]]
    port = two_ports()
    async with AsyncExitStack() as there:
        for place, publisher in zip(every, published, strict=True):
            await place.come()
            there.push_async_callback(place.go)
            await there.enter_async_context(publisher.listening(place.host, port))
        text = configuration(folder, every)
        text += f"kv_events = {{ port = {port}, replay_port = {port + 1} }}\n"
        service = await there.enter_async_context(service_view(folder, text))
        await eventually(lambda: hear_events(service, 3), 20)
        messages = [{"role": "user", "content": "A sentence of more than two blocks of tokens."}]
        await service.ask("/v1", "m", messages=messages)
        prompts = [asked(place.folder)[-1]["prompt"] for place in every]
        holder = min(range(3), key=lambda at: len(prompts[at]))  # not the one that was asked
        await published[holder].publish(published[holder].cache.read(max(prompts, key=len)))
        before = len(asked(every[holder].folder))
        async with asyncio.timeout(60):
            while len(asked(every[holder].folder)) == before:  # until the event has arrived
                await service.ask("/v1", "m", messages=messages)
        for _ in range(3):
            await service.ask("/v1", "m", messages=messages)
        assert len(asked(every[holder].folder)) == before + 4


async def test_replicas_are_started_each_on_devices_of_its_own(tmp_path: Path) -> None:
    folder = made(tmp_path)
    text = (
        f'[[models]]\nid = "m"\nengine = "vllm"\nref = "{folder}"\npreload = true\n'
        f'[models.vllm]\ncommand = "{folder / "vllm"}"\nreplicas = 2\ntensor_parallel = 2\n'
    )

    async def members(service: ServiceView) -> list[tuple[str, str, int]]:
        _, health = await service.get("/health")
        each = health["engines"][0].get("members", [])
        return [(one["address"], one["state"], one["restarts"]) for one in each]

    async def are(service: ServiceView, *states: tuple[str, int]) -> bool:
        return sorted(one[1:] for one in await members(service)) == list(states)

    async with service_view(folder, text) as service, asyncio.timeout(60):
        await eventually(lambda: are(service, ("ready", 0), ("ready", 0)))
        assert [one[0] for one in await members(service)] == ["replica-1", "replica-2"]
        assert sorted((folder / "devices").read_text().split()) == ["0,1", "2,3"]
        while not await hear_events(service, 2):  # as soon as each has a batch
            await service.ask("/v1", "m", messages=[{"role": "user", "content": str(uuid4())}])
        told = [one[one.index("--kv-events-config") + 1] for one in asked(folder) if "serve" in one]
        places = [Path(json.loads(one)["endpoint"].removeprefix("ipc://")) for one in told]
        assert len(set(places)) == 2
        assert {stat.S_IMODE(place.parent.stat().st_mode) for place in places} == {0o700}
        server, _ = processes(folder)
        os.kill(server, signal.SIGKILL)  # either of them
        for _ in range(4):
            assert (await service.ask("/v1", "m"))[0] == 200
        # Its end may be noticed later than that of the requests.
        await eventually(lambda: are(service, ("ready", 0), ("ready", 1)))
    assert not any(place.parent.exists() for place in places)


async def test_operators_see_each_member(tmp_path: Path) -> None:
    folder = made(tmp_path)
    async with (
        places(tmp_path, 2) as every,
        service_view(folder, named(configuration(folder, every))) as service,
    ):
        assert (await service.ask("/v1", "m"))[0] == 200

        async def metrics() -> str:
            async with service.session.get(f"{service.root}/metrics") as response:
                return await response.text()

        wanted = [
            f"causerie_pool_member_{rest}"
            for place in every
            for rest in (
                f'state{{member="{place.address}",model="m",state="ready"}} 1.0',
                f'slots{{member="{place.address}",model="m"}} 4.0',
            )
        ]
        text = await metrics()
        async with asyncio.timeout(60):
            while not all(line in text for line in wanted):
                await asyncio.sleep(0.02)  # the second one may come later than the first
                text = await metrics()
        assert 'causerie_engine_slots{model="m"} 8.0' in text
        (one,) = sockets(service.runtime)
        facts = await asyncio.to_thread(asked_by_command, one.path, "facts", ServiceFacts, 5.0)
        with redirect_stdout(StringIO()) as shown:
            show_services([Service(one, facts)], library())
        for place in every:
            assert place.address in shown.getvalue()
        assert "0/8" in shown.getvalue()
