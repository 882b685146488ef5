"""What must hold of endpoints and aliases: addresses, secrets, and targets that are there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from causerie.protocol.image_hosts import is_host
from causerie.protocol.parsing.known import lists, privilege_in
from causerie.protocol.parsing.privileged import PRIVILEGES
from causerie.protocol.parsing.rules import HINTS, HONOURED, REFUSED
from causerie.settings.alias import Alias
from causerie.settings.endpoint import Endpoint, EndpointModel
from causerie.settings.lines import Path as KeyPath
from causerie.settings.problems import Broken
from causerie.settings.reach_rules import address_rules, secret_rules, tls_rules
from causerie.settings.tree import Settings
from causerie.settings.values import PLACES, Secret
from causerie.upstreams.dialect import Dialect
from causerie.upstreams.dialects import DIALECTS
from causerie.upstreams.outgoing import WRITTEN


def endpoint_rules(settings: Settings) -> Iterator[Broken]:
    """Everything that is wrong with endpoints and with what aliases make of them."""
    taken: dict[str, KeyPath] = {}
    for index, endpoint in enumerate(settings.endpoints):
        at: KeyPath = ("endpoints", index)
        other = taken.setdefault(endpoint.name, at)
        if other is not at:
            advice = f'"{endpoint.name}" is taken; names are unique'
            yield Broken((*at, "name"), advice, (*other, "name"))
        yield from _endpoint(at, endpoint)
        for place, model in enumerate(settings.models):
            if model.id.startswith(f"{endpoint.name}/"):
                yield Broken(
                    ("models", place, "id"),
                    f'"{model.id}" could be taken for a model of endpoint "{endpoint.name}"; '
                    "choose another id",
                    (*at, "name"),
                )
    for index, alias in enumerate(settings.aliases):
        yield from _alias(("aliases", index), alias, settings)


def _endpoint(at: KeyPath, endpoint: Endpoint) -> Iterator[Broken]:
    yield from address_rules((*at, "base_url"), endpoint.base_url, "name its key by `key`")
    if isinstance(endpoint.proxy, str):
        advice = f"write where the address is found: {PLACES}"
        yield from address_rules((*at, "proxy"), endpoint.proxy, advice)
    for name, secret in (("key", endpoint.key), ("proxy", endpoint.proxy)):
        if isinstance(secret, Secret):
            yield from secret_rules((*at, name), secret)
    if endpoint.dialect not in DIALECTS:
        near = difflib.get_close_matches(endpoint.dialect, DIALECTS, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(DIALECTS)}"
        yield Broken((*at, "dialect"), f'there is no dialect "{endpoint.dialect}"; {hint}')
    yield from tls_rules((*at, "tls"), endpoint.tls, endpoint.base_url)
    yield from _fields(at, endpoint)
    for host in endpoint.private_image_hosts:
        if not is_host(host):
            yield Broken(
                (*at, "private_image_hosts"),
                f'"{host}" is no name in lower case, suffix like `.corp.example`, address or '
                "network like `10.0.0.0/8`",
            )
    seen: dict[str, int] = {}
    for index, model in enumerate(endpoint.models):
        place: KeyPath = (*at, "models", index)
        first = seen.setdefault(model.id, index)
        if first != index:
            advice = f'"{model.id}" is there already'
            yield Broken((*place, "id"), advice, (*at, "models", first, "id"))
        yield from _parameters(place, model)


def _fields(at: KeyPath, endpoint: Endpoint) -> Iterator[Broken]:
    """Check that listed fields can be passed on, and that the privileged are named as such."""
    dialect = DIALECTS.get(endpoint.dialect)
    for setting in ("passes", "passes_privileged"):
        place: KeyPath = (*at, setting)
        for path in getattr(endpoint, setting):
            privilege = privilege_in(path)
            if (advice := _no_choice(path, dialect)) is not None:
                yield Broken(place, advice, relies_on=((*at, "dialect"),))
            elif setting == "passes" and privilege is not None:
                yield Broken(
                    place,
                    f'"{path}" chooses the {privilege}: {PRIVILEGES[privilege]}; if you accept '
                    "that, move it to `passes_privileged`",
                )
            elif setting == "passes_privileged" and privilege is None:
                yield Broken(place, f'"{path}" is not privileged; move it to `passes`')


def _no_choice(path: str, dialect: Dialect | None) -> str | None:
    """Return why the operator cannot choose whether this field is passed on, if so."""
    name = path.partition(".")[0]
    if name in REFUSED:
        return f'"{path}" is refused at every door: {REFUSED[name]}'
    known = dialect.accepts | dialect.renames.keys() if dialect is not None else frozenset()
    if path in WRITTEN or path in known:
        return f'"{path}" is sent as the dialect says; leave it out'
    if path not in HONOURED | HINTS and dialect is not None and lists(dialect.lists, path):
        return f'"{path}" is sent already; leave it out'
    return None


def _parameters(at: KeyPath, model: EndpointModel) -> Iterator[Broken]:
    known = HONOURED | HINTS
    for name in model.supported_parameters or ():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            yield Broken(
                (*at, "supported_parameters"), f'"{name}" is no parameter of a request{hint}'
            )


def _alias(at: KeyPath, alias: Alias, settings: Settings) -> Iterator[Broken]:
    if not alias.targets:
        yield Broken((*at, "targets"), "is empty; name at least one who answers")
    endpoints = [endpoint.name for endpoint in settings.endpoints]
    models = [model.id for model in settings.models]
    seen: set[str] = set()
    for index, target in enumerate(alias.targets):
        place: KeyPath = (*at, "targets", index)
        if target.name in seen:
            yield Broken(place, f'"{target.name}" is in the list already')
        seen.add(target.name)
        if target.endpoint is not None and target.endpoint not in endpoints:
            known = ", ".join(endpoints) or "none"
            advice = f'no endpoint is named "{target.endpoint}"; known: {known}'
            yield Broken((*place, "endpoint"), advice, relies_on=(("endpoints",),))
        if target.endpoint is None and target.model not in models:
            known = ", ".join(models) or "none"
            yield Broken(
                (*place, "model"),
                f'no model of our own has the id "{target.model}"; known: {known}; '
                "a model of an endpoint needs `endpoint`",
                relies_on=(("models",), (*place, "endpoint")),
            )
