"""LiteLLM's ``config.yaml`` as a configuration of this service, with notes on what differs.

One ``model_name`` becomes one alias; its entries become the alias's targets. LiteLLM names the
provider by the beginning of ``model``, up to its first ``/``. What has no counterpart is noted
with its place and what to do instead.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from causerie.cli.command import CommandFailed, ExitCode, WrongUsage
from causerie.cli.keys import digest_line
from causerie.protocol.numbers import money
from causerie.providers.dialects import KNOWN_PROVIDERS
from causerie.settings.environment import variables
from causerie.settings.toml import as_toml, table_text
from causerie.settings.values import ModelPattern

_TABLES: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("litellm.toml").read_text("utf-8")
)
_LITELLM_PORT = 4000


def translate(source: Path) -> tuple[str | None, list[str]]:
    """Return the configuration as TOML, and a note on each setting that is not carried over.

    The text is ``None`` if no model can be carried over. Raises :class:`CommandFailed` if the file
    cannot be read.
    """
    result = imported(_document(source), variables())
    notes = [f"{place}: {words}" for place, words in result.notes]
    if not result.aliases:
        return None, notes
    return "\n".join(toml(result)) + "\n", notes


def _document(path: Path) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongUsage(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WrongUsage(f"cannot read {path}: {error}") from error
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise CommandFailed(f"{path} is no YAML: {where}", ExitCode.CONFIGURATION) from error
    if not isinstance(found, dict):
        raise CommandFailed(f"{path} holds no settings", ExitCode.CONFIGURATION)
    return found


def toml(result: Imported) -> Iterator[str]:
    yield "# Made by `causerie import --litellm`. Check it: `causerie check`."
    yield ""
    yield "[server]"
    yield f"port = {_LITELLM_PORT}  # LiteLLM's own, so that clients find it"
    if result.master_key:
        yield f"keys = [{as_toml(digest_line(result.master_key))}]  # the master key, as a digest"
    else:
        yield "# keys = []  # digests that `causerie key` prints; needed beyond this machine"
    if result.unknown_params is not None:
        values = {"name": "gateway", "kind": "gateway", "unknown_params": result.unknown_params}
        yield "\n" + table_text(
            ("doors",), values, {"unknown_params": "litellm_settings.drop_params"}
        )
    for name, provider in result.providers.items():
        models = [
            {"id": model, "operations": [operation]}
            for (at, model), operation in result.operations.items()
            if at == name
        ]
        yield f"\n{_provider_table(name, provider, result.variable(provider), models)}"
    for alias in result.aliases.values():
        yield f"\n{_alias_table(alias)}"


def _set(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value not in (None, {})}


def _provider_table(
    name: str, provider: Upstream, variable: str | None, models: Sequence[object]
) -> str:
    values = _set(
        name=name,
        known=provider.known,
        base_url=provider.base_url,
        dialect=provider.dialect,
        api_version=provider.api_version,
        key=_set(env=variable),
        timeouts=_set(total=provider.total, first_token=provider.first_token),
        models=models or None,
    )
    return table_text(("providers",), values)


def _alias_table(alias: Alias) -> str:
    targets = [
        _set(
            provider=target.provider,
            model=target.model,
            priority=target.priority or None,
            weight=alias.weight(target),
            price={} if alias.price else dict(target.price),
        )
        for target in alias.targets
    ]
    limits = _set(requests_per_minute=alias.limit("rpm"), tokens_per_minute=alias.limit("tpm"))
    values = _set(id=alias.id, targets=targets, limits=limits, price=dict(alias.price))
    return table_text(("aliases",), values, {"price": "for a million tokens"})


_MILLION = 1_000_000
_MOST_WEIGHT = 1_000_000.0
_COSTS: Mapping[str, str] = _TABLES["costs"]
_READ = {*_TABLES["read"], *_COSTS}
_CHAT = (None, "chat", "completion", "responses")
_OPERATIONS = {"embedding": "embeddings", "rerank": "rerank"}


@dataclass(frozen=True, slots=True)
class ImportedTarget:
    """A target made of one entry of ``model_list``."""

    provider: str
    model: str
    priority: int = 0
    weight: float | None = None
    rpm: int | None = None
    tpm: int | None = None
    fallback: bool = False
    """It is another alias's, whose limits are not this one's."""
    price: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Alias:
    """An alias made of all entries with one ``model_name``."""

    id: str
    targets: list[ImportedTarget] = field(default_factory=list)

    @property
    def price(self) -> Mapping[str, str]:
        """Return the price of all targets; nothing if they differ."""
        first, *others = [target.price for target in self.targets]
        return first if all(each == first for each in others) else {}

    def limit(self, name: str) -> int | None:
        """Return the sum of a limit over the entries, if each of them has it."""
        own = [getattr(target, name) for target in self.targets if not target.fallback]
        return sum(own) if own and None not in own else None

    def weight(self, target: ImportedTarget) -> float | None:
        """Return the weight of a target among those of its priority; ``None`` if they have none."""
        level = [one for one in self.targets if one.priority == target.priority]
        for name in ("weight", "rpm", "tpm"):
            if len(level) > 1 and all(getattr(one, name) is not None for one in level):
                return min(float(getattr(target, name)), _MOST_WEIGHT)
        return None


@dataclass(slots=True)
class Imported:
    """The translated configuration; ``notes`` are the settings without a counterpart."""

    providers: dict[str, Upstream] = field(default_factory=dict)
    aliases: dict[str, Alias] = field(default_factory=dict)
    operations: dict[tuple[str, str], str] = field(default_factory=dict)
    """What a model of a provider serves, where that is not chat."""
    unknown_params: str | None = None
    master_key: str | None = None
    """The key, where the file holds it or a variable that is set."""
    notes: list[tuple[str, str]] = field(default_factory=list)

    def variable(self, provider: Upstream) -> str | None:
        """Return the variable of the provider's key; each key in the file gets its own."""
        own = [one for one in self.providers.values() if one.variable == provider.variable]
        keys = list(dict.fromkeys(one.literal for one in own))
        number = keys.index(provider.literal)
        return f"{provider.variable}_{number + 1}" if number else provider.variable

    def note(self, place: str, words: str) -> None:
        self.notes.append((place, words))


def imported(document: Mapping[str, Any], environ: Mapping[str, str]) -> Imported:
    """Return the translation of a document; ``environ`` is read for ``master_key`` only."""
    result = Imported()
    router, lite = _table(document, "router_settings"), _table(document, "litellm_settings")
    timeouts = {"timeout": lite.get("request_timeout")}
    timeouts |= {name: router[name] for name in ("timeout", "stream_timeout") if name in router}
    for index, entry in enumerate(_as_list(document.get("model_list"))):
        _add_entry(result, f"model_list[{index}]", entry, timeouts)
    for section, settings in (("router_settings", router), ("litellm_settings", lite)):
        _add_fallbacks(result, section, settings)
    _add_second_names(result, router)
    if isinstance(lite.get("drop_params"), bool):
        result.unknown_params = "drop" if lite["drop_params"] else "reject"
    _set_master_key(result, _table(document, "general_settings"), environ)
    note_settings(document, result.note)
    _note_limits(result)
    if any(not one.price for alias in result.aliases.values() for one in alias.targets):
        words = "models without costs have list prices here: see `causerie prices list`"
        result.note("model_list", words)
    return result


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _add_entry(result: Imported, at: str, entry: Any, timeouts: Mapping[str, Any]) -> None:
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
        target = _target(result, name, params, info)
    except NotCarried as reason:
        result.note(f"{at}.litellm_params", str(reason))
        return
    alias = result.aliases.setdefault(name, Alias(name))
    if any(_same(target, other) for other in alias.targets):
        result.note(at, f"repeats a target of `{name}`; set its `weight` instead")
        return
    alias.targets.append(target)
    _note_params(result, at, own)


def _target(
    result: Imported, name: str, params: Mapping[str, Any], info: Mapping[str, Any]
) -> ImportedTarget:
    mode = info.get("mode")
    if mode not in _CHAT and mode not in _OPERATIONS:
        raise NotCarried(f"mode `{mode}`: this service has no such operation")
    found, model = provider_of(params)
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
        price=dict(_price(result, name, {**info, **params})),
    )
    if mode in _OPERATIONS:
        result.operations[target.provider, model] = _OPERATIONS[mode]
    return target


def _provider(result: Imported, found: Upstream) -> str:
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
            result.note(f"{at}.litellm_params.{name}", _PARAM_ADVICE.get(name, _NO_DEFAULT))


def _note_limits(result: Imported) -> None:
    for alias in result.aliases.values():
        for name in ("rpm", "tpm"):
            has = any(getattr(target, name) for target in alias.targets if not target.fallback)
            if has and alias.limit(name) is None:
                words = f"not every entry of `{alias.id}` has one; set `[aliases.limits]` for all"
                result.note(f"model_list.{alias.id}.{name}", words)


def _add_fallbacks(result: Imported, section: str, settings: Mapping[str, Any]) -> None:
    own = {name: list(alias.targets) for name, alias in result.aliases.items()}
    pairs = [
        (name, others)
        for each in _as_list(settings.get("fallbacks"))
        if isinstance(each, dict)
        for name, others in each.items()
    ]
    pairs += [(name, _as_list(settings.get("default_fallbacks"))) for name in own]
    for name, others in pairs:
        for other in _as_list(others):
            at = f"{section}.fallbacks.{name}"
            wild = str(name).endswith("*") or str(other).endswith("*")
            if name not in own or not isinstance(other, str) or other not in own or wild:
                result.note(at, f"`{other}` is left out: both must be in the list, without `*`")
                continue
            _append_fallbacks(result.aliases[name], own[other])


def _append_fallbacks(alias: Alias, targets: list[ImportedTarget]) -> None:
    after = max(target.priority for target in alias.targets) + 1
    for target in targets:
        if not any(_same(target, other) for other in alias.targets):
            priority = after + target.priority
            alias.targets.append(replace(target, priority=priority, fallback=True))


def _add_second_names(result: Imported, router: Mapping[str, Any]) -> None:
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
        result.aliases[name] = made = Alias(name, list(alias.targets))
        if made.limit("rpm") or made.limit("tpm"):
            result.note(at, f"has limits of its own here, which `{group}` does not share")


def _set_master_key(
    result: Imported, general: Mapping[str, Any], environ: Mapping[str, str]
) -> None:
    key = general.get("master_key")
    if key is None:
        return
    variable = variable_of(key)
    result.master_key = environ.get(variable) if variable is not None else str(key)
    if not result.master_key:
        words = f'{variable} is not set here; put the output of `echo "${variable}" | causerie key '
        result.note("general_settings.master_key", words + "--digest` into `server.keys`")


_COMPATIBLE = ("openai", "custom_openai", "openai_like", "litellm_proxy", "")
_ENVIRON = "os.environ/"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class NotCarried(Exception):
    """The entry has no counterpart; the text says what to do instead."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider in our configuration, without its name."""

    known: str | None
    base_url: str | None
    """``None``: that of the known provider."""
    dialect: str | None = None
    api_version: str | None = None
    variable: str | None = None
    """Environment variable that holds the key."""
    literal: str | None = field(default=None, repr=False)
    """The key itself, where the file holds it: it tells accounts apart, and is never written."""
    total: float | None = None
    first_token: float | None = None

    @property
    def stem(self) -> str:
        if self.dialect is not None:
            return "azure"
        return self.known or "compatible"


def provider_of(params: Mapping[str, Any]) -> tuple[Upstream, str]:
    """Return the provider of an entry, and the id of the model there."""
    prefix, model = _split(str(params.get("model", "")), params.get("custom_llm_provider"))
    base = _plain_text(params, "api_base") or _plain_text(params, "base_url")
    if base is not None and not base.startswith(("http://", "https://")):
        raise NotCarried("`api_base` begins neither with `http://` nor with `https://`")
    found = _azure(params, base) if prefix == "azure" else _other_provider(prefix, base)
    key = params.get("api_key")
    literal = None if key is None or variable_of(key) is not None else str(key)
    return replace(found, variable=_key_variable(prefix, key, found), literal=literal), model


def variable_of(value: object) -> str | None:
    """Return the variable that ``os.environ/NAME`` names; else ``None``."""
    if not isinstance(value, str) or not value.startswith(_ENVIRON):
        return None
    name = value.removeprefix(_ENVIRON)
    return name if _VARIABLE.fullmatch(name) else None


def _split(model: str, provider: object) -> tuple[str, str]:
    if not model:
        raise NotCarried("has no `model`; name one")
    if isinstance(provider, str):
        return provider, model.removeprefix(f"{provider}/")
    prefix, slash, rest = model.partition("/")
    if slash and prefix:
        return prefix, rest
    for beginning, name in _TABLES["by_model"].items():
        if model.startswith(beginning):
            return name, model
    return "", model


def _plain_text(params: Mapping[str, Any], name: str) -> str | None:
    value = params.get(name)
    if variable_of(value) is not None:
        raise NotCarried(f"`{name}` is in a variable; an address stands in the file: write it out")
    return str(value).rstrip("/") if value else None  # a version may be read as a date


def _azure(params: Mapping[str, Any], base: str | None) -> Upstream:
    if base is None:
        raise NotCarried("has no `api_base`, which Azure OpenAI needs; write it out")
    if base.endswith("/openai/v1"):
        return Upstream(None, base, "azure")
    version = _plain_text(params, "api_version")
    address = base if base.endswith("/openai") else f"{base}/openai"
    return Upstream(None, address, "azure-deployments", version)


def _other_provider(prefix: str, base: str | None) -> Upstream:
    known = KNOWN_PROVIDERS.get(_TABLES["names"].get(prefix, prefix))
    if base is not None and prefix in _COMPATIBLE:
        own = known is not None and base == known.base_url
        return Upstream(known.name, None) if known and own else Upstream(None, base)
    if known is None:
        raise NotCarried(
            f'"{prefix}" is no provider that is known here; one that speaks chat completions can '
            "stand in `providers` with its address"
            if prefix
            else "names no provider; write `PROVIDER/MODEL`, or `api_base`"
        )
    if base is not None and known.name in ("anthropic", "ollama") and not base.endswith("/v1"):
        base = f"{base}/v1"  # which LiteLLM adds itself, or does not use
    return Upstream(known.name, None if base == known.base_url else base)


def _key_variable(prefix: str, key: object, found: Upstream) -> str | None:
    named = variable_of(key)
    if named is not None:
        return named
    local = found.known is not None and KNOWN_PROVIDERS[found.known].local
    own_address = found.base_url is not None and found.dialect is None
    if key is None and (local or own_address):
        return None
    stem = prefix or "provider"
    default = re.sub(r"[^A-Z0-9]", "_", stem.upper()) + "_API_KEY"
    return str(_TABLES["variables"].get(prefix, default))


_ADVICE, _PARAM_ADVICE = (
    {name: each["words"] for each in _TABLES[table] for name in each["settings"]}
    for table in ("advice", "param_advice")
)
_NO_DEFAULT = "a model has no defaults of requests here; let clients send it"
_NONE = "has no counterpart; docs/reference/configuration.md lists what there is"


def note_settings(document: Mapping[str, Any], note: Callable[[str, str], None]) -> None:
    for section, settings in document.items():
        if section == "model_list":
            continue
        if section == "environment_variables":
            note(section, "set them where the service is started")
        elif section not in _TABLES["carried"] or not isinstance(settings, dict):
            note(section, _NONE)
        else:
            for name in settings:
                if name not in _TABLES["carried"][section]:
                    note(f"{section}.{name}", _ADVICE.get(name, _NONE))
