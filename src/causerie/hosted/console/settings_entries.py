"""Models of this service and doors: entries whose form is fields of plain settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from causerie.errors import InvalidRequest
from causerie.hosted.console.entries import (
    EntryFormPages,
    EntryKindWords,
    EntryProblems,
    entries_of,
    of_unknown_kinds,
    origin_of,
    read_rest,
    rest_of,
    typed_number,
)
from causerie.hosted.console.fields import FormFields, page_of
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.operations.configuring import Configuring, EntryView, EntryWish
from causerie.protocol.numbers import whole_number

_BETWEEN = re.compile(r"[\s,]+")


@dataclass(frozen=True, slots=True)
class SettingField:
    """A field for one setting. ``name`` is its path, as in ``limits.concurrent``."""

    name: str
    title: str
    kind: Literal["text", "number", "list", "choice", "flag"] = "text"
    hint: str = ""
    choices: Sequence[tuple[str, str]] = ()
    """Of a choice: values and their words; the empty value leaves the setting out."""
    placeholder: str = ""
    group: str = ""
    """Title of the part of the form that is folded; empty: always shown."""
    needed: bool = False


LIMITS = tuple(
    SettingField(f"limits.{name}", title, "number", group="Limits")
    for name, title in (
        ("requests_per_minute", "Requests / min"),
        ("tokens_per_minute", "Tokens / min"),
        ("concurrent", "At the same time"),
    )
)
"""Fields that limit all use together."""


@dataclass(frozen=True, slots=True)
class SettingsForm:
    """Contents of the form: a text for each field, and all other settings as JSON."""

    fields: Sequence[SettingField]
    values: Mapping[str, str] = field(default_factory=dict)
    more: str = ""
    version: str = ""

    @staticmethod
    def of(
        fields: Sequence[SettingField], settings: Mapping[str, Any], version: int
    ) -> SettingsForm:
        rest = _copied(settings)
        values = {
            each.name: _text(found)
            for each in fields
            if (found := _taken(rest, each.name.split("."))) is not None
        }
        return SettingsForm(fields, values, rest_of(rest), str(version))

    @staticmethod
    def typed(fields: Sequence[SettingField], form: FormFields) -> SettingsForm:
        values = {each.name: form.get(each.name) for each in fields if form.get(each.name)}
        return SettingsForm(fields, values, form.raw("more").strip(), form.get("version"))

    @property
    def groups(self) -> Mapping[str, Sequence[SettingField]]:
        """Return the fields by the title of their part, in order."""
        found: dict[str, list[SettingField]] = {}
        for each in self.fields:
            found.setdefault(each.group, []).append(each)
        return found

    def settings(self) -> dict[str, Any]:
        """Return the settings that were typed; raise :class:`InvalidRequest`."""
        settings = read_rest(self.more)
        for each in self.fields:
            text = self.values.get(each.name, "")
            if text:
                _put(settings, each.name.split("."), _value(each, text))
        return settings

    def wish(self, *, enabled: bool = True) -> EntryWish:
        """Return the wanted state; raise :class:`InvalidRequest`."""
        for each in self.fields:
            if each.needed and not self.values.get(each.name):
                raise InvalidRequest("is missing", param=each.name)
        version = whole_number(self.version)
        return EntryWish(settings=self.settings(), enabled=enabled, version=version)


def _value(field: SettingField, text: str) -> Any:
    if field.kind == "list":
        return [part for part in _BETWEEN.split(text) if part]
    if field.kind == "flag":
        return True
    return typed_number(text) if field.kind == "number" else text


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "on" if value else ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _copied(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _copied(value) if isinstance(value, Mapping) else value
        for name, value in settings.items()
    }


def _taken(settings: dict[str, Any], path: Sequence[str]) -> Any:
    name, *inner = path
    found = settings.get(name)
    if not inner:
        return settings.pop(name, None) if not isinstance(found, dict) else None
    if not isinstance(found, dict):
        return None
    value = _taken(found, inner)
    if not found:
        del settings[name]
    return value


def _put(settings: dict[str, Any], path: Sequence[str], value: Any) -> None:
    name, *inner = path
    if not inner:
        settings[name] = value
        return
    table = settings.setdefault(name, {})
    if not isinstance(table, dict):
        raise InvalidRequest(f"has `{name}`, which is a table", param="more")
    _put(table, inner, value)


_FORM = "operator/settings_entry.html"
_PRICE = "$ per 1M tokens."
_AT_ONCE = "Requests at the same time"
_REPLICAS = "Processes that share the requests."
_COLUMNS: Mapping[str, Callable[[EntryView], str]] = {
    "id": lambda one: one.name.casefold(),
    "origin": lambda one: one.origin,
}


@dataclass(frozen=True, slots=True)
class SettingsKind:
    """A kind of entries: its form, its list, and its words."""

    words: EntryKindWords
    fields: Sequence[SettingField]
    list_template: str
    title: str
    """Title of the form of a new one."""
    section: str
    """Of the configuration file."""
    searched: Sequence[str]
    """Settings that the search of the list looks at, in addition to the name."""


def _numbers(table: str, group: str, *rows: tuple[str, str, str]) -> Iterator[SettingField]:
    for name, title, hint in rows:
        yield SettingField(f"{table}.{name}", title, "number", hint, group=group)


MODELS = SettingsKind(
    words=EntryKindWords(
        kinds=frozenset({"model"}),
        noun="model",
        notice="model",
        list_path="/operator/models",
        path="/operator/models",
        delete_button="Delete model",
        deletion="It is unloaded when its last request has ended. Weights and usage are kept.",
    ),
    fields=(
        SettingField("id", "ID", hint="The `model` of requests.", needed=True),
        SettingField(
            "ref",
            "Weights",
            hint="`hf:ORG/REPO`, with `:QUANT` or `:FILE` behind it if there are several.",
            placeholder="hf:Qwen/Qwen3-4B-GGUF:Q4_K_M",
        ),
        SettingField(
            "engine",
            "Engine",
            "choice",
            choices=(("", "llama.cpp"), ("openvino", "OpenVINO"), ("vllm", "vLLM")),
        ),
        SettingField("name", "Name", hint="Shown in lists. Empty: the ID.", group="Name and price"),
        SettingField("description", "Description", group="Name and price"),
        SettingField(
            "price.prompt", "Input price", hint=_PRICE, placeholder="0", group="Name and price"
        ),
        SettingField(
            "price.completion", "Output price", hint=_PRICE, placeholder="0", group="Name and price"
        ),
        *LIMITS,
        SettingField("max_output_tokens", "Output tokens of a request", "number", group="Limits"),
        SettingField(
            "idle_unload_seconds",
            "Unload after",
            "number",
            hint="Seconds without a request. Empty: never.",
            group="Limits",
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
    list_template="operator/own_models.html",
    title="Add model",
    section="models",
    searched=("name", "ref", "engine"),
)
DOORS = SettingsKind(
    words=EntryKindWords(
        kinds=frozenset({"door"}),
        noun="door",
        notice="door",
        list_path="/operator/doors",
        path="/operator/doors",
        delete_button="Delete door",
        deletion="Its addresses answer 404 at once. Models, keys and usage are kept.",
    ),
    fields=(
        SettingField("name", "Name", hint="Lower case. Part of its base URL.", needed=True),
        SettingField(
            "kind",
            "Kind",
            "choice",
            choices=(
                ("gateway", "gateway: aliases"),
                ("router", "router: the catalog"),
                ("hosted", "hosted: models of this service and aliases, for keys of accounts"),
                ("endpoint", "endpoint: models of this service"),
            ),
        ),
        SettingField(
            "keys",
            "Access",
            "choice",
            choices=(("", "as for the whole service"), ("accounts", "API keys of this console")),
        ),
        SettingField(
            "models",
            "Models",
            "list",
            "IDs; one with `*` at the end stands for all that start with it. Empty: all.",
        ),
        SettingField("prefix", "Path", placeholder="/gateway/v1", group="Addresses"),
        SettingField("hosts", "Host names", "list", group="Addresses"),
        SettingField("origins", "Origins of web pages", "list", group="Addresses"),
        *LIMITS,
        SettingField(
            "unknown_params",
            "Unknown fields of requests",
            "choice",
            choices=(("", "left out, and named in x-request-changes"), ("reject", "rejected")),
            group="Requests",
        ),
        SettingField(
            "long_output",
            "Output limits that do not fit beside the prompt",
            "choice",
            choices=(("", "lowered, and named in x-request-changes"), ("reject", "rejected")),
            group="Requests",
        ),
        SettingField(
            "reasoning", "Requests may have the `reasoning` object", "flag", group="Requests"
        ),
        SettingField(
            "cache_scope",
            "Prompt cache",
            "choice",
            choices=(
                ("", "as the kind of keys suggests"),
                ("project", "each project reuses its own prompts"),
                ("service", "everybody reuses prompts of everybody"),
            ),
            group="Requests",
        ),
    ),
    list_template="operator/doors.html",
    title="Add door",
    section="doors",
    searched=("kind", "hosts", "models"),
)


class SettingsEntryPages(EntryFormPages[SettingsForm]):
    """The list of the entries of a kind, and the form of one."""

    def __init__(self, configuration: Configuring, kind: SettingsKind) -> None:
        super().__init__(configuration, kind.words)
        self._kind = kind

    async def list(self, context: RequestContext) -> None:
        entries = await entries_of(self._configuration, context.actor)
        own = [each for each in entries if each.kind in self._words.kinds]
        page = page_of(own, context.query, self._texts, _COLUMNS)
        unknown = of_unknown_kinds(entries)
        await context.show(self._kind.list_template, page=page, unknown=unknown)

    def _empty(self) -> SettingsForm:
        return SettingsForm(self._kind.fields)

    def _typed(self, form: FormFields) -> SettingsForm:
        return SettingsForm.typed(self._kind.fields, form)

    def _kept(self, entry: EntryView) -> SettingsForm:
        return SettingsForm.of(self._kind.fields, entry.settings, entry.version)

    async def _show(
        self,
        context: RequestContext,
        entry: EntryView | None,
        form: SettingsForm,
        failure: InvalidRequest | None = None,
    ) -> None:
        label = self._kind.fields[0].name
        (kind,) = self._words.kinds
        origin = origin_of(kind, form.values.get(label, ""))
        names = (*(each.name for each in form.fields), "more")
        problems = EntryProblems(failure, origin, names)
        await context.show_form(
            _FORM, failure, entry=entry, form=form, kind=self._kind, problems=problems
        )

    def _texts(self, entry: EntryView) -> Iterator[str]:
        yield entry.name
        for name in self._kind.searched:
            yield str(entry.settings.get(name, ""))
