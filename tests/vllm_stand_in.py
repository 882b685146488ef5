"""A program that is started and spoken to like ``vllm serve``, and misbehaves on demand.

What it answers has the form that vLLM 0.32 answers in. Its model writes the prompt once
more and ends the text. A file ``behaviour`` in the model folder, with one word, makes it
do something else; ``asked.jsonl`` there has what it was asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

KEY = os.environ.get("VLLM_API_KEY")
CONTEXT = 64


class Server:
    """One server; ``end`` is the id of its model's end token."""

    def __init__(self, folder: Path, end: int) -> None:
        self.folder = folder
        self.end = end

    @property
    def behaviour(self) -> str:
        """What it is to do now."""
        file = self.folder / "behaviour"
        return file.read_text() if file.exists() else ""

    async def health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "model", "max_model_len": CONTEXT}]})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        note(self.folder, body)
        if self.behaviour == "refuse":
            return web.json_response({"error": {"message": "not today"}}, status=400)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            async for item in self._items(body):
                await response.write(b"data: " + json.dumps(item).encode() + b"\n\n")
            if self.behaviour == "cut":
                request.transport.close() if request.transport else None
                return response
            await response.write(b"data: [DONE]\n\n")
        except (ConnectionError, asyncio.CancelledError):
            note(self.folder, "left")
            raise
        return response

    async def _items(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        if self.behaviour == "error":
            yield {"error": {"message": "Grammar error: unknown name", "code": 400}}
            return
        ids = body["prompt"] if body["min_tokens"] else [*body["prompt"], self.end]
        if self.behaviour == "garbled":
            yield {"choices": [{"token_ids": "none"}]}
            return
        if self.behaviour == "abort":
            yield {"choices": [{"token_ids": [], "finish_reason": "abort"}]}
            return
        made = ids[: body["max_tokens"]]
        if self.behaviour == "together":
            yield self._chunk(body, made, self._reason(made))
        else:
            for index, id in enumerate(made):
                last = index == len(made) - 1 and self.behaviour != "cut"
                yield self._chunk(body, [id], self._reason(made) if last else None)
        while self.behaviour == "endless":
            yield self._chunk(body, [ids[0]], None)
            await asyncio.sleep(0.001)  # as fast as a model
        if self.behaviour != "cut":
            details = {"cached_tokens": 2}
            yield {
                "choices": [],
                "usage": {"completion_tokens": len(made), "prompt_tokens_details": details},
            }

    def _reason(self, made: list[int]) -> str:
        return "stop" if self.end in made else "length"

    def _chunk(self, body: dict[str, Any], ids: list[int], reason: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"text": "", "token_ids": ids, "finish_reason": reason}
        if "logprobs" in body:
            choice["logprobs"] = {
                "tokens": [f"token_id:{id}" for id in ids],
                "token_logprobs": [-2.0 for _ in ids],
                "top_logprobs": [{f"token_id:{id}": -2.0, "token_id:5": -0.5} for id in ids],
            }
        return {"choices": [choice]}


def note(folder: Path, what: object) -> None:
    """Keep what was asked for."""
    with (folder / "asked.jsonl").open("a") as file:
        file.write(json.dumps(what) + "\n")


@web.middleware
async def with_key(request: web.Request, handler: Any) -> web.StreamResponse:
    """vLLM guards what lies under /v1, and nothing else."""
    wanted = f"Bearer {KEY}"
    if request.path.startswith("/v1") and request.headers.get("authorization") != wanted:
        return web.json_response({"error": "Unauthorized"}, status=401)
    answer: web.StreamResponse = await handler(request)
    return answer


async def serve(server: Server, place: str) -> None:
    """Listen until killed."""
    application = web.Application(middlewares=[with_key])
    application.router.add_get("/health", server.health)
    application.router.add_get("/version", server.version)
    application.router.add_get("/v1/models", server.models)
    application.router.add_post("/v1/completions", server.completions)
    runner = web.AppRunner(application, handle_signals=False)
    await runner.setup()
    await web.UnixSite(runner, place).start()
    await asyncio.Event().wait()


def main() -> None:
    """Be ``vllm serve FOLDER --uds PLACE ...``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--uds")
    told, _ = parser.parse_known_args()
    note(told.folder, sys.argv[1:])
    end = json.loads((told.folder / "config.json").read_text())["eos_token_id"]
    server = Server(told.folder, end)
    if server.behaviour == "no load":
        sys.stderr.write(
            "(EngineCore) ERROR [core.py:9] ValueError: No available memory for the cache blocks.\n"
            "RuntimeError: Engine core initialization failed. See root cause above.\n"
        )
        sys.exit(1)
    # As vLLM has workers; this one would outlive everybody.
    worker = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    (told.folder / "processes").write_text(f"{os.getpid()} {worker.pid}")
    if server.behaviour == "silent":
        worker.wait()
    asyncio.run(serve(server, told.uds))


if __name__ == "__main__":
    main()
