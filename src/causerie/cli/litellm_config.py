"""LiteLLM's ``config.yaml`` as providers and aliases, and what of it has no counterpart.

One ``model_name`` becomes one alias; its entries become the alias's targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from causerie.cli.litellm_notes import note_settings
from causerie.cli.litellm_providers import NotCarried, Upstream, upstream, variable_of
from causerie.protocol.numbers import money
from causerie.settings.values import ModelPattern

_MILLION = 1_000_000
_MOST_WEIGHT = 1_000_000.0
_COSTS = {
    "input_cost_per_token": "prompt",
    "output_cost_per_token": "completion",
    "cache_read_input_token_cost": "cached",
    "output_cost_per_reasoning_token": "reasoning",
}
_READ = {
    "model", "api_base", "base_url", "api_key", "api_version", "custom_llm_provider", "rpm", "tpm",
    "weight", "order", "timeout", "stream_timeout", *_COSTS,
}  # fmt: skip
_CHAT = (None, "chat", "completion", "responses")


@dataclass(frozen=True, slots=True)
class ImportedTarget:
    """One entry of ``model_list``."""

    provider: str
    model: str
    priority: int = 0
    weight: float | None = None
    rpm: int | None = None
    tpm: int | None = None
    fallback: bool = False
    """It is another alias's, whose limits are not this one's."""


@dataclass(slots=True)
class Alias:
    """One ``model_name``."""

    id: str
    targets: list[ImportedTarget] = field(default_factory=list)
    price: dict[str, str] = field(default_factory=dict)

    def limit(self, name: str) -> int | None:
        """Return the sum of a limit over the entries, if each of them has it."""
        own = [getattr(target, name) for target in self.targets if not target.fallback]
        return sum(own) if own and None not in own else None

    def weight(self, target: ImportedTarget) -> float | None:
        """Return the share of a target: by what all targets of its priority have."""
        level = [one for one in self.targets if one.priority == target.priority]
        for name in ("weight", "rpm", "tpm"):
            if len(level) > 1 and all(getattr(one, name) is not None for one in level):
                return min(float(getattr(target, name)), _MOST_WEIGHT)
        return None


@dataclass(slots=True)
class Imported:
    """Our configuration made of the file; ``notes`` are the places that have no counterpart."""

    providers: dict[str, Upstream] = field(default_factory=dict)
    aliases: dict[str, Alias] = field(default_factory=dict)
    unknown_params: str | None = None
    master_key: str | None = None
    """The key, where the file holds it or a variable that is set."""
    notes: list[tuple[str, str]] = field(default_factory=list)

    def variable(self, provider: Upstream) -> str | None:
        """Return the variable of the provider's key; keys that the file holds get one each."""
        own = [one for one in self.providers.values() if one.variable == provider.variable]
        keys = list(dict.fromkeys(one.literal for one in own))
        number = keys.index(provider.literal)
        return f"{provider.variable}_{number + 1}" if number else provider.variable

    def note(self, place: str, words: str) -> None:
        """Remember something that is not carried over, and what to do instead."""
        self.notes.append((place, words))


def imported(document: Mapping[str, Any], environ: Mapping[str, str]) -> Imported:
    """Translate the document; variables are only looked at for ``master_key``."""
    result = Imported()
    router, lite = _table(document, "router_settings"), _table(document, "litellm_settings")
    timeouts = _default_timeouts(router, lite)
    for index, entry in enumerate(_items(document.get("model_list"))):
        _entry(result, f"model_list[{index}]", entry, timeouts)
    for section, settings in (("router_settings", router), ("litellm_settings", lite)):
        _fallbacks(result, section, settings)
    _names(result, router)
    if isinstance(lite.get("drop_params"), bool):
        result.unknown_params = "drop" if lite["drop_params"] else "reject"
    _master_key(result, _table(document, "general_settings"), environ)
    note_settings(document, result.note)
    _note_limits(result)
    if any(not alias.price for alias in result.aliases.values()):
        words = "LiteLLM's built-in prices stay behind; set `[aliases.price]` where use is charged"
        result.note("model_list", words)
    return result


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _default_timeouts(router: Mapping[str, Any], lite: Mapping[str, Any]) -> dict[str, Any]:
    """Return the timeouts of entries that set none; the router's own go before."""
    found = {"timeout": lite.get("request_timeout")}
    found |= {name: router[name] for name in ("timeout", "stream_timeout") if name in router}
    return found


def _entry(result: Imported, at: str, entry: Any, timeouts: Mapping[str, Any]) -> None:
    """Add one entry of ``model_list`` to its alias, or say why not."""
    try:
        own, info = entry["litellm_params"], entry.get("model_info") or {}
        name = msgspec.convert(entry["model_name"], ModelPattern)
        params = {**timeouts, **own}
    except (KeyError, TypeError, AttributeError):
        result.note(at, "needs `model_name` and `litellm_params`; left out")
        return
    except msgspec.ValidationError:
        words = "cannot be an id here (letters, digits and `._:/-`, `*` only behind a beginning)"
        result.note(f"{at}.model_name", f"{entry['model_name']!r} {words}; left out")
        return
    try:
        target, price = _target(result, name, params, info)
    except NotCarried as reason:
        result.note(f"{at}.litellm_params", str(reason))
        return
    alias = result.aliases.setdefault(name, Alias(name))
    if any(_same(target, other) for other in alias.targets):
        result.note(at, f"repeats a target of `{name}`; set its `weight` instead")
        return
    if alias.targets and price != alias.price:
        result.note(at, f"`{name}` has one price here, that of its first entry")
    elif not alias.targets:
        alias.price = price
    alias.targets.append(target)
    _note_params(result, at, own)


def _target(
    result: Imported, name: str, params: Mapping[str, Any], info: Mapping[str, Any]
) -> tuple[ImportedTarget, dict[str, str]]:
    if info.get("mode") not in _CHAT:
        raise NotCarried(f"mode `{info['mode']}`: this service only does chat completions")
    found, model = upstream(params)
    wild = model.count("*") == 1 if name.endswith("*") else "*" not in model
    if not model or not wild:
        raise NotCarried("`model_name` and `model` must both have one `*`, or neither")
    found = replace(
        found,
        total=_number(params, "timeout", 86_400),
        first_token=_number(params, "stream_timeout", 86_400),
    )
    target = ImportedTarget(
        _provider(result, found),
        model,
        priority=_whole(params, "order") or 0,
        weight=_number(params, "weight", 1_000_000),
        rpm=_whole(params, "rpm"),
        tpm=_whole(params, "tpm"),
    )
    return target, dict(_price(result, name, {**info, **params}))


def _provider(result: Imported, found: Upstream) -> str:
    """Return the name of the provider, which is added if it is new."""
    for name, other in result.providers.items():
        if other == found:
            return name
    number = sum(other.stem == found.stem for other in result.providers.values())
    name = f"{found.stem}-{number + 1}" if number else found.stem
    result.providers[name] = found
    return name


def _price(result: Imported, model: str, costs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, ours in _COSTS.items():
        try:
            amount = money(str(costs[name]), signed=True) * _MILLION
            rounded = round(amount, 9).normalize()
            fits = 0 <= rounded <= 2 * _MILLION
        except (KeyError, ValueError):
            continue
        if fits:
            yield ours, f"{rounded:f}"
        else:
            result.note("model_list", f"`{name}` of `{model}` is not from 0 to 2; left out")


def _number(params: Mapping[str, Any], name: str, most: float) -> float | None:
    value = params.get(name)
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= most
    return float(value) if fits and value is not None else None


def _whole(params: Mapping[str, Any], name: str) -> int | None:
    value = params.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _same(one: ImportedTarget, other: ImportedTarget) -> bool:
    return (one.provider, one.model) == (other.provider, other.model)


def _note_params(result: Imported, at: str, own: Mapping[str, Any]) -> None:
    key = own.get("api_key")
    if key is not None and variable_of(key) is None:
        words = "a key never stands in the file; put it into the variable that `key` names"
        result.note(f"{at}.litellm_params.api_key", words)
    for name in own:
        if name not in _READ:
            words = "has no counterpart for a provider's model; let clients send it"
            result.note(f"{at}.litellm_params.{name}", words)


def _note_limits(result: Imported) -> None:
    for alias in result.aliases.values():
        for name in ("rpm", "tpm"):
            has = any(getattr(target, name) for target in alias.targets if not target.fallback)
            if has and alias.limit(name) is None:
                words = f"not every entry of `{alias.id}` has one; set `[aliases.limits]` for all"
                result.note(f"model_list.{alias.id}.{name}", words)


def _fallbacks(result: Imported, section: str, settings: Mapping[str, Any]) -> None:
    """Append the targets of other aliases, to be asked after an alias's own."""
    own = {name: list(alias.targets) for name, alias in result.aliases.items()}
    pairs = [
        (name, others)
        for each in _items(settings.get("fallbacks"))
        if isinstance(each, dict)
        for name, others in each.items()
    ]
    pairs += [(name, _items(settings.get("default_fallbacks"))) for name in own]
    for name, others in pairs:
        for other in _items(others):
            at = f"{section}.fallbacks.{name}"
            wild = str(name).endswith("*") or str(other).endswith("*")
            if name not in own or not isinstance(other, str) or other not in own or wild:
                result.note(at, f"`{other}` is left out: both must be in the list, without `*`")
                continue
            _append(result.aliases[name], own[other])


def _append(alias: Alias, targets: list[ImportedTarget]) -> None:
    after = max(target.priority for target in alias.targets) + 1
    for target in targets:
        if not any(_same(target, other) for other in alias.targets):
            priority = after + target.priority
            alias.targets.append(replace(target, priority=priority, fallback=True))


def _names(result: Imported, router: Mapping[str, Any]) -> None:
    """``model_group_alias``: a second name for what another alias has."""
    for name, group in _table(router, "model_group_alias").items():
        group = group.get("model") if isinstance(group, dict) else group
        at = f"router_settings.model_group_alias.{name}"
        alias = result.aliases.get(str(group))
        if alias is None or name in result.aliases or alias.id.endswith("*"):
            result.note(at, f"`{group}` is not in the list, or the name is taken; left out")
            continue
        try:
            name = msgspec.convert(name, ModelPattern)
        except msgspec.ValidationError:
            result.note(at, "cannot be an id here; left out")
            continue
        result.aliases[name] = Alias(name, list(alias.targets), dict(alias.price))


def _master_key(result: Imported, general: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    key = general.get("master_key")
    if key is None:
        return
    variable = variable_of(key)
    result.master_key = environ.get(variable) if variable is not None else str(key)
    if not result.master_key:
        words = f'{variable} is not set here; put the output of `echo "${variable}" | causerie key '
        result.note("general_settings.master_key", words + "--digest` into `server.keys`")
