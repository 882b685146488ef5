"""Several servers of one model as one engine, on programs that are spoken to like vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from test_vllm_engine import GREEDY, asked, behave, made, until, written
from vllm_stand_in import CONTEXT, Server, listening

from causerie.engines.base import EngineFailed, EngineState, Output, Stopped, TextRequest, Token
from causerie.engines.pool import members as member_module
from causerie.engines.pool.pool import EnginePool, MemberAddress
from causerie.engines.vllm import engine as server_module
from causerie.engines.vllm.client import Elsewhere
from causerie.engines.vllm.engine import ServedFolder, VllmEngine
from causerie.http.client import Reach

ONE, OTHER = range(100, 140), range(200, 240)  # of two blocks, and some more tokens


class Place:
    """A server at an address, which can go away and come back."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", context: int = CONTEXT) -> None:
        folder.mkdir()
        self.host = host
        self.folder = made(folder)
        self.server = Server(self.folder, None)
        self.server.context = context
        self.port = 0
        self._there = AsyncExitStack()

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def come(self) -> None:
        there = listening(self.server, self.port, host=self.host)
        self.port = await self._there.enter_async_context(there)

    async def go(self) -> None:
        await self._there.aclose()

    def prompts(self) -> list[list[int]]:
        """Those that it was asked for, without the questions of a check."""
        bodies = [body for body in asked(self.folder) if body != "left"]
        return [body["prompt"] for body in bodies if body["prompt"][0] in (100, 200)]


@asynccontextmanager
async def places(folder: Path, number: int) -> AsyncIterator[list[Place]]:
    every = [Place(folder / str(at)) for at in range(number)]
    for place in every:
        await place.come()
    try:
        yield every
    finally:
        for place in every:
            await place.go()


@asynccontextmanager
async def pool_of(folder: Path, every: Sequence[Place]) -> AsyncIterator[EnginePool]:
    served = ServedFolder(made(folder), weights=False)

    def make(address: MemberAddress) -> VllmEngine:
        where = Elsewhere(address.url, parallel=4, reach=Reach(host=address.host))
        return VllmEngine("m", served, where, load_seconds=30.0)

    pool = EnginePool("m", [place.address for place in every], make)
    try:
        await pool.start()
        await until(lambda: not pool.status().detail)  # all of them are there
        yield pool
    finally:
        await pool.stop()


async def run(pool: EnginePool, prompt: Sequence[int], tokens: int = 2) -> list[Output]:
    async with pool.generate(TextRequest(list(prompt), tokens, GREEDY)) as outputs:
        return [output async for output in outputs]


async def test_a_prompt_goes_where_its_beginning_lies(tmp_path: Path) -> None:
    async with places(tmp_path, 3) as every, pool_of(tmp_path, every) as pool:
        await run(pool, ONE)
        await run(pool, OTHER)
        for more in range(1, 4):
            await run(pool, [*ONE, *[7] * more])
            await run(pool, [*OTHER, *[7] * more])
        spread = sorted([sorted({ids[0] for ids in place.prompts()}) for place in every])
        assert spread == [[], [100], [200]]
        facts = await pool.facts()
        assert (facts.context_length, facts.parallel, pool.slots) == (CONTEXT, 12, 12)
        assert await pool.facts() is facts


async def test_each_scope_has_its_own_places_and_salt(tmp_path: Path) -> None:
    """The same prompt goes where its scope has sent it, and each server is told of the scope."""
    async with places(tmp_path, 3) as every, pool_of(tmp_path, every) as pool:
        for scope in ("a", "b", "", "a", "b", ""):
            async with pool.generate(TextRequest([*ONE], 2, GREEDY, scope=scope)) as outputs:
                assert [output async for output in outputs]
        salts = [
            [body.get("cache_salt") for body in asked(place.folder) if _is_of(body, ONE)]
            for place in every
        ]
    assert sorted(salts, key=str) == [["a", "a"], ["b", "b"], [None, None]]


def _is_of(body: Any, prompt: Sequence[int]) -> bool:
    return body != "left" and body["prompt"] == list(prompt)


async def test_a_reply_counts_as_the_beginning_of_the_next_turn(tmp_path: Path) -> None:
    async with places(tmp_path, 2) as every, pool_of(tmp_path, every) as pool:
        for place in every:
            behave(place.folder, "endless")
        request = TextRequest([100, 101], 40, GREEDY, ignore_eos=True)
        async with pool.generate(request) as outputs:
            reply = [await anext(outputs) for _ in range(30)]
        for place in every:
            behave(place.folder, "")
        turn = [100, 101, *(one.id for one in reply if isinstance(one, Token))]
        for more in range(3):
            await run(pool, [*turn, more])
        assert sorted(len(place.prompts()) for place in every) == [0, 4]


async def test_requests_without_a_common_beginning_spread(tmp_path: Path) -> None:
    async with places(tmp_path, 3) as every, pool_of(tmp_path, every) as pool:
        for at in range(9):
            await run(pool, [100, 300 + at])
        assert [len(place.prompts()) for place in every] == [3, 3, 3]


async def test_one_that_is_gone_loses_nothing(tmp_path: Path) -> None:
    async with places(tmp_path, 2) as every, pool_of(tmp_path, every) as pool:
        await run(pool, ONE)
        (home,) = [place for place in every if place.prompts()]
        await home.go()
        done = await asyncio.gather(*(run(pool, [*ONE, at]) for at in range(8)))
        assert all(isinstance(outputs[-1], Stopped) for outputs in done)
        assert "1 of 2 members away" in pool.status().detail or pool.slots == 8


async def test_text_is_read_by_another_where_one_has_just_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until that is noticed it counts as ready."""
    asked_engines: list[VllmEngine] = []
    tokenize = VllmEngine.tokenize

    async def once_dead(
        engine: VllmEngine, pieces: Sequence[str | int], *, special: bool
    ) -> list[int]:
        asked_engines.append(engine)
        if len(asked_engines) == 1:
            raise EngineFailed("the engine is gone")
        return await tokenize(engine, pieces, special=special)

    async with places(tmp_path, 2) as every, pool_of(tmp_path, every) as pool:
        monkeypatch.setattr(VllmEngine, "tokenize", once_dead)
        assert await pool.tokenize(["Hello"], special=False)
    assert len(set(map(id, asked_engines))) == 2


async def test_one_that_comes_back_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_SERVER_QUESTIONS", (("/health", 0.05),))
    async with places(tmp_path, 2) as every, pool_of(tmp_path, every) as pool:
        await every[0].go()
        await until(lambda: "1 of 2 members away" in pool.status().detail)
        status = pool.status()
        assert (status.state, status.slots) == (EngineState.READY, 4)
        assert {one.model for one in status.members} == {place.address for place in every}
        for at in range(3):
            await run(pool, [*ONE, at])
        await every[0].come()
        await until(lambda: not pool.status().detail)
        for at in range(2):
            await run(pool, [*OTHER[:3], at])
        assert every[0].prompts()


@pytest.mark.parametrize("grammar", [None, "start: /(.|\\n)*/"])
async def test_one_that_breaks_off_is_followed_by_another_from_the_same_tokens(
    tmp_path: Path, grammar: str | None
) -> None:
    async with places(tmp_path, 2) as every, pool_of(tmp_path, every) as pool:
        prompt = await pool.tokenize(["the <think>é日本"], special=True)
        request = TextRequest(prompt, 40, GREEDY, grammar=grammar)
        behave(every[0].folder, "half")
        behave(every[1].folder, "half")
        began: list[Token] = []
        async with pool.generate(request) as outputs:
            began += [await anext(outputs), await anext(outputs)]  # type: ignore[list-item]
            for place in every:
                behave(place.folder, "")
            rest = [output async for output in outputs]
        *tokens, stopped = rest
        assert written(began) == written(await whole(pool, prompt))[: len(written(began))]
        again = [*prompt, *(token.id for token in began)]
        assert again in [body["prompt"] for place in every for body in asked(place.folder)]
        assert isinstance(stopped, Stopped)
        assert stopped.prompt_tokens == len(prompt)
        assert stopped.completion_tokens == len(began) + len(tokens)


async def whole(pool: EnginePool, prompt: Sequence[int]) -> list[Output]:
    return (await run(pool, prompt, 40))[:-1]


async def test_a_member_that_failed_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as long after each failure in a row, and no longer once it has answered."""
    now = 1000.0
    monkeypatch.setattr(member_module, "monotonic", lambda: now)
    async with places(tmp_path, 2) as every, pool_of(tmp_path, every) as pool:
        await run(pool, ONE)
        (home,) = [place for place in every if place.prompts()]
        behave(home.folder, "abort")
        assert isinstance((await run(pool, [*ONE, 1], 4))[-1], Stopped)
        for seconds in (1, 2, 4, 8, 16, 30, 30):
            before = len(home.prompts())
            now += 0.49 * seconds
            await run(pool, [*ONE, 1])
            assert len(home.prompts()) == before
            now += 0.51 * seconds
            await run(pool, [*ONE, 1])
            assert len(home.prompts()) == before + 1
        behave(home.folder, "")
        now += 30
        await run(pool, [*ONE, 1])
        assert len(home.prompts()) == before + 2
        behave(home.folder, "abort")
        await run(pool, ONE)
        await run(pool, ONE)
        assert len(home.prompts()) == before + 3
        now += 1
        await run(pool, ONE)
        assert len(home.prompts()) == before + 4


async def test_a_request_that_is_refused_is_refused_once(tmp_path: Path) -> None:
    async with places(tmp_path, 2) as every, pool_of(tmp_path, every) as pool:
        for place in every:
            behave(place.folder, "refuse")
        with pytest.raises(EngineFailed, match="400: not today"):
            await run(pool, ONE)
        assert sum(len(place.prompts()) for place in every) == 1
        for place in every:
            behave(place.folder, "")
        await run(pool, ONE)  # nothing is held against the one that refused
        assert sorted(len(place.prompts()) for place in every) == [0, 2]


async def test_a_request_that_fails_everywhere_does_not_try_everybody(tmp_path: Path) -> None:
    async with places(tmp_path, 5) as every, pool_of(tmp_path, every) as pool:
        for place in every:
            behave(place.folder, "abort")
        with pytest.raises(EngineFailed, match="gave up an answer: abort"):
            await run(pool, ONE)
        assert sum(len(place.prompts()) for place in every) == 3


async def test_members_come_and_go_while_others_answer(tmp_path: Path) -> None:
    async with places(tmp_path, 3) as every, pool_of(tmp_path, every[:2]) as pool:
        for place in every[:2]:
            behave(place.folder, "endless")
        async with pool.generate(TextRequest(list(ONE), 20, GREEDY)) as outputs:
            await anext(outputs)
            await until(lambda: any(place.prompts() for place in every[:2]))
            (leaving,) = [place for place in every[:2] if place.prompts()]
            staying = [place for place in every if place is not leaving]
            pool.renew([place.address for place in staying])
            assert len(pool.status().members) == 2
            await until(lambda: not pool.status().detail)
            for place in staying:
                behave(place.folder, "")
            for at in range(4):
                await run(pool, [*ONE, at])
            for _ in range(5):
                assert isinstance(await anext(outputs), Token)  # it goes on where it began
        assert len(leaving.prompts()) == 1
        assert sum(len(place.prompts()) for place in staying) == 4
        await until(lambda: asked(leaving.folder)[-1] == "left")


async def test_nobody_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_SERVER_QUESTIONS", (("/health", 0.05),))
    async with places(tmp_path, 2) as every, pool_of(tmp_path, every) as pool:
        for place in every:
            await place.go()
        with pytest.raises(EngineFailed) as failure:
            await run(pool, ONE)
        assert failure.value.loading
        await until(lambda: pool.status().state is not EngineState.READY)
        with pytest.raises(EngineFailed) as failure:
            await pool.facts()
        assert failure.value.loading
        await every[1].come()
        await until(lambda: pool.status().state is EngineState.READY)
        await run(pool, ONE)


async def test_all_are_there_and_none_will_do(tmp_path: Path) -> None:
    async with places(tmp_path, 2) as every:
        for place in every:
            behave(place.folder, "two")
        with pytest.raises(EngineFailed, match=r"no member .*: the server has several models"):
            async with pool_of(tmp_path, every):
                pass


async def test_one_that_will_not_do_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with places(tmp_path, 2) as every:
        behave(every[0].folder, "words")
        served = ServedFolder(made(tmp_path), weights=False)
        addresses = [place.address for place in every]
        pool = EnginePool("m", addresses, lambda one: VllmEngine("m", served, Elsewhere(one.url)))
        try:
            await pool.start()
            await run(pool, ONE)
            await until(lambda: "vocabulary is not" in pool.status().detail)
            behave(every[0].folder, "")
            await until(lambda: not pool.status().detail)
        finally:
            await pool.stop()
