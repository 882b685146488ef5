"""Rules for providers, aliases and the catalog: addresses, fields, and targets that exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from causerie.http.addresses import InsideHosts
from causerie.protocol.known_fields import PRIVILEGES, lists, privilege_in
from causerie.protocol.nearest import ALIKE, nearest
from causerie.protocol.parameters import HINT_NAMES, HONOURED, REFUSED
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import DIALECTS, KNOWN_PROVIDERS
from causerie.providers.outgoing import WRITTEN
from causerie.settings.catalog import (
    AliasSettings,
    CatalogEndpointSettings,
    TargetSettings,
)
from causerie.settings.problems import Broken, repeated, suggestion, taken
from causerie.settings.provider import (
    ProviderModelSettings,
    ProviderSettings,
    address_rules,
    tls_rules,
)
from causerie.settings.toml import KeyPath
from causerie.settings.tree import Settings
from causerie.settings.values import PLACES, PriceSettings


def provider_rules(settings: Settings) -> Iterator[Broken]:
    names: list[tuple[KeyPath, str]] = [
        (("providers", index, "name"), one.name) for index, one in enumerate(settings.providers)
    ]
    yield from taken(names)
    for index, provider in enumerate(settings.providers):
        at: KeyPath = ("providers", index)
        yield from _provider(at, provider)
        for place, model in enumerate(settings.models):
            if model.id.startswith(f"{provider.name}/"):
                yield Broken(
                    ("models", place, "id"),
                    f'"{model.id}" could be taken for a model of provider "{provider.name}"; '
                    "choose another id",
                    (*at, "name"),
                )
    for index, alias in enumerate(settings.aliases):
        yield from _alias(("aliases", index), alias, settings)


def _provider(at: KeyPath, provider: ProviderSettings) -> Iterator[Broken]:
    yield from address_rules((*at, "base_url"), provider.base_url, "name its key by `key`")
    if isinstance(provider.proxy, str):
        advice = f"write where the address is found: {PLACES}"
        yield from address_rules((*at, "proxy"), provider.proxy, advice)
    yield from _kind(at, provider)
    yield from tls_rules((*at, "tls"), provider.tls, provider.base_url)
    yield from _fields(at, provider)
    for host in provider.private_image_hosts:
        try:
            InsideHosts.parse([host])
        except ValueError:
            yield Broken(
                (*at, "private_image_hosts"),
                f'"{host}" is no name in lower case, suffix like `.corp.example`, address or '
                "network like `10.0.0.0/8`",
            )
    ids = [((*at, "models", index, "id"), one.id) for index, one in enumerate(provider.models)]
    for path, name, other in repeated(ids):
        yield Broken(path, f'"{name}" is there already', other)
    for index, model in enumerate(provider.models):
        yield from _parameters((*at, "models", index), model)


def _kind(at: KeyPath, provider: ProviderSettings) -> Iterator[Broken]:
    if provider.known is not None and provider.known not in KNOWN_PROVIDERS:
        hint = suggestion(provider.known, KNOWN_PROVIDERS)
        yield Broken((*at, "known"), f'"{provider.known}" is no known provider; {hint}')
    known = KNOWN_PROVIDERS.get(provider.known or "")
    if known is not None and known.own and known.own in provider.base_url:
        words = f'with your own name in place of {known.own}: "{provider.base_url}"'
        yield Broken((*at, "base_url"), f"differs from project to project; write it {words}")
    if provider.dialect not in DIALECTS:
        hint = suggestion(provider.dialect, DIALECTS)
        yield Broken((*at, "dialect"), f'there is no dialect "{provider.dialect}"; {hint}')
    elif provider.api_version is not None and not DIALECTS[provider.dialect].api.version:
        words = f'dialect "{provider.dialect}" has no `api-version`; leave it out'
        yield Broken((*at, "api_version"), words, relies_on=((*at, "dialect"),))


def _fields(at: KeyPath, provider: ProviderSettings) -> Iterator[Broken]:
    dialect = DIALECTS.get(provider.dialect)
    for setting in ("passes", "passes_privileged"):
        place: KeyPath = (*at, setting)
        for path in getattr(provider, setting):
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
    name = path.partition(".")[0]
    if name in REFUSED:
        return f'"{path}" is refused at every door: {REFUSED[name]}'
    known = dialect.accepts | dialect.renames.keys() if dialect is not None else frozenset()
    if path in WRITTEN or path in known:
        return f'"{path}" is sent as the dialect says; leave it out'
    if path not in HONOURED | HINT_NAMES and dialect is not None and lists(dialect.lists, path):
        return f'"{path}" is sent already; leave it out'
    return None


def _parameters(
    at: KeyPath, model: ProviderModelSettings | CatalogEndpointSettings
) -> Iterator[Broken]:
    known = HONOURED | HINT_NAMES
    for name in model.supported_parameters or ():
        if name not in known:
            near = nearest(name, known, ALIKE)
            hint = f"; did you mean `{near}`?" if near else ""
            advice = f'"{name}" is no parameter of a request{hint}'
            yield Broken((*at, "supported_parameters"), advice)


def _alias(at: KeyPath, alias: AliasSettings, settings: Settings) -> Iterator[Broken]:
    at = (*at, "targets")
    yield from _target_rules(at, alias.targets, settings)
    for index, target in enumerate(alias.targets):
        wild, place = alias.id.endswith("*"), (*at, index, "model")
        if wild and (target.provider is None or target.model.count("*") != 1):
            words = f'"{alias.id}" needs a provider and one `*` in its model, like `model = "*"`'
            yield Broken(place, words)
        elif not wild and "*" in target.model:
            yield Broken(place, f'"{target.model}" needs an alias whose id ends in `*`')


def _target_rules(
    at: KeyPath, targets: Sequence[TargetSettings], settings: Settings
) -> Iterator[Broken]:
    if not targets:
        yield Broken(at, "is empty; name at least one who answers")
    names: list[tuple[KeyPath, str]] = [((*at, i), each.name) for i, each in enumerate(targets)]
    for place, name, _ in repeated(names):
        yield Broken(place, f'"{name}" is in the list already')
    providers = [provider.name for provider in settings.providers]
    models = [model.id for model in settings.models]
    for index, target in enumerate(targets):
        if target.provider is not None and target.provider not in providers:
            known = ", ".join(providers) or "none"
            advice = f'no provider is named "{target.provider}"; known: {known}'
            yield Broken((*at, index, "provider"), advice, relies_on=(("providers",),))
        if target.provider is None and target.model not in models:
            known = ", ".join(models) or "none"
            yield Broken(
                (*at, index, "model"),
                f'no model of our own has the id "{target.model}"; known: {known}; '
                "a model of a provider needs `provider`",
                relies_on=(("models",), (*at, index, "provider")),
            )


def catalog_rules(settings: Settings) -> Iterator[Broken]:
    """Yield what is wrong with endpoints: they exist, and free ones are free."""
    for number, entry in enumerate(settings.catalog):
        at: KeyPath = ("catalog", number, "endpoints")
        yield from _target_rules(at, entry.endpoints, settings)
        for index, endpoint in enumerate(entry.endpoints):
            if entry.id.endswith(":free") and endpoint.price != PriceSettings():
                advice = f'is set, and "{entry.id}" is free; remove it'
                yield Broken((*at, index, "price"), advice)
            yield from _parameters((*at, index), endpoint)
