"""A program that is started and spoken to like ``vllm serve``, and misbehaves on demand.

What it answers has the form that vLLM 0.32 answers in. Its model writes the prompt once
more and ends the text; of grammars it obeys those of one character. A file ``behaviour`` in
the model folder, with one word, makes it do something else; ``asked.jsonl`` there has what it
was asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from aiohttp import web
from kvkit import EngineCache, Publisher
from tokenizer_kinds import byte_level
from tokenizers import Tokenizer

CONTEXT = 64
_CHARACTER = re.compile(r"start: /\\x\{(\w\w)\}/")


def model_folder(folder: Path) -> Path:
    """A model folder without weights that anybody reads, and the program alongside it."""
    text, end = tokenizer()
    config = {"model_type": "llama", "max_position_embeddings": 4096, "eos_token_id": end}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(text)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (folder / "model.safetensors").write_bytes(bytes(64))
    command = folder / "vllm"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n')
    command.chmod(0o755)
    return folder


@cache
def tokenizer() -> tuple[str, int | None]:
    """Return the tokenizer of all such folders, as its file, and its end token."""
    trained = byte_level()
    return trained.to_str(), trained.token_to_id("<|end|>")


class Server:
    """One server of the model in ``folder``, for those who show ``key``."""

    def __init__(self, folder: Path, key: str | None) -> None:
        self.folder = folder
        self.publisher: Publisher | None = None
        self.key = key
        self.context = CONTEXT
        self.running = 0
        self.end = json.loads((folder / "config.json").read_text())["eos_token_id"]
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    @property
    def behaviour(self) -> str:
        """Return its present behaviour."""
        file = self.folder / "behaviour"
        return file.read_text() if file.exists() else ""

    async def health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    async def models(self, request: web.Request) -> web.Response:
        listed: list[dict[str, Any]] = [
            {"id": "model", "root": "org/model", "parent": None, "max_model_len": self.context},
            {"id": "lora", "root": "org/lora", "parent": "model"},
        ]
        if self.behaviour == "two":
            listed.append({"id": "other", "root": "org/other", "max_model_len": CONTEXT})
        return web.json_response({"object": "list", "data": listed})

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.behaviour == "no tokenize":
            return web.json_response({"detail": "Not Found"}, status=404)
        ids = self._ids(body["prompt"])
        return web.json_response({"tokens": ids[::-1] if self.behaviour == "words" else ids})

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        note(self.folder, body)
        if self.publisher is not None:
            await self.publisher.publish(self.publisher.cache.read(body["prompt"]))
        if self.behaviour == "mute":
            await asyncio.Event().wait()
        if self.behaviour == "refuse":
            return web.json_response({"error": {"message": "not today"}}, status=400)
        if self.behaviour == "few" and body.get("logprobs", 0) > 5:
            return web.json_response({"error": {"message": "at most 5 logprobs"}}, status=400)
        if self.behaviour == "xgrammar" and "structured_outputs" in body:
            return web.json_response({"error": {"message": "Invalid grammar"}}, status=400)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        self.running += 1
        try:
            async for item in self._items(body):
                await response.write(b"data: " + json.dumps(item).encode() + b"\n\n")
            if self.behaviour in ("cut", "half"):
                request.transport.close() if request.transport else None
                return response
            await response.write(b"data: [DONE]\n\n")
        except (ConnectionError, asyncio.CancelledError):
            note(self.folder, "left")
            raise
        finally:
            self.running -= 1
        return response

    async def _items(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        if self.behaviour == "error":
            yield {"error": {"message": "Grammar error: unknown name", "code": 400}}
            return
        ids = await self._reply(body)
        if self.behaviour == "garbled":
            yield {"choices": [{"token_ids": "none"}]}
            return
        if self.behaviour == "abort":
            yield {"choices": [{"token_ids": [], "finish_reason": "abort"}]}
            return
        made = ids[: body["max_tokens"]]
        if self.behaviour == "half":
            made = made[:2]
        if self.behaviour == "together":
            yield self._chunk(body, made, self._reason(made))
        else:
            for index, id in enumerate(made):
                last = index == len(made) - 1 and self.behaviour not in ("cut", "half")
                yield self._chunk(body, [id], self._reason(made) if last else None)
        while self.behaviour == "endless":
            yield self._chunk(body, [ids[0]], None)
            await asyncio.sleep(0.001)  # as fast as a model
        if self.behaviour not in ("cut", "half"):
            details = {"cached_tokens": 2}
            yield {
                "choices": [],
                "usage": {"completion_tokens": len(made), "prompt_tokens_details": details},
            }

    async def _reply(self, body: dict[str, Any]) -> list[int]:
        """Return the tokens of the whole reply, once they may be made."""
        while self.behaviour == "hold":  # noqa: ASYNC110 - a file, of which nothing tells
            await asyncio.sleep(0.005)
        if self.behaviour.startswith("say "):
            return [*self._ids(self.behaviour[4:]), self.end]
        grammar = body.get("structured_outputs", {}).get("grammar", "")
        if (sign := _CHARACTER.fullmatch(grammar)) and self.behaviour != "free":
            return self._ids(chr(int(sign.group(1), 16)))
        return body["prompt"] if body["min_tokens"] else [*body["prompt"], self.end]

    def _reason(self, made: list[int]) -> str:
        return "stop" if self.end in made else "length"

    def _chunk(self, body: dict[str, Any], ids: list[int], reason: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"text": "", "finish_reason": reason}
        if self.behaviour != "no ids":
            choice["token_ids"] = ids
        if "logprobs" in body:
            others = {f"token_id:{5 + n}": -0.5 - n for n in range(body["logprobs"])}
            choice["logprobs"] = {
                "tokens": [f"token_id:{id}" for id in ids],
                "token_logprobs": [-2.0 for _ in ids],
                "top_logprobs": [{f"token_id:{id}": -2.0, **others} for id in ids],
            }
        return {"choices": [choice]}


def note(folder: Path, what: object) -> None:
    """Keep what was asked for."""
    with (folder / "asked.jsonl").open("a") as file:
        file.write(json.dumps(what) + "\n")


def runner(server: Server) -> web.AppRunner:
    """The server as an application; vLLM guards what lies under /v1, and nothing else."""

    @web.middleware
    async def with_key(request: web.Request, handler: Any) -> web.StreamResponse:
        guarded = server.key is not None and request.path.startswith("/v1")
        if guarded and request.headers.get("authorization") != f"Bearer {server.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    application = web.Application(middlewares=[with_key])
    application.router.add_get("/health", server.health)
    application.router.add_get("/version", server.version)
    application.router.add_get("/v1/models", server.models)
    application.router.add_post("/tokenize", server.tokenize)
    application.router.add_post("/v1/completions", server.completions)
    return web.AppRunner(
        application, handle_signals=False, shutdown_timeout=0.1, handler_cancellation=True
    )


@asynccontextmanager
async def listening(
    server: Server, port: int = 0, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """The server at a port of the loopback, in this process; leaving cuts what runs."""
    running = runner(server)
    await running.setup()
    try:
        await web.TCPSite(running, host, port, ssl_context=tls, reuse_address=True).start()
        yield running.addresses[0][1]
    finally:
        await running.cleanup()


async def serve(server: Server, place: str, events: dict[str, str]) -> None:
    """Listen until killed."""
    running = runner(server)
    await running.setup()
    async with AsyncExitStack() as there:
        if events:
            server.publisher = Publisher(EngineCache("0.32"))
            bound = server.publisher.bound(events["endpoint"], events["replay_endpoint"])
            await there.enter_async_context(bound)
        await web.UnixSite(running, place).start()
        await asyncio.Event().wait()


def main() -> None:
    """Be ``vllm serve FOLDER --uds PLACE ...``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--uds")
    parser.add_argument("--kv-events-config", type=json.loads, default={})
    told, _ = parser.parse_known_args()
    note(told.folder, sys.argv[1:])
    server = Server(told.folder, os.environ.get("VLLM_API_KEY"))
    if server.behaviour == "no load":
        sys.stderr.write(
            "(EngineCore) ERROR [core.py:9] ValueError: No available memory for the cache blocks.\n"
            "RuntimeError: Engine core initialization failed. See root cause above.\n"
        )
        sys.exit(1)
    with (told.folder / "devices").open("a") as file:
        file.write(f"{os.environ.get('CUDA_VISIBLE_DEVICES')}\n")
    # As vLLM has workers; this one would outlive everybody.
    worker = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    (told.folder / "processes").write_text(f"{os.getpid()} {worker.pid}")
    if server.behaviour == "silent":
        worker.wait()
    asyncio.run(serve(server, told.uds, told.kv_events_config))


if __name__ == "__main__":
    main()
