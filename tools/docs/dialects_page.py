"""Generate ``docs/reference/dialects.md`` from the dialects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping

from causerie.protocol.known_fields import PRIVILEGES, Privilege
from causerie.protocol.parameters import HINT_NAMES, HONOURED
from causerie.providers.dialect import Choice, Dialect, Shape
from causerie.providers.dialects import DIALECTS

_INTRODUCTION = """\
# Dialects

Everything that speaks chat completions speaks them a little differently. A provider's `dialect`
says how; this page is written from the code (`make docs`). Without one it is `generic`: parameters
of the interface go out as they came.

What a server does not know is treated as everywhere: a *hint* is dropped, a parameter whose effect
is relied on is refused with 400 `unsupported_parameter`, a field that is in no list is dropped
([fields](#fields)). Where the same effect can be had in another way, it is asked for in that way.
Whatever was dropped or rewritten is listed in the response header `x-request-changes`, for instance
`max_completion_tokens->max_tokens, user dropped`. Not listed are the model's name, how the reply
travels (`stream`, `stream_options`), a default that is said aloud, what says nothing and is left
out (`null`, no calls in an earlier message's `tool_calls`), and what the service does itself:
`session_id` (keeping a conversation on one provider), `include_reasoning` and `reasoning.exclude`
(providers are never asked to hide it; a reply that breaks could not be continued without it).

What a model of that server can do is not known from the dialect: `causerie probe` measures it.
"""
_FIELDS = """\
## Fields

The key that is sent to a provider is yours, and so is the bill. So a field of a request, at any
depth, goes out only if a list names it:

- the interface (the table above, and what is in `messages`, `tools`, `tool_choice`,
  `response_format`, `stream_options` and `prediction` by OpenAI's reference);
- the dialect (the list below);
- the provider's own setting:

```toml
[[providers]]
name = "north"
base_url = "https://north.example/v1"
passes = ["top_a", "messages.content.cache_control"]
```

A path has a dot between the names; elements of an array have none. What a listed field holds goes
out with it, without fields of privileged names. Parameters of the interface that the dialect would
refuse or drop may be listed too, if the server knows them after all.

Contents of a client's own choice are passed on whole. These are schemas (`parameters`, `schema`),
`metadata` if all its values are strings, `documents`, `chat_template_kwargs`, and an assistant's
`reasoning_details` and `extra_content`, which its provider made. A schema whose `$ref` leads out of
it is refused, since some servers would fetch it. `chat_template_kwargs` goes without the names that
the renderer of templates takes for itself (`chat_template`, `tokenize`, `tools` and others). Part
and tool types other than `text`, `image_url` and `function` are refused at every door; so are
`functions`, `web_search_options` and whatever else [the interface](api.md) refuses.

Whatever is in no list is dropped and named in `x-request-changes`: the first names, and the number
of the others. A door with `unknown_params = "reject"`, or a client that sends
`x-unknown-params: reject`, has the request refused instead, with the field in `param`; it goes to
another target first, if one gets the field. No header of a client reaches a provider, except that
a trace is gone on with where [tracing](../guides/tracing.md) says so.

{fields}
## Privileged fields

A field that chooses a model, a provider, a class of price, a plugin, a limit under another name,
the transport, an address or a credential never goes out, and `causerie check` refuses it in
`passes`. `callbackUrl`, `callback-url` and `callback_url` are one name; every name with a word for
an address (`url`, `host`, `port`, `proxy`, `webhook`, …) counts. `passes_privileged` lets one out,
with all that it holds. What it costs:

{privileges}
What such a field changes is not priced here, not held against a budget and not limited; the
provider's bill is the only place where it shows.
"""
_AFTER = """\
## Images

An image is in the request (a `data:` address) or named by an `https://` address. The service never
fetches what a request names. Providers fetch it themselves, from where they are, so it is passed on
to them. A server in your own network could be made to read there what only that network may, so one
gets addresses only with `fetches_images = true` at the provider.

An address whose host is not public is refused with 400, before any provider sees it. Not public
are private, link-local, loopback, carrier-grade, multicast and reserved numbers of both versions,
in every way of writing them (`2130706433`, `0x7f.1`, `127.1`, `[::ffff:127.0.0.1]`). Neither are
tunnels and relays (NAT64, 6to4, Teredo), names of one label, and names below `localhost`,
`local`, `internal`, `home.arpa`, `lan`, `intranet`, `svc` and the like. Refused are also user
names, escapes and backslashes in front of the path, which readers of addresses read differently.
The same holds for addresses of files, which a provider of the client's own API gets.
`private_image_hosts` lists exceptions:

```toml
[[providers]]
name = "eyes"
base_url = "http://10.0.0.5:8000/v1"
dialect = "vllm"
fetches_images = true
private_image_hosts = ["minio", ".images.corp.example", "10.0.8.0/24"]
```

Names are not resolved here, since the answer could be another one when the server asks again. So a
public name that leads inside, and a redirect, remain: a server that fetches must guard itself
(vLLM: `--allowed-media-domains`, or a proxy without a way inside). Where several providers serve a
model, a request with an address goes to one that may have it; where none may, it is refused.

## Replies

The service reads replies the same way from every server, and by content: one JSON value or a
stream, whatever the label says. Comments, events with another name than `message` or `error`,
`null`, and objects that say nothing are signs of life. A body that is compressed although none was
asked for (gzip, deflate, br, zstd) is decoded, up to 200 times its size. A longer streamed reply
than `max_reply_bytes` (64 MiB by default) breaks off:

```toml
[[providers]]
name = "north"
base_url = "https://api.example.org/v1"
max_reply_bytes = 8_388_608
```

- **Reasoning** is taken from `reasoning_content`, `reasoning`, `reasoning_details` or parts of the
  content. What is said again is said once: a whole `message` behind its pieces, reasoning behind
  the answer or between tags in it, a finished call.
- **Calls** are put together however they are cut up, by their id before their index, also from the
  older `function_call`. Ids that are missing, repeated, used by an earlier turn, or longer than 256
  characters are replaced. A call that goes out has the name of a function of the request and one
  JSON object as arguments: nothing and `null` are `{}`, several objects are several calls.
  Otherwise the attempt failed.
- **The end**: the words of [known providers](providers.md) for a limit, a filter or a failure are
  told apart. `length` and `content_filter` stand once they are said. An unknown word behind content
  is `stop`, or `tool_calls` where calls came; with nothing said, the attempt failed.
- **Usage**: a number that was told is not replaced by zero. More cached tokens than prompt tokens
  means that they are counted apart. A number that is impossible is estimated instead, marked as
  such, and [alerted](../guides/alerts.md): more output than the output limit, or than the bytes of
  the reply unless it was reasoned; more input than the context, or than the request with 131,072
  tokens.

Usage that a server leaves out is [estimated](../guides/billing.md#leaving-early) from the size of
the prompt and the pieces of the reply; reasoning tokens that are not told are the reasoning's
share of the characters. Reasoning that a server counts alongside the completion, as its total
tells, is added to it. A reply that ends without `[DONE]` is complete if every choice has its end;
one with `[DONE]` and no end counts as stopped.

## Refusals

| the provider answers | our client gets |
|---|---|
| 400, 413, 415, 422 | the same fault, 400 (413, 415), with the provider's words made safe |
| words about the context, at any status | 400 `context_length_exceeded`, with numbers if told |
| 401, 402, 403, 404, 405, 3xx | 502: our configuration is wrong, not the request |
| 429, where no other target answers | 429 `upstream_rate_limited`, with the time to wait |
| 529, 503 with `Retry-After` or while loading | 503 `no_endpoint`, with the time to wait |
| 408, 504, 522, 524 | 504 `upstream_timeout` |
| everything else, or what is no reply | 502 `bad_gateway` |

`error.metadata` has `upstream_status`, and `upstream_code` where the provider's own code is a word.
Of its text only words about the request are shown, on one line of at most 300 characters, without
whatever looks like a key, an address, a host, a path, markup or a stack trace.

## What to know

- **Ollama** cuts prompts that are longer than the context it has set aside, without a word; that
  setting of its own must be large enough.
- **DeepSeek** takes `temperature`, `presence_penalty` and `frequency_penalty` without effect while
  it thinks; `x-request-changes` says so. Replies are continued at its beta address only.
- **llama.cpp's server** goes on with a reply that is not streamed when its client has left, so
  replies are always streamed from it. For `n` above 1 it tells the usage of one choice.
- **vLLM** continues text, not the middle of its reasoning; where it takes the continued answer for
  reasoning, it is the answer.
- **Anthropic** is asked by its Messages API. Signed blocks of its thinking come as
  `reasoning_details`; send them back unchanged, and they stand where they stood between text and
  calls. A request without an output limit gets one of 32,000 tokens. `reasoning.max_tokens` asks
  for manual thinking, an effort for adaptive thinking, which models before Claude 4.6 do not know.
  Later models refuse manual thinking, forced calls while they think, and a final message of the
  assistant.
- **Azure OpenAI**: dialect `azure` speaks the v1 API at `https://NAME.openai.azure.com/openai/v1`,
  whose models are the names of deployments. `azure-deployments` speaks the older one at
  `https://NAME.openai.azure.com/openai`; `api_version` chooses its version.
- **Amazon Bedrock**: dialect `bedrock` speaks chat completions with a Bedrock API key
  ([guide](../guides/changing-keys.md#amazon-bedrock)). It refuses fields that it does not know.
- **The well-known aggregating router** drops parameters that a provider does not know, so it is
  told not to choose such a provider whenever the request has one that matters.
"""
_EXAMPLES: Mapping[Privilege, tuple[str, ...]] = {
    "model": ("models", "preset", "fallbacks", "lora_request"),
    "provider": ("provider", "route", "routing"),
    "price": ("service_tier", "priority", "ttl"),
    "plugin": ("plugins", "web_search", "transforms", "mcp_servers", "file_id"),
    "limit": ("max_new_tokens", "max_output_tokens", "num_predict"),
    "transport": ("kv_transfer_params", "vllm_xargs", "extra_headers", "options"),
    "address": ("callback_url", "base_url", "webhook", "remote_host"),
    "secret": ("api_key", "authorization", "organization"),
}
_SHAPES: tuple[Shape, ...] = ("json_object", "json_schema", "regex", "choice", "grammar")
_CHOICES: tuple[Choice, ...] = ("none", "auto", "required", "named", "allowed")
_OWN_ROWS = frozenset(
    {
        "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens",
        "tools", "tool_choice", "parallel_tool_calls", "response_format", "structured_outputs",
        "reasoning_effort", "reasoning", "include_reasoning", "thinking_token_budget",
        "chat_template_kwargs", "continue_final_message", "add_generation_prompt",
        "logprobs", "top_logprobs",
    }
)  # fmt: skip
_WRITTEN = {
    "object_schema": "a schema of any object",
    "choice_regex": "`regex`",
    "choice_grammar": "`grammar`",
}


def dialects_page() -> str:
    """The whole page."""
    return "\n".join(
        [
            _INTRODUCTION,
            "## How they differ\n",
            _differences(),
            "## Parameters\n",
            "✓ sent as it is · a name: sent under it · – dropped, a hint · ✗ refused\n",
            _parameters(),
            _FIELDS.format(fields=_fields(), privileges=_privileges()),
            _AFTER,
        ]
    )


def _differences() -> str:
    return "\n".join(_difference(title, cell) for title, cell in _DIFFERENCES)


def _difference(title: str, cell: Callable[[Dialect], str]) -> str:
    """Return a table of one difference: each way, and the dialects that have it."""
    ways: dict[str, list[str]] = {}
    for name, dialect in DIALECTS.items():
        ways.setdefault(cell(dialect), []).append(f"`{name}`")
    lines = [_line(title, ["dialects"]), _line("---", ["---"])]
    lines += [_line(way, [", ".join(names)]) for way, names in ways.items()]
    return "\n".join(lines) + "\n"


def _parameters() -> str:
    lines = [_header("parameter")]
    for name in sorted((HONOURED | HINT_NAMES) - _OWN_ROWS):
        lines.append(_line(f"`{name}`", (_sent(one, name) for one in DIALECTS.values())))
    return "\n".join(lines) + "\n"


def _fields() -> str:
    lines = ["Beyond the interface the dialects list:", ""]
    for name, dialect in DIALECTS.items():
        known = ", ".join(f"`{path}`" for path in sorted(dialect.knows)) or "nothing"
        lines.append(f"- `{name}`: {known}")
    return "\n".join(lines) + "\n"


def _privileges() -> str:
    lines = ["| it chooses | what follows | for instance |", "| --- | --- | --- |"]
    for privilege, words in PRIVILEGES.items():
        names = ", ".join(f"`{name}`" for name in _EXAMPLES[privilege])
        lines.append(f"| {privilege} | {words} | {names} |")
    return "\n".join(lines) + "\n"


def _sent(dialect: Dialect, name: str) -> str:
    if name in dialect.accepts:
        return "✓"
    if name in dialect.renames:
        return f"`{dialect.renames[name]}`"
    return "–" if name in HINT_NAMES or name in ("session_id", "modalities") else "✗"


def _header(title: str) -> str:
    names = list(DIALECTS)
    return _line(title, (f"`{name}`" for name in names)) + "\n" + _line("---", ["---"] * len(names))


def _line(title: str, cells: Iterable[str]) -> str:
    return "| " + " | ".join([title, *cells]) + " |"


def _switch(dialect: Dialect) -> str:
    return {
        "as_sent": "as sent",
        "template": "`chat_template_kwargs`",
        "effort": "`reasoning_effort`",
        "typed": "`thinking.type`",
        "object": "`reasoning`",
        "adaptive": "`thinking` and `output_config.effort`",
    }[dialect.thinking.switch]


def _efforts(dialect: Dialect) -> str:
    words = dict.fromkeys(dialect.thinking.efforts.values())
    place = " in the template" if dialect.thinking.effort_in_template else ""
    return ", ".join(words) + place


def _budget(dialect: Dialect) -> str:
    if dialect.thinking.switch == "as_sent":
        return "as sent"
    return f"`{dialect.thinking.budget}`" if dialect.thinking.budget else "✗"


def _earlier(dialect: Dialect) -> str:
    if dialect.history.parts:
        return "parts of `content`"
    names = " and ".join(f"`{name}`" for name in dialect.history.reasoning) or "left out"
    return f"{names}; its own blocks: `reasoning_details`" if dialect.history.details else names


def _messages(dialect: Dialect) -> str:
    history = dialect.history
    rules = [
        "`developer` is `system`" if not history.developer else "",
        f"ids of calls match `{history.call_ids.pattern}`" if history.call_ids else "",
        "no empty answer, no user behind a result, no answer last" if not history.lenient else "",
        "no `name`" if not history.names else "",
        "missing reasoning of calls is a space" if history.placeholder else "",
    ]
    return ", ".join(rule for rule in rules if rule) or "as sent"


def _choices(dialect: Dialect) -> str:
    known = [choice for choice in _CHOICES if choice in dialect.choices]
    if not known:
        return "only auto; none by sending no functions"
    less = " (others by sending fewer functions)" if len(known) < len(_CHOICES) else ""
    return ", ".join(known) + less


def _parallel(dialect: Dialect) -> str:
    if "parallel_tool_calls" not in dialect.accepts:
        return "✗"
    return "✓" if dialect.parallel_by_default else "✓, said always"


def _shapes(dialect: Dialect) -> str:
    cells = []
    for shape in _SHAPES:
        way = dialect.shapes.get(shape)
        if way is not None:
            cells.append(f"{shape}: {_WRITTEN.get(way, f'`{way}`')}")
    strict = "; `strict` is always true" if dialect.strict_schemas else ""
    return ", ".join(cells) + strict


def _logprobs(dialect: Dialect) -> str:
    if "logprobs" not in dialect.accepts:
        return "✗"
    return f"✓, at least {dialect.least_top_logprobs}" if dialect.least_top_logprobs else "✓"


def _continuing(dialect: Dialect) -> str:
    way = dialect.continuing
    name = {
        "none": "✗",
        "as_sent": "where probed",
        "flag": "`continue_final_message`",
        "prefix": "`prefix: true`",
    }[way.way]
    return name + (", inside reasoning too" if way.in_reasoning else "")


def _limit(dialect: Dialect) -> str:
    return f"`{dialect.limit}`" if dialect.limit else "as sent"


def _streams(dialect: Dialect) -> str:
    asked = "always streamed" if dialect.streams else "as the client asks"
    return asked if dialect.tells_usage else f"{asked}; usage comes unasked"


_DIFFERENCES: tuple[tuple[str, Callable[[Dialect], str]], ...] = (
    ("server", lambda dialect: dialect.server),
    ("thinking is switched by", _switch),
    ("words of effort", _efforts),
    ("budget for thinking", _budget),
    ("earlier reasoning goes into", _earlier),
    ("messages", _messages),
    ("output limit", _limit),
    ("`tool_choice`", _choices),
    ("`parallel_tool_calls`", _parallel),
    ("shaped answers", _shapes),
    ("`logprobs`", _logprobs),
    ("reasoning in tags is looked for", lambda dialect: "✓" if dialect.tags else "–"),
    ("images by `https://` addresses", lambda dialect: "✓" if dialect.fetches else "✗"),
    ("a reply is continued by", _continuing),
    ("streams", _streams),
)


if __name__ == "__main__":
    sys.stdout.write(dialects_page())
