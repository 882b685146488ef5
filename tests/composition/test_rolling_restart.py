"""Replicas behind a balancer are restarted one after the other, under load, and nobody notices."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from hostedkit import office
from replicakit import Balancer, Clients, PacedProvider, configuration, members
from valkeyserver import ValkeyServer
from waiting import eventually

STREAMS, ASKED_EVERY = 20, 0.1
DELAY = 2.0  # long enough for a balancer on a machine whose cores are all busy


@pytest.mark.full
async def test_a_rolling_restart_loses_no_stream_and_refuses_no_request(
    valkey: ValkeyServer, hosted_database: str, tmp_path: Path
) -> None:
    """And every stream that a client saw end is in the ledger, once, with what it had."""
    lengths = itertools.cycle([2, 7, 4, 9])
    async with (
        office(tmp_path, url=hosted_database) as opened,
        PacedProvider(0.2).answering() as provider,
    ):
        credential = (await opened.key()).credential
        more = f"shutdown_delay_seconds = {DELAY}"
        text = configuration(hosted_database, valkey.url, provider.base_url, more)
        async with (
            members(tmp_path, [text] * 2) as replicas,
            Balancer(replicas, ASKED_EVERY).running() as balancer,
        ):
            clients = Clients(balancer.root, credential, lambda: next(lengths))
            async with clients.running(STREAMS) as seen:
                await eventually(lambda: clients.have_ended(STREAMS))
                for one in replicas:
                    assert await one.stop() == 0, one.log()
                    await one.start()
                before = len(seen.ended)
                await eventually(lambda: clients.have_ended(before + STREAMS))
        assert (seen.lost, seen.refused) == ([], [])
        kept = [record async for record in opened.every_record()]
        assert Counter(one.request_id for one in kept) == Counter(seen.ended)
        assert sum(one.completion for one in kept) == seen.words.total()
        assert provider.asked.total() == len(seen.ended)
