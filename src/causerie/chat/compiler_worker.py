"""The process that compiles grammars of clients.

It is asked, and answers, in JSON, and may be killed at any moment.
"""

from __future__ import annotations

import importlib
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from causerie.chat import lark
from causerie.chat.schema.keywords import Schema, step
from causerie.chat.worker_process import limit_memory, limited_work, serve

# Below llguidance's defaults, which the engines use: what passes here passes there.
LIMITS = LLParserLimits(
    max_items_in_row=1_500,
    initial_lexer_fuel=400_000,
    step_lexer_fuel=100_000,
    step_max_items=25_000,
    max_lexer_states=100_000,
    max_grammar_size=250_000,
    verbose_errors=False,
)
NOT_KEPT = "it was not kept."
_STEPS = 12
_PIECE = 16  # tokens between two masks
_END = 256
_MARK = 257
_CONTROL = 3
_USER_DEFINED = 4


class WorkerVocabulary(Protocol):
    """A model's tokens by id, with their kinds as model files number them.

    Plain text never becomes one that is a control token (3) or user-defined
    (4); ``end`` are the ids that end a text.
    """

    @property
    def tokens(self) -> Sequence[bytes]: ...
    @property
    def types(self) -> Sequence[int]: ...
    @property
    def end(self) -> Sequence[int]: ...


class _Bytes:
    """A vocabulary of single bytes, the end of the text and one control token."""

    tokens = (*(bytes([value]) for value in range(256)), b"<end>", b"<mark>")
    types = (*(1 for _ in range(256)), _CONTROL, _CONTROL)
    end = (_END,)


class _Tokenizer:
    def __init__(self, vocabulary: WorkerVocabulary) -> None:
        self.tokens = list(vocabulary.tokens)
        kinds = enumerate(vocabulary.types)
        self.special_token_ids = [at for at, kind in kinds if kind in (_CONTROL, _USER_DEFINED)]
        end = vocabulary.end[0] if vocabulary.end else len(self.tokens) - 1
        self.eos_token_id = self.bos_token_id = end
        single = {token[0]: at for at, token in enumerate(self.tokens) if len(token) == 1}
        hidden = set(self.special_token_ids)
        self._token_ids_by_byte = {byte: at for byte, at in single.items() if at not in hidden}

    def __call__(self, text: bytes | str) -> list[int]:
        raw = text.encode() if isinstance(text, str) else text
        return [self._token_ids_by_byte[byte] for byte in raw if byte in self._token_ids_by_byte]


class CompilerWorker:
    """Checks grammars with the vocabularies that ``read`` (by path) gives."""

    def __init__(self, read: Callable[[Path], WorkerVocabulary] | None) -> None:
        self._read_vocabulary = read
        self._tokenizers_by_path: dict[str | None, LLTokenizer] = {None: _build_tokenizer(_Bytes())}

    def load(self, path: str) -> None:
        """Read the vocabulary at ``path``, in place of one that was read from there before."""
        if path and self._read_vocabulary is not None:
            self._tokenizers_by_path[path] = _build_tokenizer(self._read_vocabulary(Path(path)))

    def answer(self, request: bytes) -> bytes:
        asked = json.loads(request)
        if "load" not in asked:
            with limited_work(asked["seconds"]):
                known = asked["grammar"], asked["vocabulary"]
                said = [asked[name] for name in ("resumed", "tokens", "text") if name in asked]
                verdict = self.replay(*known, *said) if said else self.check(*known)
            return json.dumps(verdict).encode()
        self.load(asked["load"])
        return b"{}"

    def check(self, grammar: str, path: str | None) -> dict[str, object]:
        """Return ``{}``, or the ``reason`` of a refusal, with the ``pointer`` into a schema."""
        tokenizer = self._tokenizers_by_path.get(path)
        if tokenizer is None or path is None:
            tokenizer, grammar = self._tokenizers_by_path[None], _replace_token_ids_by_mark(grammar)
        error = _find_grammar_fault(grammar, tokenizer)
        if error is None:
            return {}
        fault = schema_fault(grammar, lambda text: _find_grammar_fault(text, tokenizer))
        return fault or {"reason": reason(error)}

    def replay(
        self, grammar: str, vocabulary: str | None, resumed: str, tokens: Sequence[int], text: str
    ) -> dict[str, object]:
        """Return ``{}`` if a grammar admits the tokens behind ``resumed``, or the ``reason``.

        That is :data:`TOO_COMPLEX` if an engine reaches its limits on the way, and gives it up.
        Without a vocabulary only tokens that are the bytes of their ``text`` are judged.
        """
        tokenizer = self._tokenizers_by_path.get(vocabulary)
        if vocabulary is None:
            grammar = _replace_token_ids_by_mark(grammar)
        if tokenizer is None or (vocabulary is None and list(text.encode()) != tokens):
            return {}
        taken = [*tokenizer.greedy_tokenize(resumed), *tokens]
        matcher = LLMatcher(tokenizer, grammar, log_level=0)
        for at in range(0, len(taken), _PIECE):  # masks take most of the time
            matcher.compute_bitmask()
            piece = taken[at : at + _PIECE]
            if matcher.try_consume_tokens(piece) < len(piece):
                break
        else:
            return {} if not matcher.is_error() else {"reason": TOO_COMPLEX}
        matcher = LLMatcher(tokenizer, grammar, log_level=0)
        for token in taken:
            matcher.compute_bitmask()
            if matcher.is_error() or not matcher.consume_token(token):
                break
        error, _, _ = matcher.get_error().partition("\n")  # the rest is the matcher's state
        return {"reason": TOO_COMPLEX if reason(error) == TOO_COMPLEX else NOT_KEPT}


def _build_tokenizer(vocabulary: WorkerVocabulary) -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(_Tokenizer(vocabulary)))


def _replace_token_ids_by_mark(grammar: str) -> str:
    # Token ids mean nothing to the byte vocabulary; one of its own stands for all.
    marks = [at for kind, text, at in lark.tokens(grammar) if kind == "special" and text[1] == "["]
    for at in reversed(marks):
        grammar = f"{grammar[:at]}<[{_MARK}]>{grammar[grammar.index('>', at) + 1 :]}"
    return grammar


def _find_grammar_fault(grammar: str, tokenizer: LLTokenizer) -> str | None:
    # The first steps are taken as generation will take them.
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)
    sampling = random.Random(len(grammar))  # the same steps for the same grammar
    for _ in range(_STEPS):
        if matcher.is_stopped():
            break
        token = _draw_allowed_token(matcher.compute_bitmask(), sampling)
        if token is None:
            return "no text can follow it" if not matcher.is_stopped() else None
        if not matcher.is_stopped():
            matcher.consume_token(token)
    return matcher.get_error() if matcher.is_error() else None  # an error stops it, too


def _draw_allowed_token(mask: bytes, random_source: random.Random) -> int | None:
    start = random_source.randrange(len(mask))
    rest = mask[start:].lstrip(b"\0") or mask.lstrip(b"\0")
    if not rest:
        return None
    at = len(mask) - len(rest)  # both are stripped on the left only
    return at * 8 + rest[0].bit_length() - 1


# The compiler names rules and lines of the composed grammar, which the client never saw. So the
# schema inside is found, and its subschemas are tried one by one.

Fault = Callable[[str], str | None]

_SEARCH_SECONDS = 0.3
_PREFIX = "#/$defs/"
_MEANINGS = (
    ("unsatisfiable schema: required > maxproperties",
     "more properties are required than are allowed."),
    ("unsatisfiable schema: regex is empty", "no string satisfies pattern, format and length."),
    ("unsatisfiable", "no document can satisfy it."),
    ("no text can follow", "nothing can satisfy it."),
    ("circular references with sibling",
     "keywords alongside a `$ref` that refers back to itself are not supported."),
    ("min/maxproperties only supported", "minProperties and maxProperties are only enforced where "
     "all named properties are required."),
    ("disjoint", "patterns of patternProperties that may match the same name are not supported."),
    ("regex parse error", "a pattern is not understood."),
    ("lookaround", "anchors inside a pattern and look-arounds are not supported."),
    ("failed to generate regex for", "the range of numbers cannot be expressed."),
    ("expected f64", "a number is out of range."),
)  # fmt: skip
_TOO_LARGE = ("fuel", "too large", "too many", "limit", "stack level", "too complex", "exceeded",
              "max is", "unable to determine", "memory")  # fmt: skip
TOO_COMPLEX = "it is too complex to be enforced; make patterns, bounds or alternatives simpler."


def reason(error: str) -> str:
    """Return an error as a sentence for the client; nothing of grammar or compiler shows."""
    lowered = error.lower()
    for words, meaning in _MEANINGS:
        if words in lowered:
            return meaning
    if any(word in lowered for word in _TOO_LARGE):
        return TOO_COMPLEX
    found = re.match(r"(?:at )?\d+\(\d+\): ([^\n]{1,160})", error)
    if found is not None and "JSON schema" not in found.group(1):
        return f"it is not understood: {found.group(1).strip()}"
    return "it cannot be compiled."


def schema_fault(grammar: str, fault: Fault) -> dict[str, object] | None:
    """Return pointer and reason of the deepest subschema of a ``%json`` that fails on its own.

    Also the ``function`` whose parameters it is of, where its comment names one.
    """
    until = time.process_time() + _SEARCH_SECONDS
    for kind, text, at in lark.tokens(grammar):
        if kind != "directive" or text != "%json":
            continue
        schema, _ = lark.json_at(grammar, at + len("%json "))
        error = fault(_build_grammar(schema, schema))
        if error is not None and isinstance(schema, Mapping):
            pointer, error = _locate_fault(schema, error, fault, until)
            found = {"pointer": pointer, "reason": reason(error)}
            return found | {"function": schema.get("$comment")}
    return None


def _build_grammar(schema: object, root: Schema) -> str:
    if isinstance(schema, Mapping):
        kept = {key: root[key] for key in ("x-guidance", "$defs") if key in root}
        schema = {**schema, **kept}
    return "%llguidance {}\nstart: %json " + json.dumps(schema, ensure_ascii=False) + "\n"


def _locate_fault(root: Schema, error: str, find_fault: Fault, deadline: float) -> tuple[str, str]:
    here: object = root
    pointer = "#"
    seen: set[str] = set()
    while True:
        for place, part in _iterate_direct_subschemas(here, pointer, root, seen):
            if time.process_time() > deadline:
                return pointer, error
            found = find_fault(_build_grammar(part, root)) if isinstance(part, Mapping) else None
            if found is not None:
                here, pointer, error = part, place, found
                break
        else:
            return pointer, error


def _iterate_direct_subschemas(
    schema: object, pointer: str, root: Schema, visited: set[str]
) -> Iterator[tuple[str, object]]:
    if not isinstance(schema, Mapping):
        return
    definitions = root.get("$defs")
    for key, value in schema.items():
        if key == "$ref" and isinstance(definitions, Mapping):
            name = str(value).removeprefix(_PREFIX)
            target = definitions.get(name)
            if name not in visited and isinstance(target, Mapping):
                visited.add(name)
                yield str(target.get("$comment", pointer)), target
        elif key in ("properties", "patternProperties") and isinstance(value, Mapping):
            for name, part in value.items():
                yield step(pointer, key, name), part
        elif key in ("items", "additionalProperties"):
            yield step(pointer, key), value
        elif key in ("allOf", "anyOf", "prefixItems") and isinstance(value, list):
            for index, part in enumerate(value):
                yield step(pointer, key, index), part


def main(memory: str, reader: str) -> None:
    """Serve with at most ``memory`` bytes of address space, where the system can say so."""
    module, _, function = reader.partition(":")
    read = getattr(importlib.import_module(module), function) if module else None
    worker = CompilerWorker(read)  # before the limit, which is for grammars
    limit_memory(int(memory))
    serve(sys.stdin.buffer, sys.stdout.buffer, worker.answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
