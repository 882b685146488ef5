"""The models that ``serve`` has by name: those that it is given, or all of the cache."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import structs

from causerie.cli.command import Engine, WrongUsage, library
from causerie.cli.serve import chosen_models
from causerie.composition.engine_makers import engine_for, weights_cache
from causerie.engines.weights.reference import Reference
from causerie.settings.doors import door_slug
from causerie.settings.tree import DEFAULT_MODEL, ModelSettings, Settings

_LONGEST = 128  # characters of a name of a model
_NAME = re.compile(rf"(?=.{{1,{_LONGEST}}}$)(hf|pypi):[a-zA-Z0-9._:/-]+")  # as requests may have it


def served_models(
    settings: Settings, refs: Sequence[str], id: str | None, only: list[str] | None, engine: Engine
) -> tuple[ModelSettings, ...]:
    """Return the models to serve: those that are named, or all configured, and cached ones.

    ``refs`` and ``only`` name models; without either, those of the cache are added if it is served.
    A model that is not configured is loaded when a request names it, and unloaded when it is idle,
    unless it is the only one that is named.
    """
    if len(refs) < 2:
        models = chosen_models(settings, refs[0] if refs else None, id, only, engine)
        if refs or only or not settings.weights.serve:
            return models
        configured = () if models == (DEFAULT_MODEL,) else models
        on_demand = _select_unconfigured_models(settings, _list_cached_models(settings), configured)
        return (*configured, *on_demand) or models
    if id is not None:
        raise WrongUsage("--id names the model of one REF, and there are several")
    named = [chosen_models(settings, ref, None, only, engine)[0] for ref in refs]
    filed = {model.id for model in settings.models if model != DEFAULT_MODEL}
    configured = tuple(model for model in named if model.id in filed)
    return (*configured, *_select_unconfigured_models(settings, named, configured))


def cached_ids(settings: Settings) -> Mapping[str, str]:
    """Return the references of the weights in the cache, by the ids that they are served with."""
    found = _select_unconfigured_models(settings, _list_cached_models(settings), ())
    return {model.id: model.ref or "" for model in found}


def _list_cached_models(settings: Settings) -> Iterator[ModelSettings]:
    known = library()
    for weights in weights_cache(settings).every():
        reference, path = Reference.parse(weights.ref), weights.path
        if path.is_dir() and not any(path.glob("*.safetensors")) and not any(path.glob("*.xml")):
            continue  # a tokenizer, for a model that others run
        model = ModelSettings(id=known.id_of(reference), ref=weights.ref, engine=engine_for([path]))
        if _get_weights_and_engine(model) == _get_weights_and_engine(DEFAULT_MODEL):
            model = DEFAULT_MODEL  # which keeps its engine after it was fetched at the first start
        ref = model.ref or ""
        repository = [ref] if _NAME.fullmatch(ref) else []
        yield structs.replace(model, aliases=(*known.names_of(reference), *repository))


def _select_unconfigured_models(
    settings: Settings, models: Iterable[ModelSettings], configured: Sequence[ModelSettings]
) -> Iterator[ModelSettings]:
    refs = {_get_weights_and_engine(model) for model in configured if model.ref}
    names = {name for model in configured for name in (model.id, door_slug(model), *model.aliases)}
    for model in models:
        if _get_weights_and_engine(model) in refs:
            continue
        refs.add(_get_weights_and_engine(model))
        id = next(
            one
            for one in _propose_model_ids(model)
            if not names & {one, door_slug(structs.replace(model, id=one))}
        )
        aliases = tuple(name for name in model.aliases if name not in names and name != id)
        idle = settings.engines.keep_alive_seconds
        found = structs.replace(model, id=id, aliases=aliases, idle_unload_seconds=idle)
        names |= {id, door_slug(found), *aliases}
        yield found


# What two quantizations of a repository are called is told apart by their own names, or numbers.
def _propose_model_ids(model: ModelSettings) -> Iterator[str]:
    yield model.id
    wanted = Reference.parse(model.ref or "").wanted
    if wanted is not None:
        name = wanted.lower().removesuffix(".gguf")
        yield re.sub(r"[^a-z0-9._-]+", "-", f"{model.id}-{name}")[:_LONGEST]
    yield from (f"{model.id}-{number}" for number in itertools.count(2))


def _get_weights_and_engine(model: ModelSettings) -> tuple[str, str]:
    return str(Reference.parse(model.ref or "").settled), model.engine
