"""The OpenAPI document as one page of HTML, without scripts."""

from __future__ import annotations

from html import escape
from typing import Any

import msgspec

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code{font-family:ui-monospace,monospace;font-size:.9em}
table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}
th,td{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0}
tr{border-bottom:1px solid #8884}
h2 code{font-size:1.1rem}
.method{font-weight:700;text-transform:uppercase}
"""


def page(document: Any) -> str:
    """The page: operations first, then the objects that they speak of."""
    info = document["info"]
    operations = "".join(
        _operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    schemas = "".join(
        _schema(name, schema) for name, schema in document["components"]["schemas"].items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"<p>{_prose(info['description'])}</p>"
        '<p>For machines: <a href="/openapi.json">openapi.json</a></p>'
        f"{operations}<h1>Objects</h1>"
        "<p>In requests <code>null</code> is the same as leaving an optional field out.</p>"
        f"{schemas}</body></html>\n"
    )


def _operation(path: str, method: str, operation: Any) -> str:
    rows = [
        (status, _prose(answer["description"])) for status, answer in operation["responses"].items()
    ]
    sent = [
        (
            f"<code>{escape(one['name'])}</code>{' (required)' if one['required'] else ''}",
            " ".join([_kind(one["schema"]), _prose(one["description"])]),
        )
        for one in operation.get("parameters", [])
    ]
    body = operation.get("requestBody")
    taken = ""
    if body is not None:
        taken = f"<p>Takes {_kind(body['content']['application/json']['schema'])} as JSON.</p>"
    return (
        f'<h2><span class="method">{escape(method)}</span> <code>{escape(path)}</code></h2>'
        f"<p>{escape(operation['summary'])}.</p>{taken}"
        + (_table(("Parameter", "Meaning"), sent) if sent else "")
        + _table(("Status", "When"), rows)
    )


def _schema(name: str, schema: Any) -> str:
    properties = schema.get("properties")
    if properties is None:
        return f'<h2 id="{escape(name)}"><code>{escape(name)}</code></h2><p>{_kind(schema)}</p>'
    required = schema.get("required", [])
    rows = [
        (
            f"<code>{escape(field)}</code>{' (required)' if field in required else ''}",
            " ".join(filter(None, [_kind(inner), _prose(inner.get("description", ""))])),
        )
        for field, inner in properties.items()
    ]
    head = f'<h2 id="{escape(name)}"><code>{escape(name)}</code></h2>'
    return head + _table(("Field", "Meaning"), rows)


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = "".join(f"<tr><td>{left}</td><td>{right}</td></tr>" for left, right in rows)
    return f"<table><tr><th>{head[0]}</th><th>{head[1]}</th></tr>{lines}</table>"


def _kind(schema: Any) -> str:
    """A schema in a few words; that ``null`` is the same as leaving out is said once, above."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    branches = schema.get("oneOf") or schema.get("anyOf")
    if branches:
        return " or ".join(_kind(one) for one in branches if one != {"type": "null"})
    if "enum" in schema:
        words = [escape(_word(one)) for one in schema["enum"] if one is not None]
        return ", ".join(f"<code>{word}</code>" for word in words)
    kinds = schema.get("type", "anything")
    words = [kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"]
    if words == ["array"]:
        return f"array of {_kind(schema['items'])}" if "items" in schema else "array"
    fields = ", ".join(f"<code>{escape(name)}</code>" for name in schema.get("properties", {}))
    return " or ".join(words) + _bounds(schema) + (f" with {fields}" if fields else "")


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _bounds(schema: Any) -> str:
    names = {
        "minimum": "from",
        "exclusiveMinimum": "above",
        "maximum": "to",
        "pattern": "matching",
    }
    parts = [
        f"{word} {escape(str(schema[name]))}" for name, word in names.items() if name in schema
    ]
    return f" {' '.join(parts)}" if parts else ""


def _prose(text: str) -> str:
    """Escaped text with `code` in it."""
    pieces = escape(text).split("`")
    return "".join(
        f"<code>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces)
    )
