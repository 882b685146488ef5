"""A background service that keeps models loaded between calls of ``causerie run``.

It serves all models of the cache, or one file, at a loopback port. The program that it runs is
this module, which reads the settings from stdin. Commands find it by its control socket, as every
service of this user, and its key in a file beside that, so that no other user can ask it. It
unloads a model after ``engines.keep_alive_seconds``, and ends soon after the last one. Where
nothing is to be kept, the same program ends with its command: when stdin does.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec
from filelock import FileLock, Timeout
from msgspec import structs
from rich.console import Console

from causerie.cli.announcement import DownloadBar, LogAnnouncer
from causerie.cli.cached_models import served_models
from causerie.cli.command import CommandFailed, library
from causerie.cli.serve import run_on_loop
from causerie.cli.services import Service, runtime_folder_of_user, services
from causerie.composition.app import run_service
from causerie.composition.control import KEY_SUFFIX
from causerie.composition.engine_makers import fetch_weights
from causerie.composition.reloading import ReloadOutcome
from causerie.engines.weights.reference import Kind, Reference
from causerie.observe.logging import configure
from causerie.settings.entries import Entry
from causerie.settings.environment import CLIENT_KEY, runtime_folder, state_folder, variables
from causerie.settings.load import Loaded
from causerie.settings.tree import DEFAULT_MODEL, ModelSettings, ServerSettings, Settings

_KEPT, _ALONE = "background", "run"  # services, and their log files
_START_SECONDS = 120.0  # of an interpreter on a machine that is busy
_LOCK_SECONDS = _START_SECONDS + 60.0  # a start, and what another command asks the service
_RELOAD_SECONDS = 60.0
_LOOK_SECONDS = 0.05
_MOST_TOLD = 2000  # characters of the log of a service that did not start


def started(settings: Settings, model: ModelSettings) -> tuple[Service, str]:
    """Find or start a background service of a model; return it and the model's id there.

    Weights that are not here are fetched before. Raises :class:`CommandFailed`, and
    :class:`WeightsError` for weights that cannot be had.
    """
    _fetch_weights_into_cache(settings, model)
    ref = model.ref or ""
    is_cached = Reference.parse(ref).kind is not Kind.PATH
    idle = settings.engines.keep_alive_seconds
    alone = (structs.replace(model, idle_unload_seconds=idle),)
    wanted = structs.replace(
        _build_loopback_settings(settings, (DEFAULT_MODEL,) if is_cached else alone),
        weights=structs.replace(settings.weights, serve=is_cached),
    )
    folder = runtime_folder_of_user()
    with _lock_service_start(folder / "background.lock"):
        found = _find_service_ending_outdated(ref, is_cached=is_cached)
        if found is None:
            service, process = _start_service(wanted, folder, _KEPT)
            _ = process.stdin and process.stdin.close()
            found = _require_service_and_model_id(service, ref)
        return found


@contextmanager
def alone(settings: Settings, model: ModelSettings) -> Iterator[Service]:
    """Yield a service of one model, which ends with the block or with this process.

    If it ends before, so does this process. Raises what :func:`started` raises.
    """
    _fetch_weights_into_cache(settings, model)
    folder = runtime_folder_of_user()
    service, process = _start_service(_build_loopback_settings(settings, (model,)), folder, _ALONE)

    def leave(_: int, __: FrameType | None) -> NoReturn:
        sys.exit(128 + signal.SIGTERM)

    before = {each: signal.signal(each, leave) for each in (signal.SIGTERM, signal.SIGCHLD)}
    try:
        yield service
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        _ = process.communicate()  # the end of its stdin stops it


def _build_loopback_settings(settings: Settings, models: tuple[ModelSettings, ...]) -> Settings:
    server = ServerSettings(host="127.0.0.1", port=0)
    return Settings(
        server=server, models=models, engines=settings.engines, weights=settings.weights
    )


@contextmanager
def _lock_service_start(lock_file: Path) -> Iterator[None]:
    try:
        with FileLock(lock_file, timeout=_LOCK_SECONDS, mode=0o600):
            yield
    except Timeout as error:
        raise CommandFailed(
            f"another `causerie run` has been starting a service for {_LOCK_SECONDS:g} s; try "
            f"again, or end that command: it holds {lock_file}"
        ) from error


def _fetch_weights_into_cache(settings: Settings, model: ModelSettings) -> None:
    if model.ref is None or model.engine not in ("llamacpp", "openvino"):
        return  # others have no weights here, or get them themselves
    with closing(DownloadBar(Console(stderr=True))) as bar:
        _ = asyncio.run(fetch_weights(settings, model.ref, bar, model.engine))


# One that this version has started, or any other one that serves the cache.
def _find_service_ending_outdated(model_ref: str, *, is_cached: bool) -> tuple[Service, str] | None:
    for service in services():
        if service.facts.background and service.outdated:
            service.end()
        elif is_cached and service.facts.serves_cache:
            _ = service.ask("reload", ReloadOutcome, _RELOAD_SECONDS)
            return _require_service_and_model_id(service.again(), model_ref)
        elif service.facts.background and service.models(model_ref, library()):
            return _require_service_and_model_id(service, model_ref)
    return None


def _require_service_and_model_id(service: Service, model_ref: str) -> tuple[Service, str]:
    for model in service.models(model_ref, library()):
        return service, model.id
    raise CommandFailed(f"the service at {service.facts.address} does not find {model_ref}")


def _start_service(
    settings: Settings, working_folder: Path, lifetime_mode: str
) -> tuple[Service, subprocess.Popen[bytes]]:
    state = state_folder(variables())
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = state / f"{lifetime_mode}.log"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as log:
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", "causerie.cli.background", lifetime_mode),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=working_folder,
            env={name: text for name, text in variables().items() if name != CLIENT_KEY},
            start_new_session=True,  # it outlives the terminal
        )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(settings) + b"\n")
    process.stdin.flush()
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        for service in services():
            if service.facts.pid == process.pid:
                return service, process
        time.sleep(_LOOK_SECONDS)
    process.kill()
    told = path.read_text("utf-8", "replace").strip()[-_MOST_TOLD:]
    raise CommandFailed(f"the service did not start; {path} says: {told or 'nothing'}")


@contextmanager
def _hold_key_file_and_add_key(settings: Settings) -> Iterator[Settings]:
    """Yield the settings with a key, which a file beside the socket of this process holds."""
    key = secrets.token_urlsafe(32)
    path = runtime_folder(variables()) / f"{os.getpid()}{KEY_SUFFIX}"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        _ = file.write(key)
    try:
        keys = (f"run:{sha256(key.encode()).hexdigest()}",)
        server = structs.replace(settings.server, keys=keys)
        doors = tuple(structs.replace(door, keys=keys) for door in settings.doors)
        yield structs.replace(settings, server=server, doors=doors)
    finally:
        path.unlink(missing_ok=True)


def main() -> None:
    with _hold_key_file_and_add_key(
        msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)
    ) as settings:
        _serve_until_stopped(settings, kept=sys.argv[1] == _KEPT)


def _serve_until_stopped(config: Settings, *, kept: bool) -> None:

    def read(_: Sequence[Entry] = (), __: str | None = None) -> Loaded:
        settings = config
        if config.weights.serve:
            settings = structs.replace(config, models=served_models(config, (), None, None, None))
        return Loaded(settings, background=kept)

    async def serve() -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            loop.remove_reader(sys.stdin)
            os.kill(os.getpid(), signal.SIGTERM)

        if not kept:
            loop.add_reader(sys.stdin, stop)
        announcer = LogAnnouncer(config, Console(stderr=True))
        await run_service(await asyncio.to_thread(read), read, announcer)

    configure("info", "json")
    run_on_loop(serve())


if __name__ == "__main__":
    main()
