"""LiteLLM's ``config.yaml`` as a configuration of this service, with notes on what differs.

One ``model_name`` becomes one alias; its entries become the alias's targets. LiteLLM names the
provider by the beginning of ``model``, up to its first ``/``. What has no counterpart is noted
with its place and what to do instead.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from causerie.cli.command import CommandFailed, ExitCode, WrongUsage
from causerie.cli.keys import digest_line
from causerie.protocol.numbers import money
from causerie.providers.dialects import KNOWN_PROVIDERS
from causerie.settings.environment import variables
from causerie.settings.toml import as_toml, table_text
from causerie.settings.values import Count, ModelPattern, Patience

_TABLES: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("litellm.toml").read_text("utf-8")
)
_LITELLM_PORT = 4000
_MILLION = 1_000_000
_Weight = Annotated[float, msgspec.Meta(gt=0, le=_MILLION)]
_COSTS: Mapping[str, str] = _TABLES["costs"]
_READ = {*_TABLES["read"], *_COSTS}
_OPERATIONS = {"embedding": "embeddings", "rerank": "rerank"}
_CHAT = (None, "chat", "completion", "responses")
_COMPATIBLE = ("openai", "custom_openai", "openai_like", "litellm_proxy", "")
_ENVIRON = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]{0,127})")
_ADVICE, _PARAM_ADVICE = (
    {name: each["words"] for each in _TABLES[table] for name in each["settings"]}
    for table in ("advice", "param_advice")
)
_NO_DEFAULT = "a model has no defaults of requests here; let clients send it"
_NONE = "has no counterpart; docs/reference/configuration.md lists what there is"


def translate(source: Path) -> tuple[str | None, list[str]]:
    """Return the configuration as TOML, and a note on each setting that is not carried over.

    The text is ``None`` if no model can be carried over. Raises :class:`CommandFailed` if the file
    cannot be read.
    """
    try:
        document = yaml.safe_load(source.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise WrongUsage(f"cannot read {source}: {why}") from error
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise CommandFailed(f"{source} is no YAML: {where}", ExitCode.CONFIGURATION) from error
    if not isinstance(document, dict):
        raise CommandFailed(f"{source} holds no settings", ExitCode.CONFIGURATION)
    translation = LitellmTranslation(document, variables())
    text = "\n".join(translation.lines()) + "\n" if translation.aliases else None
    return text, translation.notes


class NotCarried(Exception):
    """The entry has no counterpart; the text says what to do instead."""


@dataclass(frozen=True, slots=True)
class ImportedTarget:
    """A target made of one entry of ``model_list``."""

    provider: str
    model: str
    priority: int
    weight: float | None
    rpm: int | None
    tpm: int | None
    price: Mapping[str, str]
    fallback: bool = False
    """It is another alias's, whose limits are not this one's."""

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"


class LitellmTranslation:
    """LiteLLM's settings as tables of our configuration; ``notes`` say what has no counterpart."""

    def __init__(self, document: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        """Translate a document; of ``environ`` the variable of the master key is read."""
        self.providers: dict[str, dict[str, object]] = {}
        self.aliases: dict[str, dict[str, ImportedTarget]] = {}  # by the names of targets
        self.notes: list[str] = []
        self._non_chat_operation_by_provider_and_model: dict[tuple[str, str], str] = {}
        self._literal_keys_by_variable_stem: dict[str, list[str | None]] = {}  # as in the file
        router = _get_subtable(document, "router_settings")
        lite = _get_subtable(document, "litellm_settings")
        timeouts = {"timeout": lite.get("request_timeout")}
        timeouts |= {name: router[name] for name in ("timeout", "stream_timeout") if name in router}
        for index, entry in enumerate(_try_convert(document.get("model_list"), list) or []):
            self._add_entry(f"model_list[{index}]", entry, timeouts)
        for section, settings in (("router_settings", router), ("litellm_settings", lite)):
            self._add_fallbacks(f"{section}.fallbacks", settings)
        self._add_group_aliases(router)
        self._drops_unknown_params = lite.get("drop_params")
        self._master_key = _get_subtable(document, "general_settings").get("master_key")
        if (variable := _parse_environ_reference(self._master_key)) is not None:
            self._master_key = environ.get(variable)
            if not self._master_key:
                words = f'{variable} is not set here; put the output of `echo "${variable}" | '
                place = "general_settings.master_key"
                self._note(place, f"{words}causerie key --digest` into `server.keys`")
        self._add_setting_notes(document)
        self._add_limit_and_price_notes()

    def lines(self) -> Iterator[str]:
        """Yield the lines of the configuration file."""
        yield "# Made by `causerie import --litellm`. Check it: `causerie check`."
        yield ""
        yield "[server]"
        yield f"port = {_LITELLM_PORT}  # LiteLLM's own, so that clients find it"
        if self._master_key:
            digest = as_toml(digest_line(str(self._master_key)))
            yield f"keys = [{digest}]  # the master key, as a digest"
        else:
            yield "# keys = []  # digests that `causerie key` prints; needed beyond this machine"
        if isinstance(self._drops_unknown_params, bool):
            unknown = "drop" if self._drops_unknown_params else "reject"
            door = {"name": "gateway", "kind": "gateway", "unknown_params": unknown}
            yield "\n" + table_text(
                ("doors",), door, {"unknown_params": "litellm_settings.drop_params"}
            )
        for name, table in self.providers.items():
            models = [
                {"id": model, "operations": [operation]}
                for (at, model), operation in self._non_chat_operation_by_provider_and_model.items()
                if at == name
            ]
            values = {"name": name, **table, **_drop_empty(models=models)}
            yield "\n" + table_text(("providers",), values)
        for id, targets in self.aliases.items():
            yield "\n" + table_text(
                ("aliases",),
                _build_alias_table(id, list(targets.values())),
                {"price": "for a million tokens"},
            )

    def _note(self, place: str, note: str) -> None:
        self.notes.append(f"{place}: {note}")

    def _add_entry(self, place: str, entry: Any, default_timeouts: Mapping[str, Any]) -> None:
        try:
            own, info = entry["litellm_params"], entry.get("model_info") or {}
            name, params = entry["model_name"], {**default_timeouts, **own}
        except (KeyError, TypeError, AttributeError):
            self._note(place, "needs `model_name` and `litellm_params`; left out")
            return
        if _try_convert(name, ModelPattern) is None:
            words = (
                "cannot be an id here (letters, digits and `._:/-`, `*` only behind a beginning)"
            )
            self._note(f"{place}.model_name", f"{name!r} {words}; left out")
            return
        try:
            target = self._import_target_or_refuse(name, params, info)
        except NotCarried as reason:
            self._note(f"{place}.litellm_params", str(reason))
            return
        targets = self.aliases.setdefault(name, {})
        if targets.setdefault(target.name, target) is not target:
            self._note(place, f"repeats a target of `{name}`; set its `weight` instead")
            return
        if own.get("api_key") is not None and _parse_environ_reference(own["api_key"]) is None:
            words = "a key never stands in the file; put it into the variable that `key` names"
            self._note(f"{place}.litellm_params.api_key", words)
        for each in own:
            if each not in _READ:
                self._note(f"{place}.litellm_params.{each}", _PARAM_ADVICE.get(each, _NO_DEFAULT))

    def _import_target_or_refuse(
        self, model_name: str, params: Mapping[str, Any], model_info: Mapping[str, Any]
    ) -> ImportedTarget:
        mode = model_info.get("mode")
        if mode not in _CHAT and mode not in _OPERATIONS:
            raise NotCarried(f"mode `{mode}`: this service has no such operation")
        prefix, model = _split_provider_prefix(
            str(params.get("model", "")), params.get("custom_llm_provider")
        )
        wild = model.count("*") == 1 if model_name.endswith("*") else "*" not in model
        if not model or not wild:
            raise NotCarried("`model_name` and `model` must both have one `*`, or neither")
        provider = self._add_or_reuse_provider(prefix, params)
        if mode in _OPERATIONS:
            self._non_chat_operation_by_provider_and_model[provider, model] = _OPERATIONS[mode]
        return ImportedTarget(
            provider,
            model,
            priority=_try_convert(params.get("order"), Count) or 0,
            weight=_try_convert(params.get("weight"), _Weight),
            rpm=_try_convert(params.get("rpm"), Count),
            tpm=_try_convert(params.get("tpm"), Count),
            price=dict(self._convert_prices(model_name, {**model_info, **params})),
        )

    def _add_or_reuse_provider(self, prefix: str, params: Mapping[str, Any]) -> str:
        table = _build_address_table(prefix, params)
        stem = "azure" if "dialect" in table else str(table.get("known", "compatible"))
        table["key"] = _drop_empty(env=self._key_variable(prefix, params.get("api_key"), table))
        total = _try_convert(params.get("timeout"), Patience)
        first_token = _try_convert(params.get("stream_timeout"), Patience)
        table = _drop_empty(**table, timeouts=_drop_empty(total=total, first_token=first_token))
        for name, other in self.providers.items():
            if other == table:
                return name
        names = chain([stem], (f"{stem}-{number}" for number in count(2)))
        name = next(each for each in names if each not in self.providers)
        self.providers[name] = table
        return name

    def _key_variable(self, prefix: str, key: object, table: Mapping[str, object]) -> str | None:
        # Each key in the file gets a variable of its own.
        known = KNOWN_PROVIDERS.get(str(table.get("known")))
        own_address = "base_url" in table and "dialect" not in table
        if key is None and (own_address or (known is not None and known.local)):
            return None
        default = re.sub(r"[^A-Z0-9]", "_", (prefix or "provider").upper()) + "_API_KEY"
        named = _parse_environ_reference(key)
        variable = named or str(_TABLES["variables"].get(prefix, default))
        literal = None if key is None or named is not None else str(key)
        keys = self._literal_keys_by_variable_stem.setdefault(variable, [])
        if literal not in keys:
            keys.append(literal)
        number = keys.index(literal)
        return f"{variable}_{number + 1}" if number else variable

    def _convert_prices(self, model: str, costs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for name, ours in _COSTS.items():
            try:
                rounded = round(money(str(costs[name]), signed=True) * _MILLION, 9).normalize()
            except (KeyError, ValueError):
                continue
            if 0 <= rounded <= 2 * _MILLION:
                yield ours, f"{rounded:f}"
            else:
                self._note("model_list", f"`{name}` of `{model}` is not from 0 to 2; left out")

    def _add_fallbacks(self, place: str, settings: Mapping[str, Any]) -> None:
        own = {name: list(targets.values()) for name, targets in self.aliases.items()}
        tables = [
            each
            for each in (_try_convert(settings.get("fallbacks"), list) or [])
            if isinstance(each, dict)
        ]
        pairs = [pair for table in tables for pair in table.items()]
        pairs += [(name, settings.get("default_fallbacks")) for name in own]
        for name, other in (
            (name, other) for name, others in pairs for other in (_try_convert(others, list) or [])
        ):
            wild = str(name).endswith("*") or str(other).endswith("*")
            if name not in own or not isinstance(other, str) or other not in own or wild:
                words = f"`{other}` is left out: both must be in the list, without `*`"
                self._note(f"{place}.{name}", words)
                continue
            after = max(target.priority for target in self.aliases[name].values()) + 1
            for target in own[other]:
                later = replace(target, priority=after + target.priority, fallback=True)
                self.aliases[name].setdefault(target.name, later)

    def _add_group_aliases(self, router_settings: Mapping[str, Any]) -> None:
        for name, group in _get_subtable(router_settings, "model_group_alias").items():
            first = str(group.get("model") if isinstance(group, dict) else group)
            at = f"router_settings.model_group_alias.{name}"
            if first not in self.aliases or name in self.aliases or first.endswith("*"):
                self._note(at, f"`{first}` is not in the list, or the name is taken; left out")
            elif _try_convert(name, ModelPattern) is None:
                self._note(at, "cannot be an id here; left out")
            else:
                self.aliases[name] = dict(self.aliases[first])
                targets = list(self.aliases[name].values())
                if _sum_limits(targets, "rpm") or _sum_limits(targets, "tpm"):
                    self._note(at, f"has limits of its own here, which `{first}` does not share")

    def _add_setting_notes(self, document: Mapping[str, Any]) -> None:
        for section, settings in document.items():
            if section == "environment_variables":
                self._note(section, "set them where the service is started")
            elif section in _TABLES["carried"] and isinstance(settings, dict):
                for name in settings:
                    if name not in _TABLES["carried"][section]:
                        self._note(f"{section}.{name}", _ADVICE.get(name, _NONE))
            elif section != "model_list":
                self._note(section, _NONE)

    def _add_limit_and_price_notes(self) -> None:
        for id, by_name in self.aliases.items():
            targets = list(by_name.values())
            for name in ("rpm", "tpm"):
                has = any(getattr(target, name) for target in targets if not target.fallback)
                if has and _sum_limits(targets, name) is None:
                    words = f"not every entry of `{id}` has one; set `[aliases.limits]` for all"
                    self._note(f"model_list.{id}.{name}", words)
        if any(not each.price for targets in self.aliases.values() for each in targets.values()):
            words = "models without costs have list prices here: see `causerie prices list`"
            self._note("model_list", words)


def _build_alias_table(alias_id: str, targets: Sequence[ImportedTarget]) -> Mapping[str, object]:
    prices = [dict(target.price) for target in targets]
    price = prices[0] if all(each == prices[0] for each in prices) else {}
    tables = [
        _drop_empty(
            provider=target.provider,
            model=target.model,
            priority=target.priority or None,
            weight=_choose_weight(targets, target),
            price={} if price else dict(target.price),
        )
        for target in targets
    ]
    rpm, tpm = _sum_limits(targets, "rpm"), _sum_limits(targets, "tpm")
    limits = _drop_empty(requests_per_minute=rpm, tokens_per_minute=tpm)
    return _drop_empty(id=alias_id, targets=tables, limits=limits, price=price)


def _sum_limits(targets: Sequence[ImportedTarget], limit_name: str) -> int | None:
    own = [getattr(target, limit_name) for target in targets if not target.fallback]
    return sum(own) if own and None not in own else None


def _choose_weight(targets: Sequence[ImportedTarget], target: ImportedTarget) -> float | None:
    level = [one for one in targets if one.priority == target.priority]
    for name in ("weight", "rpm", "tpm"):
        if len(level) > 1 and all(getattr(one, name) is not None for one in level):
            return min(float(getattr(target, name)), float(_MILLION))
    return None


def _build_address_table(prefix: str, params: Mapping[str, Any]) -> dict[str, object]:
    base = _get_literal_or_refuse(params, "api_base") or _get_literal_or_refuse(params, "base_url")
    if base is not None and not base.startswith(("http://", "https://")):
        raise NotCarried("`api_base` begins neither with `http://` nor with `https://`")
    if prefix == "azure":
        if base is None:
            raise NotCarried("has no `api_base`, which Azure OpenAI needs; write it out")
        if base.endswith("/openai/v1"):
            return {"base_url": base, "dialect": "azure"}
        address = base if base.endswith("/openai") else f"{base}/openai"
        version = _get_literal_or_refuse(params, "api_version")
        return _drop_empty(base_url=address, dialect="azure-deployments", api_version=version)
    known = KNOWN_PROVIDERS.get(_TABLES["names"].get(prefix, prefix))
    if base is not None and prefix in _COMPATIBLE and (known is None or base != known.base_url):
        return {"base_url": base}
    if known is None:
        raise NotCarried(
            f'"{prefix}" is no provider that is known here; one that speaks chat completions can '
            "stand in `providers` with its address"
            if prefix
            else "names no provider; write `PROVIDER/MODEL`, or `api_base`"
        )
    if base is not None and known.name in ("anthropic", "ollama") and not base.endswith("/v1"):
        base = f"{base}/v1"  # which LiteLLM adds itself, or does not use
    return _drop_empty(known=known.name, base_url=None if base == known.base_url else base)


def _split_provider_prefix(model: str, provider: object) -> tuple[str, str]:
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


def _drop_empty(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value not in (None, {}, [])}


def _get_subtable(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _try_convert(document.get(name), dict) or {}


def _get_literal_or_refuse(params: Mapping[str, Any], name: str) -> str | None:
    value = params.get(name)
    if _parse_environ_reference(value) is not None:
        raise NotCarried(f"`{name}` is in a variable; an address stands in the file: write it out")
    return str(value).rstrip("/") if value else None  # a version may be read as a date


def _parse_environ_reference(value: object) -> str | None:
    found = _ENVIRON.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else found[1]


def _try_convert(value: object, target_type: Any) -> Any:
    try:
        return msgspec.convert(value, target_type)
    except msgspec.ValidationError:
        return None
