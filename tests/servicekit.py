"""A whole service from a configuration file, run in this process, whose file can be changed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from causerie.composition.app import run_service
from causerie.composition.control import asked, sockets
from causerie.composition.reloading import ReloadOutcome
from causerie.engines.base import EngineStatus
from causerie.engines.weights import Progress, Silent
from causerie.settings.entries import Entry
from causerie.settings.load import Loaded, load
from causerie.settings.tree import Settings

SERVER = "[server]\nport = 0\ndrain_seconds = 0.2\n"


@dataclass
class Seen:
    """An announcer that keeps the address."""

    settings: Settings = Settings()  # noqa: RUF009 - frozen
    download: Progress = field(default_factory=Silent)
    address: asyncio.Future[tuple[str, int]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def loading(self, engines: Sequence[EngineStatus]) -> None:
        pass

    def ready(self, host: str, port: int) -> None:
        self.address.set_result((host, port))

    def first_link(self, token: str) -> None:
        pass

    def stopping(self) -> None:
        pass

    def stop(self) -> None:
        pass


@dataclass
class ServiceView:
    """``root`` is the address without a path; ``runtime`` has the socket of the service."""

    file: Path
    runtime: Path
    root: str
    session: aiohttp.ClientSession
    threads: ThreadPoolExecutor  # of its own: the service needs those of the loop

    def write(self, text: str) -> None:
        """Change the configuration; nothing is reloaded."""
        self.file.write_text(SERVER + text, encoding="utf-8")

    async def reload(self, text: str | None = None) -> ReloadOutcome:
        """Reload as ``causerie reload`` does, after the file has been written."""
        if text is not None:
            self.write(text)
        loop = asyncio.get_running_loop()
        [here] = await loop.run_in_executor(self.threads, sockets, self.runtime)
        return await loop.run_in_executor(
            self.threads, asked, here.path, "reload", ReloadOutcome, 60.0
        )

    async def get(self, path: str, key: str = "", **headers: str) -> tuple[int, Any]:
        """Status and JSON."""
        async with self.session.get(self.root + path, headers=_headers(key, headers)) as response:
            return response.status, await response.json()

    async def models(self, base: str, key: str = "", **headers: str) -> list[str]:
        """Ids that a door shows."""
        status, listed = await self.get(f"{base}/models", key, **headers)
        assert status == 200, listed
        return [entry["id"] for entry in listed["data"]]

    async def ask(
        self, base: str, model: str | None, key: str = "", **fields: Any
    ) -> tuple[int, Mapping[str, str], Any]:
        """Status, headers and JSON of a plain answer."""
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], **fields}
        url = f"{self.root}{base}/chat/completions"
        async with self.session.post(url, json=body, headers=_headers(key, {})) as response:
            return response.status, response.headers, await response.json()

    async def stream(self, base: str, model: str, began: asyncio.Event | None = None) -> str:
        """The text of a streamed answer, which must end as it should."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": True,
        }
        text, done = "", False
        url = f"{self.root}{base}/chat/completions"
        async with self.session.post(url, json=body) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                if line == b"data: [DONE]\n":
                    done = True
                elif line.startswith(b"data: "):
                    chunk = json.loads(line.removeprefix(b"data: "))
                    assert "error" not in chunk, chunk
                    for choice in chunk["choices"]:
                        text += choice["delta"].get("content") or ""
                    if text and began is not None:
                        began.set()
        assert done
        return text


@asynccontextmanager
async def service_view(folder: Path, text: str, **environ: str) -> AsyncIterator[ServiceView]:
    """The service with this configuration; stopped as by a signal."""
    file = folder / "causerie.toml"
    file.write_text(SERVER + text, encoding="utf-8")
    seen = Seen()
    with (
        tempfile.TemporaryDirectory(prefix="c") as short,
        pytest.MonkeyPatch.context() as patch,
        _wakeups_kept(),
    ):
        patch.setenv("XDG_RUNTIME_DIR", short)
        for name, value in environ.items():
            patch.setenv(name, value)

        def read(entries: Sequence[Entry] = (), text: str | None = None) -> Loaded:
            environ = {"XDG_CACHE_HOME": str(folder)}
            return load(file=file, text=text, environ=environ, entries=entries)

        connector = aiohttp.TCPConnector(limit=0)
        async with asyncio.TaskGroup() as group, aiohttp.ClientSession(connector=connector) as http:
            group.create_task(run_service(read(), read, seen))
            root = "http://{}:{}".format(*await seen.address)
            try:
                with ThreadPoolExecutor(16) as threads:
                    yield ServiceView(file, Path(short) / "causerie", root, http, threads)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _wakeups_kept() -> Iterator[None]:
    """Signals wake the loop that they woke before: a service of another loop may run there.

    Two services of one loop would take each other's signals.
    """
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)


def _headers(key: str, more: Mapping[str, str]) -> dict[str, str]:
    bearer = {"authorization": f"Bearer {key}"} if key else {}
    return {**bearer, **more}
