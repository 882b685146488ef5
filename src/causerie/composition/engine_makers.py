"""Fetches the weights and makes the engines that the settings name."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs

from causerie.composition.providers import tls_digest
from causerie.composition.startup import StartAnnouncer
from causerie.engines.base import EngineFailed
from causerie.engines.fleet import Fleet, FleetEntry, ManagedEngine
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions, available_memory
from causerie.engines.machine import MachinePart
from causerie.engines.openvino.engine import OpenVinoEngine, OpenVinoOptions
from causerie.engines.pool.pool import EnginePool
from causerie.engines.registry import engine_factory
from causerie.engines.supervised import SupervisedEngine
from causerie.engines.weights import HubOptions, Progress, Silent
from causerie.engines.weights.cache import Cache, CachedWeights
from causerie.engines.weights.errors import BadReference, Offline, WeightsError
from causerie.engines.weights.folder import OPENVINO_MODEL
from causerie.engines.weights.reference import Kind, Reference
from causerie.protocol.alike import alike
from causerie.settings.credentials import Credentials
from causerie.settings.tree import ModelSettings, Settings


def engine_recipe(settings: Settings, credentials: Credentials, model: ModelSettings) -> object:
    """Return what a model's engine is made from; a reload keeps an engine with an equal recipe."""
    engines, vllm = settings.engines, model.vllm
    # Only a digest: no secret is kept to compare.
    secrets = hashlib.sha256(credentials.models.get(model.id, "").encode())
    with suppress(OSError):  # whoever makes the engine says what is wrong with a file
        secrets.update(tls_digest(vllm.tls))
    if vllm.addresses:  # a pool stays the same whoever is in it
        vllm = structs.replace(vllm, addresses=(str(vllm.encrypted),))
    return (
        model.engine, model.operation, model.ref, model.llamacpp, model.openvino, vllm,
        model.options, settings.weights, engines.load_seconds, secrets.digest(),
    )  # fmt: skip


def parts_of(replicas: int, devices: Sequence[str] = ()) -> Sequence[MachinePart]:
    """Return the part of the machine that each replica has, on its ``devices`` if any are named."""
    named = devices or (None,) * replicas
    return [MachinePart(number, replicas, each) for number, each in enumerate(named)]


def replicated(
    model: str, parts: Sequence[MachinePart], make: Callable[[MachinePart], SupervisedEngine[Any]]
) -> SupervisedEngine[Any] | EnginePool:
    """Return an engine for the only part, or a pool of an engine per part, not started. Blocks."""
    engines = {f"replica-{part.number + 1}": make(part) for part in parts}
    if len(engines) == 1:
        return next(iter(engines.values()))
    return EnginePool(model, list(engines), lambda address: engines[address.url])


_SLOTS_BEFORE_LOADING = 8  # the engine says how many, once it is there
_REACH_SECONDS = 5.0  # a server of others is away or is there: who waits longer has other targets


async def fetch_weights(
    settings: Settings, ref: str, progress: Progress, engine: str = "llamacpp"
) -> CachedWeights:
    """Return the weights for ``engine``, fetched if needed. Raises :class:`WeightsError`."""
    model = ModelSettings(id=ref, ref=ref, engine=engine)
    return await _fetch_cached_weights(settings, model, progress, _build_hub_options(settings))


async def weights_here(settings: Settings, model: ModelSettings) -> CachedWeights | None:
    try:
        return await _fetch_cached_weights(settings, model, Silent(), HubOptions(offline=True))
    except WeightsError:
        return None


async def _fetch_cached_weights(
    settings: Settings, model: ModelSettings, progress: Progress, hub: HubOptions
) -> CachedWeights:
    from causerie.engines.weights import fetching  # noqa: PLC0415 - an HTTP client: 5 MB, if asked

    fetch = fetching.fetch
    if model.engine == "vllm":
        fetch = partial(fetching.fetch_folder, weights=not model.vllm.elsewhere)
    elif model.engine == "openvino":
        fetch = fetching.fetch_for_openvino
    if model.ref is None:
        raise BadReference(f"the model {model.id} names no weights; set `ref`")
    return await fetch(model.ref, weights_cache(settings).folder, progress=progress, hub=hub)


def engine_of(settings: Settings, ref: str) -> str:
    """Return the name of the engine for ``ref``, by the kind of its weights on this machine."""
    reference = Reference.parse(ref)
    if reference.kind is Kind.PATH:
        paths = [reference.path]
    else:
        cached = weights_cache(settings).every()
        paths = [one.path for one in cached if one.ref == str(reference)]
    return engine_for(paths)


def engine_for(paths: Sequence[Path]) -> str:
    """Return the name of the engine that runs the weights at these paths."""
    if not paths or not all(path.is_dir() for path in paths):
        return "llamacpp"
    return "openvino" if any((path / OPENVINO_MODEL).is_file() for path in paths) else "vllm"


def weights_cache(settings: Settings) -> Cache:
    if settings.weights.cache is None:
        raise ValueError("settings come from causerie.settings.load, which fills the cache folder")
    return Cache(Path(settings.weights.cache))


def _build_hub_options(settings: Settings) -> HubOptions:
    weights = settings.weights
    return HubOptions(endpoint=weights.hub_endpoint, token=weights.token, offline=weights.offline)


def preloaded(settings: Settings) -> list[str]:
    alone = len(settings.models) == 1
    return [
        model.id for model in settings.models if (alone if model.preload is None else model.preload)
    ]


class EngineMakers(Struct):
    """Makes the engine of each model; ``missing`` is the last failure to get weights."""

    _settings: Settings
    _credentials: Credentials
    _watcher: StartAnnouncer
    _download_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    reclaimable: Callable[[], int] = lambda: 0
    """Returns the bytes of models that give way to the one that is made."""
    missing: WeightsError | None = None

    def entries(self, preload: Sequence[str] = ()) -> Sequence[FleetEntry]:
        return [self._fleet_entry(model, model.id in preload) for model in self._settings.models]

    def renew(self, fleet: Fleet, settings: Settings, credentials: Credentials) -> None:
        """Take over other settings, and give their models to the fleet."""
        self._settings = self._watcher.settings = settings
        self._credentials = credentials
        # The model that a start fetches into an empty cache is not wanted where all were deleted.
        preload = () if settings.weights.serve else preloaded(settings)
        fleet.replace(self.entries(preload), memory_budget=settings.engines.memory_budget_bytes)

    def _fleet_entry(self, model: ModelSettings, preload: bool) -> FleetEntry:
        async def make() -> ManagedEngine:
            known = {
                "llamacpp": self._make_llamacpp_engine,
                "openvino": self._make_openvino_engine,
                "vllm": self._make_vllm_engine,
            }
            if model.engine in known:
                return await known[model.engine](model)
            try:
                return engine_factory(model.engine)(model.id, model.ref, model.options)
            except ValueError as error:
                raise EngineFailed(f"the options of {model.id} are wrong: {error}") from error

        def renew(engine: ManagedEngine) -> None:
            if isinstance(engine, EnginePool):
                engine.renew(model.vllm.addresses)

        waits = self._settings.engines.load_wait_seconds
        return FleetEntry(
            model=model.id,
            make=make,
            slots=model.parallel or _SLOTS_BEFORE_LOADING,
            idle_seconds=model.idle_unload_seconds,
            wait_seconds=min(waits, _REACH_SECONDS) if model.vllm.elsewhere else waits,
            preload=preload,
            recipe=engine_recipe(self._settings, self._credentials, model),
            renew=renew if model.vllm.addresses else None,
        )

    async def _make_llamacpp_engine(self, model: ModelSettings) -> ManagedEngine:
        weights, seconds = await self._fetch_cache_entry(model), self._settings.engines.load_seconds
        known = {"embeddings": model.operation == "embeddings", "spare": self.reclaimable()}

        def make(part: MachinePart) -> LlamaCppEngine:
            options = alike(LlamaCppOptions, model.llamacpp, part=part, **known)
            ref = model.ref or ""
            return LlamaCppEngine(model.id, weights.path, options, ref=ref, load_seconds=seconds)

        parts = parts_of(model.llamacpp.replicas, model.llamacpp.devices)
        return await asyncio.to_thread(replicated, model.id, parts, make)

    async def _make_openvino_engine(self, model: ModelSettings) -> ManagedEngine:
        weights, seconds = await self._fetch_cache_entry(model), self._settings.engines.load_seconds

        def make(part: MachinePart) -> OpenVinoEngine:
            options = alike(OpenVinoOptions, model.openvino, part=part)
            of_engine = (model.id, weights.path, options, available_memory() // part.of)
            return OpenVinoEngine(*of_engine, ref=model.ref or "", load_seconds=seconds)

        parts = parts_of(model.openvino.replicas)
        return await asyncio.to_thread(replicated, model.id, parts, make)

    async def _make_vllm_engine(self, model: ModelSettings) -> ManagedEngine:
        # Imported here: its tokenizer's library takes memory, which other engines do not need.
        from causerie.composition.vllm_engines import vllm_engine  # noqa: PLC0415 - tokenizers: memory, for vLLM alone

        weights = await self._fetch_cache_entry(model)
        key = self._credentials.models.get(model.id)
        return await vllm_engine(model, weights.path, key, self._settings.engines.load_seconds)

    async def _fetch_cache_entry(self, model: ModelSettings) -> CachedWeights:
        # One download at a time: it has all the bandwidth, and there is one bar.
        settings = self._settings
        try:
            try:
                weights = await _fetch_cached_weights(
                    settings, model, Silent(), HubOptions(offline=True)
                )
            except Offline:
                async with self._download_lock:
                    bar, hub = self._watcher.download, _build_hub_options(settings)
                    weights = await _fetch_cached_weights(settings, model, bar, hub)
        except WeightsError as error:
            self.missing = error
            raise EngineFailed(str(error)) from error
        await asyncio.to_thread(weights.note_use)
        return weights
