"""Entries whose form is fields: models of this service, doors, policies, and aliases, public model
names with a row for each target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from causerie.errors import InvalidRequest
from causerie.hosted.console.entries import (
    EntryFormPages,
    EntryKindWords,
    SettingField,
    SettingsForm,
    text_of,
    typed_number,
)
from causerie.hosted.console.fields import FormFields
from causerie.hosted.console.request_context import RequestContext

_PRICE = "$ per 1M tokens."
_AT_ONCE = "Requests at the same time"
_REPLICAS = "Processes that share the requests."
LIMITS = tuple(
    SettingField(f"limits.{name}", title, "number", group="Limits")
    for name, title in (
        ("requests_per_minute", "Requests / min"),
        ("tokens_per_minute", "Tokens / min"),
        ("concurrent", "At the same time"),
    )
)
"""Fields that limit all use together."""


def _choice(name: str, title: str, *choices: tuple[str, str]) -> SettingField:
    return SettingField(name, title, "choice", choices=choices)


def _group(title: str, *fields: SettingField) -> Iterator[SettingField]:
    for each in fields:
        yield replace(each, group=title)


def _numbers(table: str, group: str, *rows: tuple[str, str, str]) -> Iterator[SettingField]:
    for name, title, hint in rows:
        yield SettingField(f"{table}.{name}", title, "number", hint, group=group)


MODELS = EntryFormPages(
    EntryKindWords(
        kinds=frozenset({"model"}),
        noun="model",
        list_path="/operator/models",
        deletion="It is unloaded when its last request has ended. Weights and usage are kept.",
        list_template="operator/own_models.html",
        searched=("name", "ref", "engine"),
    ),
    fields=(
        SettingField("id", "ID", hint="The `model` of requests.", missing="is missing"),
        SettingField(
            "ref",
            "Weights",
            hint="`hf:ORG/REPO`, with `:QUANT` or `:FILE` behind it if there are several.",
            placeholder="hf:Qwen/Qwen3-4B-GGUF:Q4_K_M",
        ),
        _choice("engine", "Engine", ("", "llama.cpp"), ("openvino", "OpenVINO"), ("vllm", "vLLM")),
        *_group(
            "Name and price",
            SettingField("name", "Name", hint="Shown in lists. Empty: the ID."),
            SettingField("description", "Description"),
            SettingField("price.prompt", "Input price", hint=_PRICE, placeholder="0"),
            SettingField("price.completion", "Output price", hint=_PRICE, placeholder="0"),
        ),
        *LIMITS,
        *_group(
            "Limits",
            SettingField("max_output_tokens", "Output tokens of a request", "number"),
            SettingField(
                "idle_unload_seconds",
                "Unload after",
                "number",
                "Seconds without a request. Empty: never.",
            ),
        ),
        *_numbers(
            "llamacpp",
            "llama.cpp",
            ("context", "Context", "Tokens of one request, or `auto`."),
            ("parallel", _AT_ONCE, ""),
            ("threads", "Threads", ""),
            ("gpu_layers", "Layers on the GPU", ""),
            ("replicas", "Replicas", _REPLICAS),
        ),
        *_numbers("openvino", "OpenVINO", ("context", "Context", ""), ("parallel", _AT_ONCE, "")),
        SettingField(
            "vllm.addresses",
            "Addresses",
            "list",
            "Of servers that run already. Empty: one is started here.",
            group="vLLM",
        ),
        *_numbers(
            "vllm",
            "vLLM",
            ("context", "Context", ""),
            ("parallel", _AT_ONCE, ""),
            ("tensor_parallel", "Devices that share each layer", ""),
            ("replicas", "Replicas", _REPLICAS),
        ),
    ),
)
DOORS = EntryFormPages(
    EntryKindWords(
        kinds=frozenset({"door"}),
        noun="door",
        list_path="/operator/doors",
        deletion="Its addresses answer 404 at once. Models, keys and usage are kept.",
        list_template="operator/doors.html",
        searched=("kind", "hosts", "models"),
    ),
    fields=(
        SettingField(
            "name", "Name", hint="Lower case. Part of its base URL.", missing="is missing"
        ),
        _choice(
            "kind",
            "Kind",
            ("gateway", "gateway: aliases"),
            ("router", "router: the catalog"),
            ("hosted", "hosted: models of this service and aliases, for keys of accounts"),
            ("endpoint", "endpoint: models of this service"),
        ),
        _choice(
            "keys",
            "Access",
            ("", "as for the whole service"),
            ("accounts", "API keys of this console"),
        ),
        SettingField(
            "models",
            "Models",
            "list",
            "IDs; one with `*` at the end stands for all that start with it. Empty: all.",
        ),
        *_group(
            "Addresses",
            SettingField("prefix", "Path", placeholder="/gateway/v1"),
            SettingField("hosts", "Host names", "list"),
            SettingField("origins", "Origins of web pages", "list"),
            SettingField("networks", "Networks of clients", "list", "Empty: all."),
        ),
        *LIMITS,
        *_group(
            "Requests",
            _choice(
                "unknown_params",
                "Unknown fields of requests",
                ("", "left out, and named in x-request-changes"),
                ("reject", "rejected"),
            ),
            _choice(
                "long_output",
                "Output limits that do not fit beside the prompt",
                ("", "lowered, and named in x-request-changes"),
                ("reject", "rejected"),
            ),
            SettingField("reasoning", "Requests may have the `reasoning` object", "flag"),
            _choice(
                "cache_scope",
                "Prompt cache",
                ("", "as the kind of keys suggests"),
                ("project", "each project reuses its own prompts"),
                ("service", "everybody reuses prompts of everybody"),
            ),
        ),
    ),
)
POLICIES = EntryFormPages(
    EntryKindWords(
        kinds=frozenset({"policy"}),
        noun="policy",
        list_path="/operator/policies",
        deletion="New ones begin without it. What others have stays.",
        list_template="operator/policies.html",
    ),
    fields=(
        SettingField(
            "name",
            "Of",
            "choice",
            choices=(("people", "People"), ("projects", "Projects")),
            missing="is missing",
        ),
        SettingField("budget", "Budget", hint="In $. Empty: none.", placeholder="25"),
        _choice(
            "period",
            "Begins anew",
            ("", "each month"),
            ("day", "each day"),
            ("week", "each week"),
            ("never", "never"),
        ),
        SettingField("soft", "The budget refuses nothing; its use is notified", "flag"),
        *LIMITS,
        *_group(
            "Models and doors",
            SettingField(
                "models",
                "Models",
                "list",
                "IDs; one with `*` at the end stands for all that start with it. Empty: all.",
            ),
            SettingField("doors", "Doors", "list", "Empty: all."),
            SettingField("providers", "Providers", "list", "Empty: all."),
            SettingField("prompt_price", "Highest input price", hint=_PRICE),
            SettingField("completion_price", "Highest output price", hint=_PRICE),
        ),
        *_group(
            "Of people",
            _choice(
                "personal_projects",
                "Personal projects",
                ("", "for those who sign up"),
                ("never", "never: people come into projects of their groups, or by invitation"),
            ),
            SettingField(
                "personal_project_name",
                "Its name",
                hint="`{name}` and `{email}` are theirs.",
                placeholder="Main",
            ),
            _choice(
                "role",
                "Their role in it",
                ("", "owner"),
                ("admin", "admin"),
                ("member", "member"),
                ("viewer", "viewer"),
            ),
        ),
        *_group(
            "Of projects",
            _choice(
                "request_logging",
                "Request logging is turned on by",
                ("", "owners, admins and management keys"),
                ("owners", "owners"),
                ("nobody", "nobody; nothing is logged"),
            ),
        ),
    ),
)


Row = Mapping[str, str]

_PARTS = ("prompt", "completion")
_TARGET = ("provider", "model", "priority", "weight", *_PARTS, "price")
FIELDS = (
    SettingField("id", "ID", missing="is missing; it is what requests name as `model`"),
    *(SettingField(name, "") for name in ("name", "description", "price.prompt")),
    SettingField("price.completion", ""),
)


class AliasForm(SettingsForm, frozen=True):
    """The form of an alias, with a row for each of its targets."""

    targets: Sequence[Row] = ({},)
    row_names = ("targets", *(f"targets[].{name}" for name in _TARGET))

    @classmethod
    def of(cls, fields: Sequence[SettingField], settings: Mapping[str, Any], version: int) -> Self:
        others = {name: value for name, value in settings.items() if name != "targets"}
        form = SettingsForm.of(fields, others, version)
        rows = [_row(each) for each in settings["targets"]]
        return cls(fields, form.values, form.more, form.version, rows)

    @classmethod
    def typed(cls, fields: Sequence[SettingField], form: FormFields) -> Self:
        typed = SettingsForm.typed(fields, form)
        targets = [row for row in form.rows("target", _TARGET) if row["model"]]
        return cls(fields, typed.values, typed.more, typed.version, targets)

    def settings(self) -> dict[str, Any]:
        if not self.targets:
            raise InvalidRequest("are missing; name at least one model", param="targets")
        targets = [_target(row) for row in self.targets]
        return {**SettingsForm.settings(self), "targets": targets}


def _row(target: Mapping[str, Any]) -> Row:
    row = {name: text_of(target[name]) for name in target if name != "price"}
    if "price" in target:  # what no field shows of it is kept
        price = dict(target["price"])
        row |= {name: str(price.pop(name)) for name in _PARTS if name in price}
        row["price"] = msgspec.json.encode(price).decode()
    return row


def _target(row: Row) -> dict[str, Any]:
    numbers = {name: typed_number(row[name]) for name in ("priority", "weight") if row.get(name)}
    provider = {"provider": row["provider"]} if row.get("provider") else {}
    typed = {name: row[name] for name in _PARTS if row.get(name)}
    try:
        kept = msgspec.json.decode(row.get("price") or "{}", type=dict[str, Any])
    except msgspec.MsgspecError as failure:
        raise InvalidRequest("is no JSON object", param="targets") from failure
    priced = {"price": kept | typed} if typed or row.get("price") else {}
    return {**provider, "model": row["model"], **numbers, **priced}


class AliasPages(EntryFormPages):
    template = "operator/alias.html"

    async def around(self, context: RequestContext) -> Mapping[str, Any]:
        entries = await context.configuration.every(context.actor)
        found = (each.settings.get("targets", ()) for each in entries if each.kind == "alias")
        models = {one.get("model", "") for targets in found for one in targets}
        return {
            "providers": sorted({each.name for each in entries if each.kind == "provider"}),
            "own": any(each.kind == "model" for each in entries),
            "targets": sorted(models - {"", "*"}),
        }


ALIASES = AliasPages(
    EntryKindWords(
        kinds=frozenset({"alias"}),
        noun="alias",
        list_path="/operator/aliases",
        deletion="Requests for this model are rejected at once. Its usage is kept.",
        list_template="operator/aliases.html",
        searched=("name", "targets"),
    ),
    FIELDS,
    AliasForm,
)
