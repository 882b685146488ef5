"""Handlers of the operations that pass through: embeddings, rerank, and plain completions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from msgspec import structs

from causerie.errors import forget_frames
from causerie.http.answers import PlainAnswer, StreamedAnswer
from causerie.http.api import OpenAI, told_failure
from causerie.http.doors import MountedDoor
from causerie.http.event_loop import offload, work_of
from causerie.http.exchange import ClientGone, Exchange, error_details_for, read_json
from causerie.http.headers import hints_of
from causerie.http.routing import DoorHandler
from causerie.http.tasks import WorkGuard
from causerie.observe.logging import request_id
from causerie.protocol.operations import BODIES
from causerie.protocol.request import ChatRequest, Operation
from causerie.protocol.response import CompletionIdentity
from causerie.shapes.passed_through.encoder import PassedEncoder, passed_reply
from causerie.shapes.passed_through.reader import AT_ONCE, parse


class _Whole(PlainAnswer):
    __slots__ = ()
    completion = staticmethod(passed_reply)


class _Streamed(StreamedAnswer):
    __slots__ = ()
    completion = staticmethod(passed_reply)
    encoder = PassedEncoder


class PassedThrough(OpenAI):
    """Handlers of the operations that pass through, the same for all doors of a service."""

    @property
    def routes(self) -> Mapping[str, Mapping[str, DoorHandler]]:
        """Return handlers by path below a door's base and by method."""
        return {f"/{name}": {"POST": partial(self.answer, name)} for name in BODIES}

    async def answer(
        self, operation: Operation, exchange: Exchange, door: MountedDoor, _: str = ""
    ) -> None:
        """Answer a request of the owner of its key, as :meth:`complete` answers a chat's."""
        request_id.set(exchange.request_id)
        caller = await self.pipeline.authenticate(door, exchange.credential)
        work_of.set(caller.project or caller.key or exchange.peer)
        answer: _Whole | _Streamed | None = None
        try:
            with WorkGuard(exchange, self._drain):
                request = await self._parsed(operation, exchange, door)
                created = time.time_ns() // 1_000_000_000
                identity = CompletionIdentity(exchange.request_id, created, exchange.request_id)
                answer = _Whole()
                if request.stream:
                    answer = _Streamed(request, exchange, identity, self._pings, self._head_timer)
                exchange.metered = True
                labels = hints_of(exchange.headers).labels
                await self.pipeline.answer(door, caller, request, identity, answer, labels)
        except ClientGone:
            raise
        except Exception as failure:  # whatever it is, a stream that has started says so
            if exchange.status is None or not isinstance(answer, _Streamed):
                raise
            answer.break_off(error_details_for(told_failure(failure, exchange), exchange.headers))
            forget_frames(failure)
        finally:
            if isinstance(answer, _Streamed):
                answer.leave()
        await answer.finish(exchange)

    async def _parsed(
        self, operation: Operation, exchange: Exchange, door: MountedDoor
    ) -> ChatRequest:
        body = await read_json(exchange, self._limits.body)
        rules = self._known.get(door.name) or self._rules(door)
        if hints_of(exchange.headers).strict:
            rules = structs.replace(rules, reject_unknown=True)
        if len(body) <= AT_ONCE:
            return parse(operation, body, rules)
        return await offload(parse, operation, body, rules)
