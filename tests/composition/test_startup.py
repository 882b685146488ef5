"""Start and stop: the address first, then the loads, then the word that it is ready."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp
import pytest
from edgekit import Statuses, make_edge
from structlog.testing import capture_logs

from causerie.composition.startup import CannotStart, run, take_address
from causerie.engines.base import EngineFailed, EngineState, EngineStatus, TextEngine
from causerie.engines.fleet import NOT_LOADED
from causerie.engines.weights import Progress, Silent
from causerie.http.connection import Listen
from causerie.http.server import Bound
from causerie.settings.tree import Settings

LISTEN = Listen(port=0, drain_seconds=0.1)


class Loading:
    """An engine whose load ends when, and how, the test says."""

    def __init__(self, *outcomes: EngineFailed | None) -> None:
        self._outcomes = list(outcomes)
        self.may = asyncio.Event()

    async def load(self) -> None:
        await self.may.wait()
        outcome = self._outcomes.pop(0)
        if outcome is not None:
            raise outcome


@dataclass
class Models(Statuses):
    engines: dict[str, Loading] = field(default_factory=dict)

    def engine(self, model: str) -> TextEngine:
        return self.engines[model]  # type: ignore[return-value]  # a stand-in


@dataclass
class Seen:
    """A watcher that keeps what it is told."""

    told: list[str] = field(default_factory=list)
    shown: asyncio.Event = field(default_factory=asyncio.Event)
    address: asyncio.Future[tuple[str, int]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    settings: Settings = field(default_factory=Settings)
    download: Progress = field(default_factory=Silent)

    def first_link(self, token: str) -> None:
        self.told.append("link")

    def loading(self, engines: Sequence[EngineStatus]) -> None:
        self.shown.set()

    def ready(self, host: str, port: int) -> None:
        self.told.append("ready")
        self.address.set_result((host, port))

    def stopping(self) -> None:
        self.told.append("stopping")

    def stop(self) -> None:
        self.told.append("stop")


def models(**engines: Loading) -> Models:
    return Models([EngineStatus(id, EngineState.LOADING) for id in engines], engines=engines)


async def test_health_answers_while_models_load_and_a_signal_ends_it() -> None:
    seen, found = Seen(), models(a=Loading(EngineFailed("", loading=True, retry_after=0), None))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    listen = Listen(port=port, drain_seconds=0.1)
    async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as client:
        group.create_task(
            run(make_edge(statuses=found), found, ["a"], listen, seen, Bound(take_address(listen)))
        )
        await seen.shown.wait()
        async with client.get(f"http://127.0.0.1:{port}/health/ready") as response:
            assert response.status == 503
            assert (await response.json())["status"] == "loading"
        assert seen.told == []
        found.values[:] = [EngineStatus("a", EngineState.READY)]
        found.engines["a"].may.set()
        assert await seen.address == ("127.0.0.1", port)
        async with client.get(f"http://127.0.0.1:{port}/health/ready") as response:
            assert response.status == 200
        os.kill(os.getpid(), signal.SIGTERM)
    assert seen.told == ["ready", "stopping", "stop"]


async def test_when_nothing_loads_the_service_ends_with_the_reason() -> None:
    seen = Seen()
    found = models(
        a=Loading(EngineFailed("not a model file")), b=Loading(EngineFailed("no memory"))
    )
    for engine in found.engines.values():
        engine.may.set()
    with (
        capture_logs() as logged,
        pytest.raises(CannotStart, match=r"^b did not load: no memory$"),
    ):
        await run(
            make_edge(statuses=found), found, ["a", "b"], LISTEN, seen, Bound(take_address(LISTEN))
        )
    assert seen.told == ["stop"]
    failed = [(line["model"], line["why"]) for line in logged if line["event"] == NOT_LOADED]
    assert failed == [("a", "not a model file")]  # and of b the service says it as it ends


async def test_one_model_of_two_is_enough() -> None:
    seen = Seen()
    found = models(a=Loading(EngineFailed("not a model file")), b=Loading(None))
    for engine in found.engines.values():
        engine.may.set()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            run(
                make_edge(statuses=found),
                found,
                ["a", "b"],
                LISTEN,
                seen,
                Bound(take_address(LISTEN)),
            )
        )
        await seen.address
        os.kill(os.getpid(), signal.SIGINT)
    assert seen.told == ["ready", "stopping", "stop"]


async def test_a_model_that_a_reload_takes_away_while_it_loads_is_not_missed() -> None:
    seen = Seen()
    found = models(
        gone=Loading(EngineFailed("", loading=True, retry_after=0)),
        replaced=Loading(EngineFailed("nothing by that name")),
    )
    first = dict(found.engines)
    async with asyncio.TaskGroup() as group:
        group.create_task(
            run(
                make_edge(statuses=found),
                found,
                list(first),
                LISTEN,
                seen,
                Bound(take_address(LISTEN)),
            )
        )
        await seen.shown.wait()
        found.engines = {"replaced": Loading(None)}
        for engine in (*first.values(), *found.engines.values()):
            engine.may.set()
        await seen.address
        os.kill(os.getpid(), signal.SIGTERM)
    assert seen.told == ["ready", "stopping", "stop"]


async def test_without_preloads_it_is_ready_at_once() -> None:
    seen, found = Seen(), models(a=Loading())
    async with asyncio.TaskGroup() as group:
        group.create_task(
            run(make_edge(statuses=found), found, [], LISTEN, seen, Bound(take_address(LISTEN)))
        )
        await seen.address
        os.kill(os.getpid(), signal.SIGTERM)
    assert seen.told[0] == "ready"


async def test_a_stop_while_models_load() -> None:
    seen, found = Seen(), models(a=Loading())
    async with asyncio.TaskGroup() as group:
        group.create_task(
            run(make_edge(statuses=found), found, ["a"], LISTEN, seen, Bound(take_address(LISTEN)))
        )
        await seen.shown.wait()
        os.kill(os.getpid(), signal.SIGTERM)
    assert "ready" not in seen.told
    assert seen.told[-1] == "stop"


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = Listen(port=taken.getsockname()[1])
        with pytest.raises(CannotStart, match="is in use by another program; choose another port"):
            take_address(listen)


@pytest.mark.parametrize("host", ["ü..x", "ü" * 70])
def test_what_is_no_host_name_is_one_sentence(host: str) -> None:
    with pytest.raises(CannotStart, match="is no host name: "):
        take_address(Listen(host, 0))


def test_an_address_that_is_not_ours_is_one_sentence() -> None:
    with pytest.raises(CannotStart, match=r"192\.0\.2\.1:0 cannot be listened on: "):
        take_address(Listen("192.0.2.1", 0))
