"""The composition root: builds every part from the settings, starts and stops them.

The one place that names concrete engines and hands settings to those who need
them. Nothing here decides anything about a request.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog
from msgspec import structs

from causerie.composition.control import answering
from causerie.composition.engine_recipe import engine_recipe
from causerie.composition.entries import checked_with, warn_of_unknown
from causerie.composition.reloading import Reloading
from causerie.composition.replicas import parts_of, replicated
from causerie.composition.service import listen, service
from causerie.composition.signals import hangups, reloaded
from causerie.composition.startup import CannotStart, StartWatcher, bound_sockets, run
from causerie.composition.worker_place import (
    WorkerAnnouncer,
    WorkerPlace,
    following_supervisor,
)
from causerie.edge.ownership import owned
from causerie.engines.base import EngineFailed
from causerie.engines.fleet import Fleet, FleetEntry, ManagedEngine
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions, available_memory
from causerie.engines.machine_part import MachinePart
from causerie.engines.openvino.engine import OpenVinoEngine
from causerie.engines.openvino.options import OpenVinoOptions
from causerie.engines.registry import engine_factory
from causerie.engines.weights.cache import Cache, CachedWeights
from causerie.engines.weights.errors import BadReference, Offline, WeightsError
from causerie.engines.weights.folder import OPENVINO_MODEL
from causerie.engines.weights.options import HubOptions
from causerie.engines.weights.progress import Progress, Silent
from causerie.engines.weights.reference import Kind, Reference
from causerie.engines.weights.removal import remove
from causerie.settings import LlamaCpp, Loaded, ModelSettings, OpenVino, Settings
from causerie.settings.addresses import has_accounts
from causerie.settings.credentials import Credentials, read_credentials
from causerie.settings.entries import ReadWith
from causerie.settings.environment import runtime_folder, variables
from causerie.settings.notes import notes

if TYPE_CHECKING:
    from causerie.accounts.entry import StoredEntry

_SLOTS_BEFORE_LOADING = 8  # the engine says how many, once it is there
_REACH_SECONDS = 5.0  # a server of others is away or is there: who waits longer has other targets

log = structlog.get_logger(__name__)


class StartAnnouncer(StartWatcher, Protocol):
    """Observer of the start; ``download`` reports progress of files that are fetched for it.

    ``settings`` are those in force, also after a reload that came before all was ready.
    """

    settings: Settings

    def first_link(self, token: str) -> None:
        """There is nobody yet; this token makes the account of the owner, once."""

    @property
    def download(self) -> Progress: ...


async def run_worker(loaded: Loaded, read: ReadWith, place: WorkerPlace) -> None:
    """Serve as one of several workers until a signal comes, or the supervisor has ended."""

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    async with following_supervisor(place, stop) as report:
        await run_service(loaded, read, WorkerAnnouncer(loaded.settings, report), place)


async def run_service(
    loaded: Loaded, read: ReadWith, watcher: StartAnnouncer, place: WorkerPlace | None = None
) -> None:
    """Serve until a signal; ``read`` reads the settings anew, with entries of the database.

    ``place`` is that of this process, if there are several workers.

    Raises :class:`CannotStart`, :class:`SettingsError` for secrets and files
    that cannot be had, or :class:`WeightsError` where no model could be loaded
    for want of weights.
    """
    with hangups() as hangup:
        loaded, credentials, stored = await _with_entries(loaded, read)
        settings = watcher.settings = loaded.settings
        for note in notes(settings):
            log.warning("settings", note=note)
        listening = listen(settings.server)
        makers = _Makers(settings, credentials, watcher)
        budget = settings.engines.memory_budget_bytes
        with ExitStack() as taken:
            bound = bound_sockets(settings, taken) if place is None else place.bound()
            address = bound.service
            async with (
                Fleet(makers.entries(), memory_budget=budget) as fleet,
                service(settings, fleet, credentials, place) as running,
            ):
                first = place is None or place.number == 1
                if first and (link := await running.first_link()) is not None:
                    watcher.first_link(link.token)
                reloading = Reloading(
                    loaded, partial(checked_with, read), running, makers.renew(fleet)
                )
                running.configuration, reloading.entries = reloading, stored
                reloading.address = "{}:{}".format(*address.getsockname()[:2])
                name = None if place is None else place.control_socket
                async with (
                    answering(runtime_folder(variables()), reloading.answer, name),
                    owned(reloaded(hangup, reloading.reload)),
                    owned(reloading.follow(running.entries_changed)),
                ):
                    try:
                        preload = _preloaded(settings)
                        await run(running.edge, fleet, preload, listening, watcher, bound)
                    except CannotStart as failure:
                        raise makers.missing or failure from failure


async def _with_entries(
    loaded: Loaded, read: ReadWith
) -> tuple[Loaded, Credentials, Sequence[StoredEntry]]:
    """Return the settings with the entries that operators have made, all secrets, and those."""
    credentials = await asyncio.to_thread(read_credentials, loaded)
    if not has_accounts(loaded.settings):
        return loaded, credentials, ()
    # Imported here: what accounts need takes half of all memory.
    from causerie.composition.account_backend import stored_entries  # noqa: PLC0415 - see above

    stored = await stored_entries(loaded.settings.store, credentials.store)
    if not stored:
        return loaded, credentials, ()
    warn_of_unknown(stored)
    loaded, credentials = await asyncio.to_thread(checked_with, read, stored, loaded.text)
    return loaded, credentials, stored


async def fetch_weights(
    settings: Settings, ref: str, progress: Progress, engine: str = "llamacpp"
) -> CachedWeights:
    """The weights as ``engine`` loads them, on this machine, fetched if needed.

    Raises :class:`WeightsError`.
    """
    model = ModelSettings(id=ref, ref=ref, engine=engine)
    return await _fetched(settings, model, progress, _hub(settings))


async def weights_here(settings: Settings, model: ModelSettings) -> CachedWeights | None:
    """Return the model's weights if they are on this machine already; no network is used."""
    try:
        return await _fetched(settings, model, Silent(), HubOptions(offline=True))
    except WeightsError:
        return None


async def _fetched(
    settings: Settings, model: ModelSettings, progress: Progress, hub: HubOptions
) -> CachedWeights:
    """The weights of a model of ours; of one that others serve, the rest of its folder."""
    from causerie.engines.weights import fetching, folder_fetching  # noqa: PLC0415 - an HTTP client: 5 MB, if asked

    fetch = fetching.fetch
    if model.engine == "vllm":
        fetch = partial(folder_fetching.fetch_folder, weights=not model.vllm.elsewhere)
    elif model.engine == "openvino":
        fetch = folder_fetching.fetch_for_openvino
    if model.ref is None:
        raise BadReference(f"the model {model.id} names no weights; set `ref`")
    return await fetch(model.ref, _cache_folder(settings), progress=progress, hub=hub)


def engine_of(settings: Settings, ref: str) -> str:
    """Return the engine that loads the weights of ``ref``, by what is on this machine.

    llama.cpp, unless they are a model folder. No network is used.
    """
    reference = Reference.parse(ref)
    if reference.kind is Kind.PATH:
        paths = [reference.path]
    else:
        paths = [one.path for one in cached_weights(settings) if one.ref == str(reference)]
    if not paths or not all(path.is_dir() for path in paths):
        return "llamacpp"
    return "openvino" if any((path / OPENVINO_MODEL).is_file() for path in paths) else "vllm"


def cached_weights(settings: Settings) -> tuple[CachedWeights, ...]:
    """Everything in the cache."""
    return Cache(_cache_folder(settings)).every()


async def remove_weights(settings: Settings, weights: CachedWeights) -> None:
    """Delete weights from the cache. Raises :class:`WeightsError`."""
    await remove(_cache_folder(settings), weights)


def _cache_folder(settings: Settings) -> Path:
    if settings.weights.cache is None:
        raise ValueError("settings come from causerie.settings.load, which fills the cache folder")
    return Path(settings.weights.cache)


def _hub(settings: Settings) -> HubOptions:
    weights = settings.weights
    return HubOptions(endpoint=weights.hub_endpoint, token=weights.token, offline=weights.offline)


def _preloaded(settings: Settings) -> list[str]:
    alone = len(settings.models) == 1
    return [
        model.id for model in settings.models if (alone if model.preload is None else model.preload)
    ]


def _llamacpp_options(settings: Settings, llamacpp: LlamaCpp, part: MachinePart) -> LlamaCppOptions:
    plain = {**structs.asdict(llamacpp), "prompt_cache": llamacpp.prompt_cache_bytes}
    del plain["replicas"], plain["devices"]  # of which `part` is one
    return LlamaCppOptions(**plain, part=part)


def _openvino_options(openvino: OpenVino, part: MachinePart) -> OpenVinoOptions:
    return OpenVinoOptions(
        openvino.context, openvino.parallel, openvino.threads, part, openvino.environment
    )


class _Makers:
    """Factory of each model's engine. ``missing`` is why weights could not be had last."""

    def __init__(
        self, settings: Settings, credentials: Credentials, watcher: StartAnnouncer
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._watcher = watcher
        self._one_download = asyncio.Lock()
        self.missing: WeightsError | None = None

    def entries(self, preload: Sequence[str] = ()) -> Sequence[FleetEntry]:
        """All models of the settings; the fleet loads those of ``preload`` at once."""
        return [self._entry(model, model.id in preload) for model in self._settings.models]

    def renew(self, fleet: Fleet) -> Callable[[Settings, Credentials], None]:
        """Return the function that gives the fleet the models of other settings."""

        def renew(settings: Settings, credentials: Credentials) -> None:
            self._settings = self._watcher.settings = settings
            self._credentials = credentials
            fleet.replace(
                self.entries(_preloaded(settings)),
                memory_budget=settings.engines.memory_budget_bytes,
            )

        return renew

    def _entry(self, model: ModelSettings, preload: bool) -> FleetEntry:
        async def make() -> ManagedEngine:
            if model.engine == "llamacpp":
                return await self._llamacpp(model)
            if model.engine == "openvino":
                return await self._openvino(model)
            if model.engine == "vllm":
                return await self._vllm(model)
            try:
                return engine_factory(model.engine)(model.id, model.ref, model.options)
            except ValueError as error:
                raise EngineFailed(f"the options of {model.id} are wrong: {error}") from error

        def renew(engine: ManagedEngine) -> None:
            from causerie.composition.vllm_engines import renew_members  # noqa: PLC0415 - as below

            renew_members(engine, model.vllm)

        return FleetEntry(
            model=model.id,
            make=make,
            slots=model.parallel or _SLOTS_BEFORE_LOADING,
            idle_seconds=model.idle_unload_seconds,
            wait_seconds=self._wait_seconds(model),
            preload=preload,
            recipe=engine_recipe(self._settings, self._credentials, model),
            renew=renew if model.vllm.addresses else None,
        )

    def _wait_seconds(self, model: ModelSettings) -> float:
        waits = self._settings.engines.load_wait_seconds
        return min(waits, _REACH_SECONDS) if model.vllm.elsewhere else waits

    async def _llamacpp(self, model: ModelSettings) -> ManagedEngine:
        weights, settings = await self._weights(model), self._settings

        def make(part: MachinePart) -> LlamaCppEngine:
            return LlamaCppEngine(
                model.id,
                weights.path,
                _llamacpp_options(settings, model.llamacpp, part),
                ref=model.ref or "",
                load_seconds=settings.engines.load_seconds,
            )

        parts = parts_of(model.llamacpp.replicas, model.llamacpp.devices)
        return await asyncio.to_thread(replicated, model.id, parts, make)

    async def _openvino(self, model: ModelSettings) -> ManagedEngine:
        weights, settings = await self._weights(model), self._settings

        def make(part: MachinePart) -> OpenVinoEngine:
            return OpenVinoEngine(
                model.id,
                weights.path,
                _openvino_options(model.openvino, part),
                available_memory() // part.of,
                ref=model.ref or "",
                load_seconds=settings.engines.load_seconds,
            )

        parts = parts_of(model.openvino.replicas)
        return await asyncio.to_thread(replicated, model.id, parts, make)

    async def _vllm(self, model: ModelSettings) -> ManagedEngine:
        # Imported here: its tokenizer's library takes memory, which other engines do not need.
        from causerie.composition.vllm_engines import vllm_engine  # noqa: PLC0415 - see above

        weights = await self._weights(model)
        key = self._credentials.models.get(model.id)
        return await vllm_engine(model, weights.path, key, self._settings.engines.load_seconds)

    async def _weights(self, model: ModelSettings) -> CachedWeights:
        """One download at a time: it has the whole line, and there is one bar.

        Weights that are on this machine wait for none.
        """
        try:
            weights = await self._found_or_fetched(model)
        except WeightsError as error:
            self.missing = error
            raise EngineFailed(str(error)) from error
        await asyncio.to_thread(weights.note_use)
        return weights

    async def _found_or_fetched(self, model: ModelSettings) -> CachedWeights:
        settings = self._settings
        with suppress(Offline):
            return await _fetched(settings, model, Silent(), HubOptions(offline=True))
        async with self._one_download:
            return await _fetched(settings, model, self._watcher.download, _hub(settings))
