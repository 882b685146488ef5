"""Chat pages: the playground, free catalog models without an account, and requests as code."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from msgspec.structs import replace

from causerie.catalog.listing import Listing
from causerie.errors import Forbidden, NotFound
from causerie.hosted.console.catalog_view import list_row
from causerie.hosted.console.request_context import PREFIX, RequestContext
from causerie.hosted.console.service_view import model_row
from causerie.http.exchange import BodyLimits, read_json
from causerie.http.pages.chat import number_fields
from causerie.http.pages.snippets import Snippet, SnippetGroup, request_snippets


def router_snippets(base: str, key: str, model: str) -> Sequence[SnippetGroup]:
    """Return code samples of requests to the router door at ``base``, one with OpenRouter's SDK."""
    sdk = (
        'import { OpenRouter } from "@openrouter/sdk";\n\n'
        f"const client = new OpenRouter({{\n  serverURL: {json.dumps(base)},\n"
        f"  apiKey: {json.dumps(key)},\n}});\n"
        "const completion = await client.chat.send({\n"
        f"  chatRequest: {{\n    model: {json.dumps(model)},\n"
        '    messages: [{ role: "user", content: "Hello!" }],\n'
        "  },\n});\n"
        "console.log(completion.choices[0].message.content);"
    )
    chat, *others = request_snippets(base, key, model)
    return replace(chat, snippets=[*chat.snippets, Snippet("sdk", "@openrouter/sdk", sdk)]), *others


def management_snippets(base: str, key: str, project: str) -> Sequence[SnippetGroup]:
    address = f"{base}/api/projects/{project}/keys"
    curl = f"curl {shlex.quote(address)} \\\n  -H 'Authorization: Bearer {key}'"
    return [SnippetGroup("management", "Management API", [Snippet("curl", "curl", curl)])]


async def show(context: RequestContext) -> None:
    rules = await context.rules()
    entries = [model_row(entry) for entry in context.service_view.models(rules=rules)]
    wanted = context.query.get("model")
    chosen = wanted if any(each.id == wanted for each in entries) else ""
    allowed = True
    try:
        await context.accounts.projects.ask(context.actor, context.params["project"])
    except Forbidden:
        allowed = False
    market = context.service_view.market()
    open_ = {door.prefix for door in context.service_view.doors()}
    await context.send_page(
        "playground.html",
        entries=entries,
        routed={each.id for each in market.entries()} if market and market.prefix in open_ else (),
        chosen=chosen,
        allowed=allowed,
        doors=[context.base + door.prefix for door in context.service_view.doors()],
        numbers=number_fields(),
        keys_at=f"{PREFIX}/projects/{context.params['project']}/keys",
    )


async def complete(context: RequestContext) -> None:
    project, routed = context.params["project"], context.query.get("routed") == "yes"
    await context.accounts.projects.ask(context.actor, project)
    await context.service_view.complete(context.exchange, context.me, project, routed=routed)


_LIMITS = BodyLimits(max_bytes=256 * 1024, seconds=10.0)


async def show_public_chat(context: RequestContext) -> None:
    one = _find_public_chat_model_of_path(context)
    chat = context.services.public_chat
    await context.send_page("catalog/chat.html", row=list_row(one), one=one, options=chat.options)


async def complete_public_chat(context: RequestContext) -> None:
    one, chat = _find_public_chat_model_of_path(context), context.services.public_chat
    body = chat.request(await read_json(context.exchange, _LIMITS), one.id)
    async with chat.message(context.client.address):
        await context.service_view.talk(context.exchange, body, one.id)


def _find_public_chat_model_of_path(context: RequestContext) -> Listing:
    market = context.service_view.market()
    name = f"{context.params['author']}/{context.params['slug']}"
    if market is not None and name in context.services.public_chat.options.models:
        one = market.entry(name)
        if context.services.public_chat.offers(one):
            return one
    raise NotFound("Without an account there is no chat with this model.")
