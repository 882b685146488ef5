"""Requests as code that people can run, in each API: one table, which static/snippets.js reads too.

In its texts ``<name>`` stands for a value.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from causerie.protocol.parameters import PARAMETERS

_CURL = """curl <unbuffered><url> \\
  -H "Authorization: Bearer <key>" \\
  -H "Content-Type: application/json" \\
  -d <body>"""
_PYTHON = """from <package> import <client>

client = <client>(
    base_url=<base>,
    api_key=<key>,
)
reply = client.<call>(
<arguments>
)
<shown>"""
_JAVASCRIPT = """import <client> from "<module>";

const client = new <client>({
  baseURL: <base>,
  apiKey: <key>,
});
const reply = await client.<call>(<body>);
<shown>"""
_OPENAI = "export OPENAI_BASE_URL=<base>\nexport OPENAI_API_KEY=<key>"
_OF_OPENAI: Mapping[str, Any] = {
    **{"package": "openai", "module": "openai", "client": "OpenAI"},
    **{"versioned": True, "environment": _OPENAI},
}
_ANTHROPIC = "export ANTHROPIC_BASE_URL=<base>\nexport ANTHROPIC_AUTH_TOKEN=<key>"
_CLAUDE_CODE = (
    f"{_ANTHROPIC}\nexport ANTHROPIC_MODEL=<model>\nexport ANTHROPIC_DEFAULT_HAIKU_MODEL=<model>"
)
_CODEX = """# ~/.codex/config.toml
model = <model>
model_provider = "causerie"

[model_providers.causerie]
name = "Causerie"
base_url = <base>
env_key = "CAUSERIE_API_KEY"
wire_api = "responses\""""
_VERSION = "/v1"
_UNREACHED = (
    "The base URL of this door does not end in /v1, which clients of Messages append: use curl."
)
_HELLO = [{"role": "user", "content": "Hello!"}]
_COMMON = (
    *("model", "stream", "temperature", "top_p", "tools", "tool_choice", "parallel_tool_calls"),
    *("top_logprobs", "metadata", "service_tier", "store", "prompt_cache_key", "user"),
)


class CodeApi(Struct, frozen=True):
    """One API in code: its packages, the call, and how the text of a reply is shown."""

    id: str
    title: str
    path: str
    package: str
    module: str
    client: str
    call: str
    versioned: bool
    """Whether the base URL of its packages has ``/v1``."""
    environment: str
    first: Mapping[str, Any]
    """A first request, besides its model."""
    arguments: Sequence[str]
    """Fields that the Python package has arguments for."""
    python: Sequence[str]
    """Lines that show a reply: a whole one, and a stream."""
    javascript: Sequence[str]


APIS = (
    CodeApi(
        id="chat",
        title="Chat completions",
        path="/chat/completions",
        call="chat.completions.create",
        **_OF_OPENAI,
        first={"messages": _HELLO},
        arguments=(
            *_COMMON, "messages", "stream_options", "max_tokens", "max_completion_tokens", "n",
            "frequency_penalty", "presence_penalty", "seed", "logit_bias", "logprobs", "stop",
            "response_format", "reasoning_effort",
        ),
        python=(
            "print(reply.choices[0].message.content)",
            "for chunk in reply:\n    for choice in chunk.choices:\n"
            '        print(choice.delta.content or "", end="", flush=True)',
        ),
        javascript=(
            "console.log(reply.choices[0].message.content);",
            "for await (const chunk of reply) {\n"
            '  process.stdout.write(chunk.choices[0]?.delta.content ?? "");\n}',
        ),
    ),
    CodeApi(
        id="responses",
        title="Responses",
        path="/responses",
        call="responses.create",
        **_OF_OPENAI,
        first={"input": "Hello!"},
        arguments=(*_COMMON, "input", "max_output_tokens", "reasoning", "text", "include"),
        python=(
            "print(reply.output_text)",
            'for event in reply:\n    if event.type == "response.output_text.delta":\n'
            '        print(event.delta, end="", flush=True)',
        ),
        javascript=(
            "console.log(reply.output_text);",
            "for await (const event of reply) {\n"
            '  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);'
            "\n}",
        ),
    ),
    CodeApi(
        id="messages",
        title="Messages",
        path="/messages",
        package="anthropic",
        module="@anthropic-ai/sdk",
        client="Anthropic",
        call="messages.create",
        versioned=False,
        environment=_ANTHROPIC,
        first={"max_tokens": 1024, "messages": _HELLO},
        arguments=(
            *("model", "messages", "max_tokens", "system", "stream", "stop_sequences", "tools"),
            *("tool_choice", "thinking", "output_config", "metadata", "service_tier"),
        ),
        python=(
            'for block in reply.content:\n    if block.type == "text":\n        print(block.text)',
            'for event in reply:\n    if event.type == "content_block_delta":\n'
            '        print(getattr(event.delta, "text", ""), end="", flush=True)',
        ),
        javascript=(
            'console.log(reply.content.map((block) => block.text ?? "").join(""));',
            "for await (const event of reply) {\n"
            '  process.stdout.write(event.delta?.text ?? "");\n}',
        ),
    ),
)  # fmt: skip
LANGUAGES = {"curl": "curl", "python": "Python", "javascript": "JavaScript"}
_NAMES = {
    name: {
        api: given for api in ("responses", "messages") if (given := getattr(each.facts, api)) != ""
    }
    for name, each in PARAMETERS.items()
}
CODE = {
    "apis": to_builtins(APIS),
    "languages": {"curl": _CURL, "python": _PYTHON, "javascript": _JAVASCRIPT},
    "unreached": _UNREACHED,
    "names": {name: others for name, others in _NAMES.items() if others},
}
"""The table for scripts; ``names`` are the places of parameters in other APIs, ``None`` without."""


class Snippet(Struct, frozen=True):
    id: str
    title: str
    text: str = ""


class SnippetGroup(Struct, frozen=True):
    """The code for one API or program, in several languages or files."""

    id: str
    title: str
    snippets: Sequence[Snippet]


BLANKS = tuple(
    SnippetGroup(each.id, each.title, [Snippet(*one) for one in LANGUAGES.items()]) for each in APIS
)
"""Groups that a script fills."""


def request_snippets(base: str, key: str, model: str) -> list[SnippetGroup]:
    """Return a first request to the door at ``base`` in each API, and settings of agents."""
    toml = _filled(_CODEX, base=_quoted(base), model=_quoted(model))
    codex = f"export CAUSERIE_API_KEY={shlex.quote(key)}"
    files = [Snippet("file", "config.toml", toml), Snippet("environment", "Environment", codex)]
    requests = []
    for api in APIS:
        environment = _environment(api, api.environment, base, key)
        snippets = [*_requests(api, base, key, model), environment]
        requests.append(SnippetGroup(api.id, api.title, snippets))
    claude = _environment(APIS[-1], _CLAUDE_CODE, base, key, model)
    return [
        *requests,
        SnippetGroup("claude", "Claude Code", [claude]),
        SnippetGroup("codex", "Codex", files),
    ]


def first_bodies(base: str, model: str) -> dict[str, dict[str, Any]]:
    """Return address and body of a first request in each API, for a script."""
    return {api.id: {"url": base + api.path, "body": {"model": model, **api.first}} for api in APIS}


def _requests(api: CodeApi, base: str, key: str, model: str) -> list[Snippet]:
    body = {"model": model, **api.first}
    address = _client_base(api, base)
    values = {
        **{"package": api.package, "module": api.module, "client": api.client, "call": api.call},
        **{"base": _quoted(address or ""), "key": _quoted(key)},
        "arguments": "\n".join(f"    {name}={_quoted(value)}," for name, value in body.items()),
        "body": re.sub(r'^( *)"(\w+)":', r"\1\2:", json.dumps(body, indent=2), flags=re.MULTILINE),
    }
    sent = shlex.quote(json.dumps(body, ensure_ascii=False))
    url = shlex.quote(base + api.path)
    texts = {
        "curl": _filled(_CURL, unbuffered="", url=url, key=key, body=sent),
        "python": _filled(_PYTHON, **values, shown=api.python[0]),
        "javascript": _filled(_JAVASCRIPT, **values, shown=api.javascript[0]),
    }
    if address is None:
        texts |= {"python": f"# {_UNREACHED}", "javascript": f"// {_UNREACHED}"}
    return [Snippet(id, title, texts[id]) for id, title in LANGUAGES.items()]


def _client_base(api: CodeApi, base: str) -> str | None:
    if api.versioned:
        return base
    return base.removesuffix(_VERSION) if base.endswith(_VERSION) else None


def _environment(api: CodeApi, template: str, base: str, key: str, model: str = "") -> Snippet:
    address, text = _client_base(api, base), f"# {_UNREACHED}"
    if address is not None:
        words = {"base": address, "key": key, "model": model}
        text = _filled(template, **{name: shlex.quote(word) for name, word in words.items()})
    return Snippet("environment", "Environment", text)


def _filled(template: str, **values: str) -> str:
    return re.sub(r"<(\w+)>", lambda found: values[found[1]], template)


def _quoted(value: object) -> str:
    # Texts, numbers and lists of them look alike in Python, JavaScript and TOML.
    return json.dumps(value, ensure_ascii=False)
