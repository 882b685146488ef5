"""Routing explanation of a request that a form makes up, for operators, before anybody sends it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from causerie.errors import InvalidRequest
from causerie.hosted.console.fields import FormFields
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.operations.explanation import RoutingExplanation
from causerie.hosted.operations.ports import RouteQuery
from causerie.protocol.numbers import money

_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
    },
}
_SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "schema": {"type": "object", "properties": {"answer": {"type": "string"}}},
    },
}
_FORMATS = MappingProxyType({"json_object": {"type": "json_object"}, "json_schema": _SCHEMA})
_LISTS = ("order", "only", "ignore")
_PRICES = ("prompt", "completion")
_PICKS = (
    *("max_tokens", "tools", "format", "effort", "sort", "private", "strict", "alone"),
    *_LISTS,
    *(f"max_{name}" for name in _PRICES),
)
FORMATS = (("", "text"), ("json_object", "JSON"), ("json_schema", "JSON Schema"))
EFFORTS = (
    ("", "not set"),
    ("none", "none"),
    ("low", "low"),
    ("medium", "medium"),
    ("high", "high"),
)
SORTS = (("", "not set"), ("price", "price"), ("throughput", "throughput"), ("latency", "latency"))


@dataclass(frozen=True, slots=True)
class RouteForm:
    """Values of the form. ``written``: pasted body. ``reject``: unknown fields are refused."""

    door: str = ""
    model: str = ""
    key: str = ""
    session: str = ""
    message: str = "Hello"
    body: str = ""
    written: bool = False
    reject: bool = False
    picks: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(fields: FormFields) -> RouteForm:
        return RouteForm(
            door=fields.get("door"),
            model=fields.get("model"),
            key=fields.get("key"),
            session=fields.get("session"),
            message=fields.raw("message"),
            body=fields.raw("body"),
            written=fields.get("from") == "body",
            reject=fields.get("reject") == "yes",
            picks={name: fields.get(name) for name in _PICKS if fields.get(name)},
        )

    def request(self) -> bytes:
        if self.written:
            return self.body.encode("utf-8", "surrogatepass")
        return json.dumps(self._picked(), indent=2, ensure_ascii=False).encode()

    def _picked(self) -> dict[str, Any]:
        picks = self.picks
        made: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": self.message or "Hello"}],
        }
        if "max_tokens" in picks:
            made["max_tokens"] = _number(picks["max_tokens"], "max_tokens")
        if "tools" in picks:
            made["tools"] = [_TOOL]
        if picks.get("format") in _FORMATS:
            made["response_format"] = _FORMATS[picks["format"]]
        if "effort" in picks:
            made["reasoning_effort"] = picks["effort"]
        if provider := dict(self._provider()):
            made["provider"] = provider
        return made

    def _provider(self) -> Iterator[tuple[str, Any]]:
        picks = self.picks
        for name in _LISTS:
            if name in picks:
                yield name, [each.strip() for each in picks[name].split(",") if each.strip()]
        if "sort" in picks:
            yield "sort", picks["sort"]
        bounds = {name: picks[f"max_{name}"] for name in _PRICES if f"max_{name}" in picks}
        if bounds:
            for name, price in bounds.items():
                _check_price(price, f"max_{name}")
            yield "max_price", bounds
        if "private" in picks:
            yield "data_collection", "deny"
        if "strict" in picks:
            yield "require_parameters", True
        if "alone" in picks:
            yield "allow_fallbacks", False


def _check_price(text: str, field: str) -> None:
    try:
        money(text)
    except ValueError as failure:
        raise InvalidRequest(f"Write a number: {failure}.", param=field) from failure


def _number(text: str, field: str) -> int | float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise InvalidRequest("Write a number of 0 or more, like 0.5.", param=field)
    return int(number) if number == int(number) else number


async def show(context: RequestContext) -> None:
    """Show the form; ``?model=`` fills one in."""
    await context.operations.providers(context.actor)
    form = RouteForm(model=context.query.get("model"))
    await _show(context, RouteForm.of(context.form) if context.form else form)


async def explain(context: RequestContext) -> None:
    await context.operations.providers(context.actor)  # a wrong form names models and doors, too
    form = RouteForm.of(context.form)
    question = RouteQuery(form.request(), form.door, form.key, form.session, form.reject)
    told = await context.operations.explain(context.actor, question)
    await _show(context, form, told, question.body.decode("utf-8", "replace"))


async def _show(
    context: RequestContext,
    form: RouteForm,
    told: RoutingExplanation | None = None,
    body: str = "",
) -> None:
    await context.show(
        "operator/explain.html",
        form=form,
        told=told,
        body=body or form.body,
        doors=[(name, name) for name in context.operations.doors()],
        models=context.operations.models(),
        formats=FORMATS,
        efforts=EFFORTS,
        sorts=SORTS,
    )
