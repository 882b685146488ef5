"""Make a server's text safe to show to our clients: one short line, without private parts.

Only text about the request itself is ever shown (see ``refusal``). What looks like a credential, an
address, a path or markup is removed; a rest that is too long is cut. Ordinary words stay, also
behind "API key" or "token". :func:`without` removes the very key that was sent, whatever it looks
like.
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from urllib.parse import quote

_MOST = 300
_HIDDEN = "…"
_ADDRESSES = (
    re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE),
    re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]+"),
    re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"),
    re.compile(r"\[?(?:[0-9a-f]{0,4}:){3,}[0-9a-f.:]*\]?(?::\d+)?", re.IGNORECASE),
    re.compile(r"(?<![\w-])(?<!\w\.)[\w-]+(?:\.[\w-]+)+:\d{2,5}\b"),
    re.compile(r"\blocalhost\b\S*", re.IGNORECASE),
    re.compile(r"(?<![\w-])(?<!\w\.)[\w-]+(?:\.[\w-]+)*\.(?:internal|local|lan|svc|cluster)\b\S*",
               re.IGNORECASE),
    re.compile(r"(?<![\w.#])(?:/|~/|[A-Za-z]:\\)[\w.-]+(?:[/\\][\w.-]+)+"),
)  # fmt: skip
_NAMED = re.compile(  # a word for a credential, and what stands behind it
    r"(?P<name>\b(?:bearer|basic|(?:api|access|secret)[_ -]?keys?|tokens?|authorization|passwords?"
    r"|secrets?|credentials?)\b)"
    r"(?P<between>\s*(?:is|was|provided|of)?\s*[:=]?\s*['\"`]?)(?!(?:bearer|basic)\b)(?P<value>[\w.+/=*~-]{6,})",
    re.IGNORECASE,
)
_PREFIXED = re.compile(
    r"\b(?:(?:sk|pk|rk|ck|gsk|hf|r8|xai|nvapi|ghp|gho|glpat|xox[a-z])[-_](?P<sure>[\w*.-]{4,})"
    r"|(?:key|org|proj|req|AKIA|ASIA|AIza)[-_]?(?P<value>[\w*.-]{4,}))"
)
_NO_WORD = re.compile(r"[A-Za-z0-9]{16}|(?=[A-Za-z]*\d)[A-Za-z0-9]{6}|[a-z][A-Z]")
_LONG = re.compile(r"[\w+/=~-]{24,}")
_SEPARATORS = re.compile(r"[-_./+=~]+")
_UNITS = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{3,}|[0-9]{2,}|.", re.DOTALL)
_CHANGES = re.compile(r"(?<=[0-9])(?=[A-Za-z])|(?<=[A-Za-z])(?=[0-9])")
_LETTERS = re.compile(r"(?=[a-z]*[b-df-hj-np-tv-xz]{5})[a-z]{12,}")  # of no language
_HEXADECIMAL = re.compile(r"(?=[0-9-]*[a-f])(?=[a-f-]*[0-9])[0-9a-f-]{24,}", re.IGNORECASE)
_MASKED = re.compile(r"\w\*{3,}|\*{3,}\w|\w\.{3,}\w")
_LEAST_SECRET = 8  # characters that are told apart from words
_MARKUP = re.compile(r"<\s*(?:!doctype|html|body|head|h1|title)", re.IGNORECASE)
_TRACE = re.compile(r"traceback|\bat 0x[0-9a-f]+|\.py\b.*\bline \d+", re.IGNORECASE)


def phrase(words: object) -> str:
    """``words`` on one line, or nothing where they cannot be shown."""
    if not isinstance(words, str) or _MARKUP.search(words) or _TRACE.search(words):
        return ""
    text = "".join(char if char.isprintable() else " " for char in words[: 4 * _MOST])
    for address in _ADDRESSES:
        text = address.sub(_HIDDEN, text)
    text = _PREFIXED.sub(_prefixed, text)
    text = _NAMED.sub(_named, text)
    text = _LONG.sub(lambda found: _HIDDEN if _is_secret(found[0]) else found[0], text)
    text = " ".join(text.split())
    return text if len(text) <= _MOST else text[: _MOST - 1].rstrip() + "…"


def without(text: str, credential: str | None) -> str:
    """Return ``text`` without the credential, also where it is encoded or cut.

    Of a long credential every part of eight characters is recognized, of a short one the whole.
    """
    if not credential or len(credential) < 4:
        return text
    if len(credential) < _LEAST_SECRET:
        return re.sub(rf"(?<!\w){re.escape(credential)}(?!\w)", _HIDDEN, text)
    pieces, length = _pieces(credential), _LEAST_SECRET
    hidden = bytearray(len(text))
    for at in range(len(text) - length + 1):
        if text[at : at + length] in pieces:
            hidden[at : at + length] = b"\1" * length
    return "".join(
        _HIDDEN if is_hidden else "".join(char for _, char in run)
        for is_hidden, run in groupby(zip(hidden, text, strict=True), key=itemgetter(0))
    )


@lru_cache(maxsize=64)
def _pieces(credential: str) -> frozenset[str]:
    """Return all parts of the credential in its forms, eight characters long."""
    data = credential.encode("utf-8", "surrogatepass")
    forms = [credential, quote(credential, safe=""), data.hex(), data.hex().upper()]
    for start in range(3):  # wherever it stands in what was encoded
        encoded = base64.b64encode(b"\0" * start + data).decode()[4 if start else 0 :]
        forms += [encoded, encoded.translate(str.maketrans("+/", "-_"))]
    length = _LEAST_SECRET
    return frozenset(
        form[at : at + length] for form in forms for at in range(len(form) - length + 1)
    )


def _prefixed(found: re.Match[str]) -> str:
    value, sure = found["value"], found["sure"]
    hidden = _is_secret(value) if sure is None else _is_secret(sure) or _NO_WORD.search(sure)
    return _HIDDEN if hidden else found[0]


def _named(found: re.Match[str]) -> str:
    value, between = found["value"], found["between"]
    assigned = ":" in between or "=" in between
    mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    if _is_secret(value) or (assigned and mixed):
        return found["name"] + between + _HIDDEN
    return found[0]


def _is_secret(text: str) -> bool:
    """Return true for characters that no word, number or name of a model or field looks like."""
    if _MASKED.search(text) or _HEXADECIMAL.fullmatch(text):
        return True
    return any(len(part) >= _LEAST_SECRET and _is_random(part) for part in _SEPARATORS.split(text))


def _is_random(part: str) -> bool:
    """Return true where letters, cases and digits change as often as in characters by chance."""
    if _LETTERS.fullmatch(part) is not None:
        return True
    changes, long = len(_CHANGES.findall(part)), len(part) >= 2 * _LEAST_SECRET
    if changes >= (2 if long else 4):  # between letters and digits
        return True
    mixed = not (part.isalpha() and (part.islower() or part.isupper())) and not part.isdigit()
    return mixed and len(part) / len(_UNITS.findall(part)) < (2.7 if long else 2.2)
