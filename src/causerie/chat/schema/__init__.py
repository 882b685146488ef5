"""JSON Schemas, patterns and choices, as parts of the grammar that enforces them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from causerie.chat.schema.keywords import Schema, SchemaRefused
from causerie.chat.schema.normal import Rewriter
from causerie.chat.schema.pattern import Refused, between_slashes, whole

MAX_CHARACTERS = 500_000  # of all options together


def regex(pattern: str, *, param: str) -> str:
    """Return a Lark terminal ``/…/`` for texts that match ``pattern`` as a whole.

    ``^`` at the start and ``$`` at the end are allowed and say nothing more. Raises
    :class:`SchemaRefused` for look-arounds, back-references and whatever else cannot be enforced.
    """
    try:
        text = whole(pattern)
    except Refused as refused:
        raise SchemaRefused(param, f"The pattern cannot be enforced: {refused}") from None
    if not text:
        raise SchemaRefused(param, "The pattern matches only the empty text.")
    return between_slashes(text)


def choice(options: Sequence[str], *, param: str) -> str:
    """Return the Lark expression of a terminal for one of ``options``, written exactly so.

    A rule would have one terminal for each, and compilers bound how many may be possible at once.
    Raises :class:`SchemaRefused` where they are too long together, or an option cannot be written.
    """
    size = sum(map(len, options))
    if size > MAX_CHARACTERS:
        raise SchemaRefused(
            param, f"The options have {size} characters together, of at most {MAX_CHARACTERS}."
        )
    try:
        "".join(options).encode()
    except UnicodeEncodeError:
        raise SchemaRefused(param, "An option holds half of a surrogate pair.") from None
    quoted = (json.dumps(option, ensure_ascii=False) for option in options)
    return " | ".join(quoted).replace("\x7f", "\\u007f")


_MAX_BYTES = 500_000
_MOST_CHARACTERS = 2_000_000  # of what is read, with all annotations


# Separators are literal texts to older versions of the engine.
_FIXED = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}


class WhiteSpace(Enum):
    """Choice of the white space that JSON may have between its tokens."""

    FIXED = "fixed"
    """As Python's ``json.dumps`` writes it: one space behind ``,`` and ``:``, none elsewhere."""
    PRETTY = "pretty"
    """What a pretty printer writes: nothing, a space, or up to two line breaks with an indent.

    ``%json`` cannot say that, and is as ``FIXED``; :mod:`causerie.chat.call_syntax.json` can.
    """
    ANY = "any"
    """Any, as other servers write it."""


@dataclass(frozen=True, slots=True)
class PreparedSchema:
    """A schema's constraint for the engine, its rules for a final check, and ignored keywords."""

    text: str  # to stand behind ``%json``
    ignored: tuple[str, ...]  # unknown keywords and formats, each as a response header names it
    rules: Mapping[str, object]
    """All that the schema says, rewritten, to check a finished document by."""
    left: tuple[tuple[str, str], ...]
    """Pointers and keywords that the constraint does not hold, but the check does.

    With any, a document may have to be changed while it is written.
    """


def prepare(
    schema: Schema | bool, *, param: str, white_space: WhiteSpace = WhiteSpace.FIXED
) -> PreparedSchema:
    """Return the constraint and the final check by which a JSON document follows ``schema``.

    Rules that no grammar has are left to the check of the finished document. Raises
    :class:`SchemaRefused` with the place of what neither can enforce; ``param`` names the field.
    """
    rules = Rewriter(schema, param).rewrite()
    rewriter = Rewriter(schema, param, for_grammar=True)
    written = rewriter.rewrite()
    text = _encode_constraint(written, param, white_space)
    if rewriter.checked:
        rules = Rewriter(schema, param, checked=rewriter.checked).rewrite()
    return PreparedSchema(text, rewriter.ignored(), rules, rewriter.left())


def check_size(text: str, *, param: str) -> None:
    """Raise :class:`SchemaRefused` where the text of schemas is too long to be read."""
    if len(text) > _MOST_CHARACTERS:
        raise SchemaRefused(
            param,
            f"It is too long: {len(text)} characters of schemas, of at most {_MOST_CHARACTERS}.",
        )


def constraint(schema: Schema, *, param: str, white_space: WhiteSpace) -> str:
    """Return the constraint's text for a part of a schema that :func:`prepare` has accepted."""
    written = Rewriter(schema, param, for_grammar=True).rewrite()
    return _encode_constraint(written, param, white_space)


def _encode_constraint(schema: Schema, param: str, white_space: WhiteSpace) -> str:
    options = {"whitespace_flexible": True} if white_space is WhiteSpace.ANY else _FIXED
    text = json.dumps({"x-guidance": options, **schema}, ensure_ascii=False, separators=(",", ":"))
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise SchemaRefused(param, "The schema holds half of a surrogate pair.") from None
    if size > _MAX_BYTES:
        raise SchemaRefused(
            param, f"The schema is too large: {size} bytes of at most {_MAX_BYTES}."
        )
    return text
