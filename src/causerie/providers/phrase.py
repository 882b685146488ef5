"""Make a server's text safe to show to our clients: one short line, without private parts.

Only text about the request itself is ever shown (see ``refusal``). Anything that looks like a
credential, an address, a path or markup is removed; a rest that is too long is cut.
"""

from __future__ import annotations

import re

_MOST = 300
_HIDDEN = "…"
_SECRETS = (
    re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE),
    re.compile(r"\b(?:bearer|basic|api[_ -]?key|token|authorization|password|secret)\b\s*[:=]?\s*"
               r"['\"]?(?!(?:bearer|basic)\s)[\w.+/=*-]{6,}['\"]?", re.IGNORECASE),
    re.compile(r"\b(?:sk|pk|ck|gsk|hf|key|org|proj|req)[-_][\w*.-]{4,}", re.IGNORECASE),
    re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+"),
    re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"),
    re.compile(r"\[?(?:[0-9a-f]{0,4}:){3,}[0-9a-f.:]*\]?(?::\d+)?", re.IGNORECASE),
    re.compile(r"\b[\w-]+(?:\.[\w-]+)+:\d{2,5}\b"),
    re.compile(r"\b(?:localhost|[\w-]+(?:\.[\w-]+)*\.(?:internal|local|lan|svc|cluster))\b\S*",
               re.IGNORECASE),
    re.compile(r"(?<![\w.#])(?:/|~/|[A-Za-z]:\\)[\w.-]+(?:[/\\][\w.-]+)+"),
    re.compile(r"(?=[\w+/=-]*\d)(?=[\w+/=-]*[A-Za-z])[\w+/=-]{24,}"),
)  # fmt: skip
_MARKUP = re.compile(r"<\s*(?:!doctype|html|body|head|h1|title)", re.IGNORECASE)
_TRACE = re.compile(r"traceback|\bat 0x[0-9a-f]+|\.py\b.*\bline \d+", re.IGNORECASE)


def phrase(words: object) -> str:
    """``words`` on one line, or nothing where they cannot be shown."""
    if not isinstance(words, str) or _MARKUP.search(words) or _TRACE.search(words):
        return ""
    text = "".join(char if char.isprintable() else " " for char in words[: 4 * _MOST])
    for secret in _SECRETS:
        text = secret.sub(_HIDDEN, text)
    text = " ".join(text.split())
    return text if len(text) <= _MOST else text[: _MOST - 1].rstrip() + "…"
