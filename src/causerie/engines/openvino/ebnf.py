"""A set of tokens as a grammar in the EBNF of xgrammar, the only one that OpenVINO GenAI takes.

It is a grammar for one token. Only whole characters can be said in it: neither control
tokens nor a part of a character.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from causerie.engines.weights.vocabulary import TokenTable

_MOST = 100
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 ".decode())


def one_of(texts: Iterable[str], *, ends: bool) -> str:
    """Return the grammar of the texts, and of the end with ``ends``."""
    options = ['""'] if ends else []
    options += [f'"{_quoted(text)}"' for text in texts]
    return "root ::= " + " | ".join(options)


def sayable(vocabulary: TokenTable, ids: Iterable[int]) -> dict[str, int]:
    """Return the first of the ids that the grammar can say, by their texts.

    Tokenizers number common tokens first. xgrammar admits texts that are in none of the options
    where there are some hundred of them, and takes seconds for all.
    """
    control = frozenset(vocabulary.control.values())
    texts: dict[str, int] = {}
    for id in ids:
        if len(texts) == _MOST:
            break
        raw = vocabulary.tokens[id]
        if raw and id not in control:
            with suppress(UnicodeDecodeError):
                texts[raw.decode()] = id
    return texts


def _quoted(text: str) -> str:
    return "".join(char if char in _PLAIN else f"\\U{ord(char):08x}" for char in text)
