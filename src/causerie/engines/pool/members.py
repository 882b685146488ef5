"""The members of a pool: who there is, who leaves, and who gets a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from itertools import count
from typing import Any

from causerie.engines.base import EngineFailed
from causerie.engines.pool.choice import least_cost
from causerie.engines.pool.discovery import MemberAddress
from causerie.engines.pool.kv_subscriber import KvEndpoint
from causerie.engines.pool.member import Member
from causerie.engines.pool.member_cache import MemberCache
from causerie.engines.pool.member_turn import MemberTurn
from causerie.engines.pool.prefix_index import BLOCK, PrefixIndex, chain, root
from causerie.engines.supervised import SupervisedEngine

_BLOCKS = 32_768  # for each member: half a million tokens, which take some 3.6 MB here

_MOST_BLOCKS = 10_000_000  # of all, where events say that they are there; some 1.1 GB
_FIT_EVERY = 256  # requests


class Members:
    """Servers at addresses; ``make`` builds the engine of one, without starting it.

    ``events`` says where a server publishes what its caches hold, if anywhere.
    """

    def __init__(
        self,
        make: Callable[[MemberAddress], SupervisedEngine[Any]],
        events: Callable[[MemberAddress], Sequence[KvEndpoint]],
    ) -> None:
        self._make = make
        self._events = events
        self._members: dict[str, Member] = {}
        self._leaving: set[Member] = set()
        self._ends: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        self.index = PrefixIndex(_BLOCKS)

    def every(self) -> Sequence[Member]:
        """Return all that do not leave."""
        return list(self._members.values())

    def ready(self) -> Sequence[Member]:
        """Return those that can generate now."""
        ready = [member for member in self._members.values() if member.engine.ready]
        for member in ready:
            if member.restarts != member.engine.restarts:
                member.restarts = member.engine.restarts
                member.cache.forget()  # whoever is there now has an empty one
        return ready

    def renew(self, addresses: Sequence[MemberAddress]) -> None:
        """Have these from now on; those that leave finish what they have started."""
        before, self._members = self._members, {}
        for address in addresses:
            name = address.name
            kept = before.pop(name) if name in before else None
            self._members[name] = kept or self._new(name, address)
        for member in before.values():
            member.cache.forget()
            self._leaving.add(member)
            self._end_unused(member)
        self._fit()

    async def stop(self) -> None:
        """Have no more to do with any of them."""
        await asyncio.gather(*(member.stop() for member in [*self.every(), *self._leaving]))
        await asyncio.gather(*self._ends)

    async def choose(self, prompt: Sequence[int], scope: str, tried: Collection[str]) -> MemberTurn:
        """As :meth:`enter`, for those who may have to wait elsewhere."""
        return self.enter(prompt, scope, tried)

    def enter(self, prompt: Sequence[int], scope: str, tried: Collection[str]) -> MemberTurn:
        """Give a prompt to a member, which reuses what it holds in this scope.

        It is none of those that were ``tried``. Raise :class:`EngineFailed` if there is no other.
        """
        blocks = chain(prompt, scope)
        there = [member for member in self.ready() if member.name not in tried]
        awake = [member for member in there if not member.rests] or there
        able = [member for member in awake if member.running < member.engine.slots] or awake
        if not able:
            raise self.nobody()
        found = self.index.runs(blocks)
        runs = {member.name: member.cache.run(found, scope) for member in able} if found else found
        member = least_cost(able, len(prompt), runs)
        unread = max(len(prompt) - runs.get(member.name, 0) * BLOCK, 1)
        member.chosen = next(self._numbers)
        turn = MemberTurn(member, prompt, root(scope), blocks, unread, self._end_unused)
        if member.chosen % _FIT_EVERY == 0:
            self._fit()
        return turn

    def nobody(self) -> EngineFailed:
        """Return the failure of a request that no member can take."""
        away = next((f": {one.failure}" for one in self.every() if one.failure), "")
        return EngineFailed(f"no member of the pool can be asked{away}", loading=True)

    def _new(self, name: str, address: MemberAddress) -> Member:
        cache = MemberCache(self.index, name, self._events(address))
        return Member(name, self._make(address), cache)

    def _fit(self) -> None:
        """Give the index room for what the members are known to hold, and twice that."""
        held = sum(len(member.cache) for member in self._members.values())
        self.index.resize(max(_BLOCKS * len(self._members), min(2 * held, _MOST_BLOCKS)))

    def _end_unused(self, member: Member) -> None:
        if member in self._leaving and not member.running:
            self._leaving.discard(member)
            # Awaited by `stop`.
            task = asyncio.get_running_loop().create_task(member.stop())
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)
