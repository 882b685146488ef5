"""Code examples of requests in each API, filled into the templates of ``snippets.toml``."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, to_builtins

from causerie.protocol.parameters import PARAMETERS

_TABLE = tomllib.loads(Path(__file__).with_name("snippets.toml").read_text("utf-8"))
_REQUESTS: Mapping[str, str] = _TABLE["requests"]
_UNREACHED: str = _TABLE["unreached"]
_VERSION = "/v1"


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
    """True if the base URL of its packages has ``/v1``."""
    environment: str
    first: Mapping[str, Any]
    """A first request, besides its model."""
    arguments: Sequence[str]
    """Fields that the Python package has arguments for."""
    python: Sequence[str]
    """Lines that show a reply: a whole one, and a stream."""
    javascript: Sequence[str]


APIS = convert(_TABLE["apis"], tuple[CodeApi, ...])
LANGUAGES: Mapping[str, str] = _TABLE["languages"]
_NAMES = {
    name: {
        api: given for api in ("responses", "messages") if (given := getattr(each.facts, api)) != ""
    }
    for name, each in PARAMETERS.items()
}
CODE = {
    "apis": to_builtins(APIS),
    "languages": _REQUESTS,
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
    """Return the code of a first request to ``base`` in each API, and settings of coding agents."""
    toml = _filled_text(_TABLE["codex"], base=_quote_json(base), model=_quote_json(model))
    codex = f"export CAUSERIE_API_KEY={shlex.quote(key)}"
    files = [Snippet("file", "config.toml", toml), Snippet("environment", "Environment", codex)]
    requests = []
    for api in APIS:
        environment = _build_environment_snippet(api, api.environment, base, key)
        snippets = [*_build_request_snippets(api, base, key, model), environment]
        requests.append(SnippetGroup(api.id, api.title, snippets))
    claude = _build_environment_snippet(APIS[-1], _TABLE["claude_code"], base, key, model)
    return [
        *requests,
        SnippetGroup("claude", "Claude Code", [claude]),
        SnippetGroup("codex", "Codex", files),
    ]


def first_bodies(base: str, model: str) -> dict[str, dict[str, Any]]:
    """Return the URL and body of a first request in each API, by the id of the API."""
    return {api.id: {"url": base + api.path, "body": {"model": model, **api.first}} for api in APIS}


def _build_request_snippets(api: CodeApi, base: str, key: str, model: str) -> list[Snippet]:
    body = {"model": model, **api.first}
    address = _find_client_base_url(api, base)
    values = {
        **{"package": api.package, "module": api.module, "client": api.client, "call": api.call},
        **{"base": _quote_json(address or ""), "key": _quote_json(key)},
        "arguments": "\n".join(f"    {name}={_quote_json(value)}," for name, value in body.items()),
        "body": re.sub(r'^( *)"(\w+)":', r"\1\2:", json.dumps(body, indent=2), flags=re.MULTILINE),
    }
    sent = shlex.quote(json.dumps(body, ensure_ascii=False))
    url = shlex.quote(base + api.path)
    texts = {
        "curl": _filled_text(_REQUESTS["curl"], unbuffered="", url=url, key=key, body=sent),
        "python": _filled_text(_REQUESTS["python"], **values, shown=api.python[0]),
        "javascript": _filled_text(_REQUESTS["javascript"], **values, shown=api.javascript[0]),
    }
    if address is None:
        texts |= {"python": f"# {_UNREACHED}", "javascript": f"// {_UNREACHED}"}
    return [Snippet(id, title, texts[id]) for id, title in LANGUAGES.items()]


def _find_client_base_url(api: CodeApi, base_url: str) -> str | None:
    if api.versioned:
        return base_url
    return base_url.removesuffix(_VERSION) if base_url.endswith(_VERSION) else None


def _build_environment_snippet(
    api: CodeApi, template: str, base: str, key: str, model: str = ""
) -> Snippet:
    address, text = _find_client_base_url(api, base), f"# {_UNREACHED}"
    if address is not None:
        words = {"base": address, "key": key, "model": model}
        text = _filled_text(template, **{name: shlex.quote(word) for name, word in words.items()})
    return Snippet("environment", "Environment", text)


def _filled_text(template: str, **values: str) -> str:
    return re.sub(r"<(\w+)>", lambda found: values[found[1]], template)


def _quote_json(value: object) -> str:
    # Texts, numbers and lists of them look alike in Python, JavaScript and TOML.
    return json.dumps(value, ensure_ascii=False)
