"""A service with open doors, seen from its event loop and from its clients.

Shared by what asks how long one request holds the loop and what it leaves behind: the tests of
delay and of garbage, and ``bench/loop_delay.py``.
"""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import socketserver
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from servicekit import ServiceView

from causerie.engines import registry
from causerie.engines.registry import FakeEngine

OPEN_DOORS = """
[[doors]]
name = "gateway"
kind = "gateway"
keys = "off"
[[doors]]
name = "endpoint"
kind = "endpoint"
keys = "off"
"""
PATHS = {
    "gateway": "/gateway/v1/chat/completions",
    "endpoint": "/endpoints/endpoint/v1/chat/completions",
}
BOUND_SECONDS = 0.05
"""Longest time of one callback on a usual machine."""
_WORK_SECONDS = 0.006  # of :func:`_work` on a usual machine, where the bound was set
HI: list[Mapping[str, Any]] = [{"role": "user", "content": "Hi"}]


class Watch:
    """The longest callback of the event loop that runs in this thread, in seconds.

    The fake engine's own work is not counted: other engines do theirs in other processes.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.what = ""
        self.apart = 0.0
        """Work of the fake engine in all."""
        self._apart = 0.0

    @property
    def too_long(self) -> bool:
        """Whether a callback took longer than the bound, on a slow machine as much longer.

        How slow it is is asked where it decides: machines that others use change from one second
        to the next.
        """
        return self.longest > BOUND_SECONDS and self.longest > BOUND_SECONDS * slowness()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Measure every callback within the block; the garbage collector is not of them."""
        here, run = threading.get_ident(), asyncio.Handle._run

        def measured(handle: asyncio.Handle) -> None:
            if threading.get_ident() != here:
                return run(handle)
            before, self._apart = time.thread_time(), 0.0
            try:
                return run(handle)
            finally:
                self._took(time.thread_time() - before - self._apart, handle)

        gc.disable()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(asyncio.Handle, "_run", measured)
                patch.setattr(registry, "_generated_ids", self._set_apart(registry._generated_ids))
                for name in ("common_tokens", "packed", "_last_user_message_bytes"):
                    patch.setattr(registry, name, self._apart_from(getattr(registry, name)))
                patch.setattr(FakeEngine, "tokenize", self._tokenizing(FakeEngine.tokenize))
                yield
        finally:
            gc.enable()

    @contextmanager
    def _not_counted(self) -> Iterator[None]:
        before = time.thread_time()
        try:
            yield
        finally:
            spent = time.thread_time() - before
            self._apart += spent
            self.apart += spent

    def _set_apart(self, work: Callable[..., Iterator[int]]) -> Callable[..., Iterator[int]]:
        def apart(*args: Any) -> Iterator[int]:
            ids = work(*args)
            while True:
                with self._not_counted():
                    id = next(ids, None)
                if id is None:
                    return
                yield id

        return apart

    def _apart_from(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def apart(*args: Any) -> Any:
            with self._not_counted():
                return work(*args)

        return apart

    def _tokenizing(self, work: Callable[..., Awaitable[list[int]]]) -> Any:
        async def tokenize(*args: Any, **kwargs: Any) -> list[int]:
            with self._not_counted():  # nothing is waited for within
                return await work(*args, **kwargs)

        return tokenize

    def _took(self, seconds: float, handle: asyncio.Handle) -> None:
        if seconds > self.longest:
            self.longest, self.what = seconds, repr(handle)[:300]


def slowness() -> float:
    """Return how many times longer than a usual machine this one needs for a piece of work now.

    At most 4: behind that nothing is known of the service.
    """
    return min(min(_work() for _ in range(5)) / _WORK_SECONDS, 4.0)


def _work() -> float:
    """Return the seconds of processor time of a fixed piece of work."""
    started = time.thread_time()
    for _ in range(500):
        sum(range(1_000))
    return time.thread_time() - started


class Provider(socketserver.ThreadingTCPServer):
    """Answers each request with ``reply``, in a thread: the loop is the service's alone."""

    daemon_threads = True
    reply: tuple[str, bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Asked(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Provider)
        length = 0
        while (line := self.rfile.readline().strip()) != b"":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        self.rfile.read(length)
        kind, body = self.server.reply
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n"
        try:
            self.wfile.write(head.encode() + body)
        except OSError:
            return  # the service has seen enough


_ANSWER = {
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}
_PLAIN = ("application/json", json.dumps(_ANSWER).encode())


@contextmanager
def answering() -> Iterator[Provider]:
    """A provider that answers while the block runs."""
    with Provider(("127.0.0.1", 0), _Asked) as provider:
        provider.reply = _PLAIN
        thread = threading.Thread(target=provider.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield provider
        finally:
            provider.shutdown()
            thread.join()


@dataclass(frozen=True)
class Client:
    """Sends from a thread of its own."""

    home: ServiceView

    async def post(self, door: str, model: str, fields: Mapping[str, Any]) -> int:
        """The status of an answer that is read to its end."""
        body = {"model": model, "messages": HI, "max_tokens": 5, **fields}
        data = json.dumps(body, separators=(",", ":")).encode()
        return await self.send("POST", PATHS[door], data)

    async def send(self, method: str, path: str, data: bytes = b"", **headers: str) -> int:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self.home.threads, self._sent, method, path, data, headers
        )

    def _sent(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> int:
        host, port = self.home.root.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        try:
            connection.request(method, path, data, {"content-type": "application/json", **headers})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()


def called(arguments: str) -> list[Mapping[str, Any]]:
    """A conversation in which a function was called with these arguments."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "c", "content": "1"}
    return [*HI, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
