"""Routing explanation of a request that a form makes up, for operators, before anybody sends it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from causerie.hosted.console.fields import FormFields, typed_money, typed_whole
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.words import WORDS
from causerie.hosted.operations.explanation import RoutingExplanation
from causerie.hosted.operations.ports import RouteQuery

_FORMATS: Mapping[str, Any] = WORDS["explain"]["formats"]
_LISTS = ("order", "only", "ignore")
_PRICES = ("max_prompt", "max_completion")
_MOST_TOKENS = 10**9
_PICKS = (
    *("max_tokens", "tools", "format", "effort", "sort", "private", "strict", "alone"),
    *(*_LISTS, *_PRICES),
)


def _build_request_body(form: FormFields) -> bytes:
    if form.get("from") == "body":
        return form.raw("body").encode("utf-8", "surrogatepass")
    made: dict[str, Any] = {
        "model": form.get("model"),
        "messages": [{"role": "user", "content": form.raw("message") or "Hello"}],
    }
    if most := form.get("max_tokens"):
        made["max_tokens"] = typed_whole(most, "max_tokens", "Max tokens", _MOST_TOKENS)
    if form.get("tools"):
        made["tools"] = [WORDS["explain"]["tool"]]
    if found := _FORMATS.get(form.get("format")):
        made["response_format"] = found
    if effort := form.get("effort"):
        made["reasoning_effort"] = effort
    if provider := dict(_parse_provider_preference_pairs(form)):
        made["provider"] = provider
    return json.dumps(made, indent=2, ensure_ascii=False).encode()


def _parse_provider_preference_pairs(form: FormFields) -> Iterator[tuple[str, Any]]:
    for name, listed in form.given(_LISTS).items():
        yield name, [each.strip() for each in listed.split(",") if each.strip()]
    if sort := form.get("sort"):
        yield "sort", sort
    if prices := form.given(_PRICES):
        amounts = {name: typed_money(text, name, "price") for name, text in prices.items()}
        yield "max_price", {name.removeprefix("max_"): f"{n:f}" for name, n in amounts.items()}
    if form.get("private"):
        yield "data_collection", "deny"
    if form.get("strict"):
        yield "require_parameters", True
    if form.get("alone"):
        yield "allow_fallbacks", False


async def show(context: RequestContext) -> None:
    """Show the form; ``?model=`` fills in its model."""
    await context.operations.providers(context.actor)
    await _show_explanation(context, context.form or context.query)


async def explain(context: RequestContext) -> None:
    await context.operations.providers(context.actor)  # a wrong form names models and doors, too
    form, body = context.form, _build_request_body(context.form)
    door, key, session = (form.get(name) for name in ("door", "key", "session"))
    question = RouteQuery(body, door, key, session, form.get("reject") == "yes")
    told = await context.operations.explain(context.actor, question)
    await _show_explanation(context, form, told, body.decode("utf-8", "replace"))


async def _show_explanation(
    context: RequestContext,
    form: FormFields,
    explanation: RoutingExplanation | None = None,
    body: str = "",
) -> None:
    await context.send_page(
        "operator/explain.html",
        form=form,
        prefers=bool(form.given(_PICKS)),
        told=explanation,
        body=body or form.raw("body"),
        doors=[(name, name) for name in context.operations.doors()],
        models=context.operations.models(),
    )
