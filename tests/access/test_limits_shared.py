"""Limits over several replicas, and what becomes of them when the store or a replica dies."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from secrets import token_hex

import pytest
from limitkit import Used, key, model, open_service_view, shared_counters, told
from servicekit import service_view
from structlog.testing import capture_logs
from valkey.asyncio import Valkey
from valkeyserver import ValkeyServer
from waiting import eventually

from causerie.access.limits import RateScope, Tokens
from causerie.distributed.connection import (
    DistributedOptions,
    Replica,
    SharedOperation,
)
from causerie.distributed.limits import DistributedCounters, DistributedLease, LocalLease
from causerie.errors import RateLimited, StoreUnavailable

QUICK = {"reply_seconds": 30.0, "connect_seconds": 30.0, "beat_seconds": 0.1}
HASTY = {"reply_seconds": 1.0, "connect_seconds": 30.0, "beat_seconds": 0.1}
ONE = key(concurrent=1)

REPLICA = """
import asyncio, sys
from causerie.access.limits import Rates, RateScope, Tokens
from causerie.distributed.limits import DistributedCounters
from causerie.distributed.connection import Replica, DistributedOptions

async def main():
    counters = DistributedCounters(
        Replica(sys.argv[1], DistributedOptions(prefix=sys.argv[2], life_seconds=4))
    )
    async with counters.replica.running():
        await counters.replica.wait()
        hold = await counters.take([RateScope("key", "ck_a", Rates(concurrent=1))], Tokens)
        print(type(hold).__name__, file=sys.stderr, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def lost(counters: DistributedCounters) -> None:
    async def away() -> bool:
        return not counters.replica.here

    await eventually(away)


async def admitted(counters: DistributedCounters) -> None:
    async def let_in() -> bool:
        return not await refused(counters, ONE)

    await eventually(let_in)


async def taken(counters: DistributedCounters, *scopes: RateScope) -> DistributedLease | LocalLease:
    return await counters.take(scopes, Tokens)


async def refused(counters: DistributedCounters, *scopes: RateScope) -> bool:
    try:
        found = await counters.take(scopes, Tokens)
    except RateLimited:
        return True
    found.release(0, 0)
    return False


async def test_replicas_have_one_limit_together(valkey: ValkeyServer) -> None:
    prefix = token_hex(4)
    async with (
        shared_counters(valkey, prefix=prefix) as one,
        shared_counters(valkey, prefix=prefix) as two,
        shared_counters(valkey, prefix=prefix) as three,
    ):
        scopes = (key(requests_per_minute=40, tokens_per_minute=10_000), model(concurrent=30))
        need = partial(Tokens, 100, 100)
        done = await asyncio.gather(
            *(each.take(scopes, need) for each in (one, two, three) for _ in range(30)),
            return_exceptions=True,
        )
        holds = [each for each in done if not isinstance(each, BaseException)]
        assert all(isinstance(each, RateLimited | DistributedLease) for each in done)
        assert len(holds) == 30
        for hold in holds:
            hold.release(100, 50)
        assert sum([not await refused(two, *scopes) for _ in range(30)]) == 10
        standings = await _target_stats_of(three, scopes)
        assert standings == (0, 10_000 - 30 * 150)


async def _target_stats_of(
    counters: DistributedCounters, scopes: tuple[RateScope, ...]
) -> tuple[int, int]:
    with pytest.raises(RateLimited) as refusal:
        await counters.take(scopes, Tokens)
    left = refusal.value.headers
    return int(left["x-ratelimit-remaining-requests"]), int(left["x-ratelimit-remaining-tokens"])


async def test_a_clock_of_the_server_that_is_put_back_keeps_nobody_out(
    valkey: ValkeyServer,
) -> None:
    async with open_service_view(valkey) as there:
        one = key(requests_per_minute=1)
        await there.pass_through(one)
        with pytest.raises(RateLimited):
            await there.pass_through(one)
        there.clock.pass_seconds(-3600)
        await there.pass_through(one)
        with pytest.raises(RateLimited) as caught:
            await there.pass_through(one)
        assert int(caught.value.headers["Retry-After"]) <= 60


async def test_what_a_killed_replica_held_ends(valkey: ValkeyServer) -> None:
    prefix = token_hex(4)
    replica = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", REPLICA, valkey.url, prefix), stderr=asyncio.subprocess.PIPE
    )
    try:
        assert replica.stderr is not None
        assert await replica.stderr.readline() == b"DistributedLease\n"
        async with shared_counters(valkey, prefix=prefix, **QUICK) as counters:
            assert await refused(counters, ONE)
            replica.kill()
            await replica.wait()
            await admitted(counters)
    finally:
        if replica.returncode is None:
            replica.kill()
            await replica.wait()


@pytest.mark.full
async def test_a_replica_that_lives_keeps_what_it_holds(valkey: ValkeyServer) -> None:
    prefix = token_hex(4)
    async with (
        shared_counters(valkey, prefix=prefix, life_seconds=4.0, **QUICK) as one,
        shared_counters(valkey, prefix=prefix, life_seconds=4.0, **QUICK) as two,
    ):
        hold = await taken(one, ONE)
        await asyncio.sleep(4.5)  # longer than its life, were it not heard of
        assert await refused(two, ONE)
        hold.release(0, 0)
        await admitted(two)


async def test_without_the_server_each_counts_for_itself_and_says_so(
    own_valkey: ValkeyServer,
) -> None:
    async with shared_counters(own_valkey, **QUICK) as counters:
        with capture_logs() as lines:
            with await counters.take((key(concurrent=2),), Tokens):
                own_valkey.kill()
                await lost(counters)
                with await counters.take((key(concurrent=2),), Tokens) as lease:
                    assert told(lease) == {}
                    assert await refused(counters, key(concurrent=2))  # those by the server count
                    own_valkey.start()
                    await counters.replica.wait()
                    with pytest.raises(RateLimited):  # both are known to the new server
                        await counters.take((key(concurrent=2),), Tokens)
            for _ in range(3):  # and both have ended there
                with await counters.take((ONE,), Tokens):
                    pass
        events = [line["event"] for line in lines]
        assert events == ["limits.store_away", "limits.shared"]
        assert "pass of the tests" not in str(lines)


async def test_without_the_server_nobody_is_let_in_where_that_is_wanted(
    own_valkey: ValkeyServer,
) -> None:
    async with shared_counters(own_valkey, **QUICK, away="refuse") as counters:
        own_valkey.kill()
        await lost(counters)
        with pytest.raises(StoreUnavailable) as failure:
            await counters.take([ONE], Tokens)
        assert (failure.value.status, failure.value.code) == (503, "store_unavailable")
        with counters.take_now((), Tokens) or await counters.take((), Tokens):
            pass  # who has no limits does not need the server


async def test_a_server_that_hangs_keeps_nobody_waiting(own_valkey: ValkeyServer) -> None:
    async with shared_counters(own_valkey, **HASTY) as counters:
        own_valkey.pause()
        async with asyncio.timeout(60):
            hold = await taken(counters, ONE)
            assert isinstance(hold, LocalLease)
            assert await refused(counters, ONE)
        own_valkey.go_on()
        async with asyncio.timeout(60):
            await counters.replica.wait()
        assert await refused(counters, ONE)  # that it runs has been told
        hold.release(0, 0)
        assert isinstance(await taken(counters, ONE), DistributedLease)


async def test_cancelled_while_it_waits_nothing_is_held(own_valkey: ValkeyServer) -> None:
    patient = {"reply_seconds": 30, "connect_seconds": 30, "beat_seconds": 30}
    scope = key(concurrent=1, requests_per_minute=1, tokens_per_minute=10)
    async with shared_counters(own_valkey, **patient) as counters:
        own_valkey.pause()
        asking = asyncio.ensure_future(counters.take([scope], lambda: Tokens(5, 5)))
        await asyncio.sleep(0)  # it has been sent off
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        own_valkey.go_on()
        assert await refused(counters, scope)  # the server had let it in before it hears of it
        found = await counters.take([scope], lambda: Tokens(5, 5))
        assert isinstance(found, DistributedLease)


@pytest.mark.parametrize("late", [False, True])
async def test_cancelled_at_the_moment_of_the_answer_nothing_is_held(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    async with shared_counters(valkey) as counters:
        asking = asyncio.ensure_future(counters.take([ONE], Tokens))
        count = counters.count

        def count_and_cancel(scopes: Sequence[RateScope], more: int) -> None:
            count(scopes, more)
            if more > 0 and late:
                asyncio.get_running_loop().call_soon(asking.cancel)
            elif more > 0:
                asking.cancel()

        with monkeypatch.context() as patch:
            patch.setattr(counters, "count", count_and_cancel)
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert not await refused(counters, ONE)


@pytest.mark.parametrize("command", ["FLUSHALL", "SCRIPT FLUSH"])
async def test_a_server_that_forgets_is_told_again(valkey: ValkeyServer, command: str) -> None:
    async with (
        Valkey.from_url(valkey.url) as client,
        shared_counters(valkey, **QUICK) as counters,
    ):
        hold = await taken(counters, ONE)
        await client.execute_command(command)
        assert await refused(counters, ONE)
        async with asyncio.timeout(60):
            while isinstance(second := await counters.take([key("x")], Tokens), LocalLease):
                second.release(0, 0)
                await counters.replica.wait()
        assert await refused(counters, ONE)
        hold.release(0, 0)
        assert not await refused(counters, ONE)


async def test_a_wrong_password_is_no_end_of_the_service(own_valkey: ValkeyServer) -> None:
    url = own_valkey.url.replace("tests", "nobody")
    counters = DistributedCounters(Replica(url, DistributedOptions(**QUICK)))
    with capture_logs() as lines:

        async def said() -> bool:
            return bool(lines)

        async with counters.replica.running():
            await eventually(said)
            assert isinstance(await taken(counters, ONE), LocalLease)
    assert lines[0] == {
        "event": "limits.store_away",
        "failure": "AuthenticationError",
        "log_level": "warning",
    }


async def test_an_operation_that_fails_fails_alone(valkey: ValkeyServer) -> None:
    """A value that is not ours fails those who need it, and nobody beside them in the batch."""
    prefix = token_hex(4)
    fine, broken = key("fine", concurrent=3), key("broken", concurrent=1)
    async with (
        Valkey.from_url(valkey.url) as client,
        shared_counters(valkey, prefix=prefix, **QUICK) as counters,
    ):
        process = counters.replica.process
        await client.set(f"{{{prefix}}}:scope:{broken.id}", "not ours")
        with capture_logs() as lines:
            asked = [(fine,), (fine, broken), (fine,)]
            found = await asyncio.gather(*(taken(counters, *scopes) for scopes in asked))
        assert [type(each) for each in found] == [DistributedLease, LocalLease, DistributedLease]
        assert [line["event"] for line in lines] == ["limits.operation_failed"]
        third = await taken(counters, fine)
        assert isinstance(third, DistributedLease)
        assert await refused(counters, fine)  # nothing was taken by what failed
        third.release(0, 0)
        await client.delete(f"{{{prefix}}}:scope:{broken.id}")
        later = await taken(counters, broken)
        found[1].release(0, 0)  # which the server never counted
        assert await refused(counters, broken)
        later.release(0, 0)
        assert not await refused(counters, broken)
        assert counters.replica.process == process


@pytest.mark.parametrize("words", [b"", b"?", b"t", b"r\0"])
async def test_words_that_the_script_does_not_know_fail_alone(
    valkey: ValkeyServer, words: bytes
) -> None:
    async with shared_counters(valkey) as counters:
        process, failed = counters.replica.process, asyncio.Event()
        counters.replica.send(SharedOperation(words, ["{x}:scope:a"], failed=failed.set))
        assert isinstance(await taken(counters, ONE), DistributedLease)
        assert failed.is_set()
        assert counters.replica.process == process


async def test_nothing_stays_in_the_server(valkey: ValkeyServer) -> None:
    prefix = token_hex(4)
    scope = key(requests_per_minute=5, tokens_per_minute=100, concurrent=2)
    async with (
        Valkey.from_url(valkey.url) as client,
        shared_counters(valkey, prefix=prefix) as counters,
    ):
        with await counters.take((scope,), lambda: Tokens(5, 5)) as lease:
            lease.settle(Used(5, 50))
            names = [name async for name in client.scan_iter(f"{{{prefix}}}*")]
            assert len(names) == 2
            for name in names:
                lasts = await client.ttl(name)
                assert lasts > 0 or name.endswith(b":processes")
        await taken(counters, key("last"))
        assert await client.ttl(f"{{{prefix}}}:scope:{scope.id}") <= 62  # nothing runs any more


def test_an_address_that_is_none() -> None:
    with pytest.raises(ValueError):
        Replica("postgresql://somewhere")


async def test_a_service_counts_where_the_settings_say(
    valkey: ValkeyServer, tmp_path: Path
) -> None:
    text = (
        '[[models]]\nid = "own"\nengine = "fake"\noptions = { replies = ["Me."] }\n'
        "[models.limits]\nrequests_per_minute = 3\n"
        f'[shared]\nurl = "{valkey.url}"\nprefix = "{token_hex(4)}"\n'
    )
    seen = []
    for _ in range(2):  # one after the other, as replicas would side by side
        async with service_view(tmp_path, text) as service:
            seen += [(await service.ask("/v1", "own"))[0] for _ in range(2)]
    assert seen == [200, 200, 200, 429]


async def test_a_service_starts_without_the_server(tmp_path: Path) -> None:
    text = (
        '[[models]]\nid = "own"\nengine = "fake"\noptions = { replies = ["Me."] }\n'
        "[models.limits]\nrequests_per_minute = 3\n"
        '[shared]\nurl = "valkey://127.0.0.1:9/0"\naway = "refuse"\n'
    )
    async with service_view(tmp_path, text) as service:
        status, _, body = await service.ask("/v1", "own")
        assert (status, body["error"]["code"]) == (503, "store_unavailable")
