"""Cost of an API: processor time of a request by chat completions, Responses and Messages.

One service on one core, before upstreams whose replies are made beforehand on the other. Each API
asks for the same reply, plain and streamed: of a provider that speaks chat completions (so that
requests and replies are translated), and of one that speaks the API of the client (so that they
pass). The loads take turns; medians of the rounds are printed, as ratios to chat completions.

    make bench BENCH=bench/shapes.py
    make bench BENCH=bench/shapes.py ARGS="--rounds 9 --requests 2000"
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
from gateway.contestant import Contestant, process
from service import free_port

BENCH = str(Path(__file__).parent)
CONFIG = """
[server]
port = {port}
[logging]
level = "warning"
[[doors]]
name = "gateway"
kind = "gateway"
keys = "off"
[[providers]]
name = "chat"
base_url = "http://127.0.0.1:{chat}/v1"
[[providers]]
name = "responses"
base_url = "http://127.0.0.1:{native}/v1"
dialect = "openai"
[[providers]]
name = "messages"
base_url = "http://127.0.0.1:{native}/v1"
dialect = "anthropic"
[[aliases]]
id = "chat-plain"
targets = [{{ provider = "chat", model = "plain" }}]
[[aliases]]
id = "chat-stream"
targets = [{{ provider = "chat", model = "stream-40-0-1" }}]
[[aliases]]
id = "responses"
targets = [{{ provider = "responses", model = "m" }}]
[[aliases]]
id = "messages"
targets = [{{ provider = "messages", model = "m" }}]
"""
QUESTION = "Name three rivers."
TURNS = [{"role": "user", "content": QUESTION}]
BODIES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/chat/completions", {"messages": TURNS, "max_tokens": 100}),
    "responses": ("/responses", {"input": QUESTION, "max_output_tokens": 100}),
    "messages": ("/messages", {"messages": TURNS, "max_tokens": 100}),
}
CASES = {  # name of a load: its API, and the alias that it asks
    "chat": ("chat", "chat"),
    "responses by chat": ("responses", "chat"),
    "messages by chat": ("messages", "chat"),
    "responses passed": ("responses", "responses"),
    "messages passed": ("messages", "messages"),
}
BARS = {"by chat": 1.5, "passed": 1.0}
_TEXT = "A fox went down to the river, looked at the other bank for a while, and went home again."


def main() -> int:
    """Measure in turns; the exit status is 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=1500, help="of a load")
    parser.add_argument("--upstream", type=int, help=argparse.SUPPRESS)  # port of a child
    options = parser.parse_args()
    if options.upstream is not None:
        asyncio.run(upstream(options.upstream))
        return 0
    chat, native, port = free_port(), free_port(), free_port()
    mock = [sys.executable, "-m", "gateway.mock", str(chat), "0"]
    passing = [sys.executable, __file__, "--upstream", str(native)]
    root = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "causerie.toml"
        config.write_text(CONFIG.format(port=port, chat=chat, native=native))
        ours = [sys.executable, "-m", "causerie", "serve", "--config", str(config)]
        ready = f"{root}/health/ready"
        with (
            process(mock, folder / "chat.log", core=0, environ={"PYTHONPATH": BENCH}),
            process(passing, folder / "native.log", core=0),
            process(ours, folder / "ours.log", core=1, ready=ready) as pid,
        ):
            contestant = Contestant("ours", root, pid)
            found = asyncio.run(measured(contestant, options.rounds, options.requests))
    return report(found)


async def measured(
    ours: Contestant, rounds: int, requests: int
) -> Mapping[tuple[str, bool], Sequence[float]]:
    """Return microseconds of processor time for each request, by load and whether it streams."""
    found: dict[tuple[str, bool], list[float]] = {}
    for number in range(rounds + 1):  # the first one warms up
        for stream in (False, True):
            count = requests // 5 if stream else requests
            for case in CASES:
                before = ours.cpu_seconds()
                await load(ours.root, case, count, stream=stream)
                spent = (ours.cpu_seconds() - before) / count * 1e6
                if number:
                    found.setdefault((case, stream), []).append(spent)
        print(f"round {number} of {rounds}", flush=True)
    return found


async def load(root: str, case: str, count: int, *, stream: bool) -> None:
    """Send so many requests over 16 connections."""
    shape, alias = CASES[case]
    path, fields = BODIES[shape]
    name = alias if alias != "chat" else f"chat-{'stream' if stream else 'plain'}"
    body = json.dumps({"model": name, "stream": stream, **fields}).encode()
    waiting = [None] * count
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:

        async def ask() -> None:
            while waiting:
                waiting.pop()
                headers = {"content-type": "application/json"}
                async with http.post(f"{root}/v1{path}", data=body, headers=headers) as reply:
                    text = await reply.read()
                    if reply.status != 200:
                        raise RuntimeError(f"{case}: {reply.status} {text[:500]!r}")

        await asyncio.gather(*(ask() for _ in range(16)))


def report(found: Mapping[tuple[str, bool], Sequence[float]]) -> int:
    missed = False
    print(f"{'load':24}{'µs':>8}{'ratio':>8}{'bar':>6}")
    for (case, stream), spent in found.items():
        base = found["chat", stream]
        ratio = median(one / other for one, other in zip(spent, base, strict=True))
        bar = next((most for end, most in BARS.items() if case.endswith(end)), None)
        missed = missed or (bar is not None and ratio > bar)
        name = f"{case}, {'stream of 40' if stream else 'plain'}"
        print(f"{name:34}{median(spent):8.1f}{ratio:8.2f}{bar or '':>6}")
    return int(missed)


def _event(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _messages(*, stream: bool) -> bytes:
    usage = {"input_tokens": 350, "output_tokens": 40}
    message: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": _TEXT}], "stop_reason": "end_turn",
        "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    if not stream:
        return json.dumps(message).encode()
    start = {"type": "content_block_start", "index": 0}
    delta = {"type": "content_block_delta", "index": 0}
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    events = [
        {"type": "message_start", "message": message | {"content": [], "stop_reason": None}},
        {**start, "content_block": {"type": "text", "text": ""}},
        *[{**delta, "delta": {"type": "text_delta", "text": "fox "}}] * 40,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": usage},
        {"type": "message_stop"},
    ]
    return b"".join(map(_event, events))


def _responses(*, stream: bool) -> bytes:
    part = {"type": "output_text", "text": _TEXT, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    whole: dict[str, Any] = {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed",
        "output": [{**item, "content": [part]}],
        "usage": {"input_tokens": 350, "output_tokens": 40, "total_tokens": 390},
    }  # fmt: skip
    if not stream:
        return json.dumps(whole).encode()
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    delta = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0}
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        *[{**delta, "item_id": "msg_1", "delta": "fox "}] * 40,
        {"type": "response.output_item.done", "output_index": 0, "item": whole["output"][0]},
        {"type": "response.completed", "response": whole},
    ]
    return b"".join(map(_event, events))


async def upstream(port: int) -> None:
    """Answer Responses and Messages with replies that are made beforehand."""
    made = {
        (path, stream): b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
        % (b"text/event-stream" if stream else b"application/json", len(body), body)
        for path, reply in (("/v1/messages", _messages), ("/v1/responses", _responses))
        for stream in (False, True)
        for body in (reply(stream=stream),)
    }

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                writer.write(made[head.split(" ")[1], bool(body.get("stream"))])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(code)
