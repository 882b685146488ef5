"""Types and tolerant parsers of provider replies, whose fields may be missing, null or renamed.

None of these is ever part of a circle, so nobody looks for one in them (``gc=False``). A reason for
the end of a reply that is not listed is a good end where something was said, else a failure."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

from causerie.errors import UnusableOutput, UpstreamFailed
from causerie.protocol.bounded_json import REPLY, SMALL, TooMuchWork, check
from causerie.protocol.events import FinishReason

Meaning = Literal["stop", "length", "tool_calls", "content_filter", "failed", "unusable"]

SAID: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("wordings.toml").read_text("utf-8")
)
"""What servers say in their own words."""

WORDS: Mapping[Meaning, Sequence[str]] = SAID["finish"]
_MEANINGS: Final = {word: meaning for meaning, words in WORDS.items() for word in words}
_FIRST_STANDS = frozenset({"length", "content_filter"})


def later(before: str | None, reason: str) -> str:
    """Return ``before`` if it means a cut reply, else ``reason``; raise if that means a failure."""
    if before is not None and _MEANINGS.get(before) in _FIRST_STANDS:
        return before
    word = reason.strip().lower().replace("-", "_").replace(" ", "_")
    meaning = _MEANINGS.get(word)
    if meaning == "failed":
        raise UpstreamFailed("The provider broke its reply off.")
    if meaning == "unusable":
        raise UnusableOutput("The provider broke its reply off, which is no valid call.")
    return word


def is_cut(word: str | None) -> bool:
    """Return true if a finish word means a reply cut off by a length limit or content filter."""
    return _MEANINGS.get(word or "") in _FIRST_STANDS


def finish_reason(word: str | None, *, calls: bool, said: bool) -> FinishReason:
    """Return our finish reason for ``word``; raise if the reply is empty without a good end."""
    meaning = _MEANINGS.get(word or "")
    if meaning == "length" or meaning == "content_filter":
        return meaning
    if calls:
        return "tool_calls"
    if not said and meaning != "stop":
        raise UpstreamFailed("The provider ended its reply without an answer.")
    return "stop"


# Replies.

T = TypeVar("T")

MOST_TOKENS = 2**31 - 1
"""More than any reply has: who is told of more is told nonsense, which must not be charged."""
# Of one event or whole reply. More than any server sends; what is beyond them is no reply.
_MOST_CHOICES = 128
_MOST_CALLS = 1024
_MOST_PARTS = 4096
Tokens = Annotated[int, Meta(ge=0, le=MOST_TOKENS)]


class ProviderFunction(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ProviderCall(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: ProviderFunction | None = None
    extra_content: dict[str, Any] | None = None
    type: Any = None


class ProviderDelta(Struct, gc=False):
    """The message in a provider's reply: a piece in a stream event, or the whole message."""

    content: str | Annotated[list[Any], Meta(max_length=_MOST_PARTS)] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Annotated[list[ProviderCall], Meta(max_length=_MOST_CALLS)] | None = None
    reasoning_details: Annotated[list[Any], Meta(max_length=_MOST_PARTS)] | None = None
    refusal: str | None = None
    function_call: ProviderFunction | None = None
    """A call as the older interface has it, which knows one at a time."""

    @property
    def calls(self) -> list[ProviderCall]:
        """Return the tool calls for the client to make, not those that the server makes itself."""
        if self.tool_calls:
            return [call for call in self.tool_calls if call.type in _TYPES_OF_CALLS]
        if self.function_call is not None:
            return [ProviderCall(index=0, function=self.function_call)]
        return []


class ProviderAlternative(Struct, gc=False):
    """A possible token and its log-probability, which is null for minus infinity."""

    token: str = ""
    logprob: float | None = 0.0
    bytes: list[int] | None = None


class ProviderLogprob(ProviderAlternative, gc=False):
    top_logprobs: list[ProviderAlternative] | None = None


class ProviderLogprobs(Struct, gc=False):
    """Log-probabilities in the form of chat completions (``content``) or of plain completions."""

    content: list[ProviderLogprob] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None

    @property
    def entries(self) -> list[ProviderLogprob]:
        """Return log probabilities as chat completions have them, from either notation."""
        if self.content is not None or not (self.tokens and self.token_logprobs):
            return self.content or []
        tops = chain(self.top_logprobs or (), repeat(None))
        told = zip(self.tokens, self.token_logprobs, tops, strict=False)
        return [
            ProviderLogprob(token, logprob, None, _to_sorted_alternatives(top))
            for token, logprob, top in told
        ]


def _to_sorted_alternatives(logprobs: dict[str, float | None] | None) -> list[ProviderAlternative]:
    found = [ProviderAlternative(token, logprob) for token, logprob in (logprobs or {}).items()]
    return sorted(found, key=lambda each: -inf if each.logprob is None else each.logprob)[::-1]


class ProviderPromptDetails(Struct, frozen=True, gc=False):
    cached_tokens: Tokens | None = None
    cache_write_tokens: Tokens | None = None


class ProviderCompletionDetails(Struct, frozen=True, gc=False):
    reasoning_tokens: Tokens | None = None


class ProviderUsage(Struct, gc=False):
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    total_tokens: Tokens | None = None
    prompt_tokens_details: ProviderPromptDetails | None = None
    completion_tokens_details: ProviderCompletionDetails | None = None
    prompt_cache_hit_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    reasoning_tokens: Tokens | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None


def merged(before: ProviderUsage, now: ProviderUsage) -> ProviderUsage:
    """Fill the numbers that ``now`` lacks or has as zero from ``before``, and return ``now``."""
    for name, value in zip(ProviderUsage.__struct_fields__, structs.astuple(before), strict=True):
        told = getattr(now, name)
        if value and not (any(structs.astuple(told)) if isinstance(told, Struct) else told):
            setattr(now, name, value)
    return now


class ProviderExtra(Struct, gc=False):
    """Contents of the field ``x_groq``, in which Groq sends the usage of a stream."""

    usage: ProviderUsage | None = None


class ProviderChoice(Struct, gc=False):
    delta: ProviderDelta | None = None
    finish_reason: str | None = None
    index: int = 0
    message: ProviderDelta | None = None
    text: str | None = None  # the text of a server that answers in the form of plain completions
    logprobs: ProviderLogprobs | None = None
    usage: ProviderUsage | None = None
    stop_reason: Any = None
    """The stop string that ended it, at some servers; at others something else."""


class ProviderChunk(Struct, gc=False):
    """One event of a provider's stream, or a provider's whole reply."""

    choices: Annotated[list[ProviderChoice], Meta(max_length=_MOST_CHOICES)] | None = None
    usage: ProviderUsage | None = None
    error: Any = None
    system_fingerprint: str | None = None
    x_groq: ProviderExtra | None = None


_TYPES_OF_CALLS = (None, "", "function", "custom")
_CODES = ("code", "status", "status_code", "error_code")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CUT = frozenset({"content", "reasoning_content", "reasoning", "refusal", "arguments"})
_TEXTS = frozenset({"content", "reasoning_content", "reasoning", "refusal"})
_NUMBERS = int | float | str
_decode = msgspec.json.Decoder(ProviderChunk).decode
_STRING_OR_NAN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|(-?Infinity|NaN)', re.DOTALL)


class _ErrorFields(Struct, gc=False):
    # Raw, because an object that is no error may be large: it is only read over.
    message: msgspec.Raw = msgspec.Raw()
    object: msgspec.Raw = msgspec.Raw()
    detail: msgspec.Raw = msgspec.Raw()


_decode_error_fields = msgspec.json.Decoder(_ErrorFields).decode


class NoJson(ValueError):
    """The error for text that is not JSON."""


def decode_bounded(data: bytes, decode: Callable[[bytes], T]) -> T:
    """Decode JSON by ``decode``, refusing what would take too long.

    Raises :class:`ValueError` for that, :class:`NoJson`, or what ``decode`` raises for
    another form: :class:`msgspec.ValidationError`.
    """
    try:
        if len(data) > SMALL:
            check(data, REPLY)
        return decode(data)
    except TooMuchWork as error:
        raise ValueError(f"it takes too long to decode: {error}") from error
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoJson("no JSON") from error


def read_chunk(data: bytes) -> ProviderChunk:
    """Parse JSON to a chunk, tolerating usual deviations; raise :class:`ValueError` if it is none.

    Numbers that were sent as strings are read as well, ids that were sent as numbers, and texts
    that were sent as objects; log-probabilities of no known form are left out; what cannot be a
    number of tokens is as if it had not been told, an error that is empty as if there were none.
    JSON that is no chunk but tells of an error comes back as one with that error; other objects,
    and null, are chunks that say nothing.
    """
    try:
        chunk = decode_bounded(data, _decode)
    except msgspec.ValidationError:
        chunk = _convert_chunk(decode_bounded(data, msgspec.json.decode))
    if chunk.error is not None and is_nothing(chunk.error):
        chunk.error = None
    if chunk.choices is None and chunk.usage is None and chunk.error is None:
        chunk.error = _find_error_in_body(data)
    return chunk


def read_mended(data: bytes) -> ProviderChunk:
    """Parse broken JSON to a chunk; halves of characters at the ends of texts stay as surrogates.

    Bytes that are no UTF-8 become U+FFFD, ``NaN`` and infinities ``null``. Raises
    :class:`ValueError` if that does not help.
    """
    return _convert_chunk(mended(data))


def is_nothing(error: object) -> bool:
    """Return true if the error in a reply is empty, or an object with nothing but empty values."""
    if isinstance(error, dict):
        return all(map(is_nothing, error.values()))
    return not error


def _convert_chunk(json_document: Any) -> ProviderChunk:
    if isinstance(json_document, list):  # an error, as Google sends it
        json_document = next((each for each in json_document if isinstance(each, dict)), None)
    if json_document is None:
        return ProviderChunk()
    if isinstance(json_document, dict):
        if not is_nothing(json_document.get("error")):
            return ProviderChunk(error=json_document["error"])
        _delete_empty_lists_and_objects(json_document)
        for choice in _pick_objects_raise_if_more(json_document.get("choices"), _MOST_CHOICES):
            _mend_choice(choice)
        _filter_usage_in_place(json_document)
    try:
        return msgspec.convert(json_document, ProviderChunk, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError("no chunk of a chat completion") from error


def _filter_usage_in_place(chunk_or_choice: dict[str, Any]) -> None:
    usage = chunk_or_choice.pop("usage", None)
    if isinstance(usage, dict):
        chunk_or_choice["usage"] = _keep_plausible_counts(usage)
    extra = chunk_or_choice.pop("x_groq", None)
    if isinstance(extra, dict) and isinstance(extra.get("usage"), dict):
        chunk_or_choice["x_groq"] = {"usage": _keep_plausible_counts(extra["usage"])}


def _keep_plausible_counts(usage: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _keep_plausible_counts(value) if isinstance(value, dict) else value
        for name, value in usage.items()
        if isinstance(value, dict if name.endswith("_details") else _NUMBERS)
        and not _is_implausible_count(value)
    }


def _mend_choice(choice: dict[str, Any]) -> None:
    _delete_empty_lists_and_objects(choice)
    _filter_usage_in_place(choice)
    if choice.get("index") is None:
        choice["index"] = 0
    if not isinstance(choice.get("finish_reason"), str | None):
        choice["finish_reason"] = json.dumps(choice["finish_reason"])[:64]
    for said in _pick_objects_raise_if_more([choice.get("delta"), choice.get("message")], 2):
        _delete_empty_lists_and_objects(said)
        for name in _TEXTS & said.keys():
            said[name] = _convert_object_to_text_or_none(said[name], name)
        choice["logprobs"] = _convert_logprobs(choice.get("logprobs"), said)
        if isinstance(said.get("tool_calls"), dict):
            said["tool_calls"] = [said["tool_calls"]]
        for call in _pick_objects_raise_if_more(said.get("tool_calls"), _MOST_CALLS):
            _delete_empty_lists_and_objects(call)
            given = call.get("id")
            number = isinstance(given, int) and not isinstance(given, bool)
            call["id"] = str(given) if number else given if isinstance(given, str) else None
            for function in _pick_objects_raise_if_more([call.get("function")], 1):
                _delete_empty_lists_and_objects(function)


def _convert_object_to_text_or_none(json_value: object, field_name: str) -> object:
    if not isinstance(json_value, dict):
        return json_value
    text = json_value.get("text", json_value.get("content"))
    if isinstance(text, str) and json_value.keys() <= {"type", "text", "content", "annotations"}:
        return text
    return json.dumps(json_value, ensure_ascii=False) if field_name == "content" else None


def _convert_logprobs(logprobs: object, message: dict[str, Any]) -> object:
    # One number alone is that of the only token.
    if isinstance(logprobs, int | float) and not isinstance(logprobs, bool):
        logprobs = {"tokens": [message.get("content")], "token_logprobs": [logprobs]}
    try:
        return msgspec.convert(logprobs, ProviderLogprobs | None, strict=False)
    except msgspec.ValidationError:
        return None


def _delete_empty_lists_and_objects(json_object: dict[str, Any]) -> None:
    # Some languages write an empty object as an empty list.
    for name in [name for name, value in json_object.items() if value in ([], {})]:
        del json_object[name]


def _pick_objects_raise_if_more(items: object, most: int) -> list[dict[str, Any]]:
    if isinstance(items, list) and len(items) > most:
        raise ValueError(f"{len(items)} values where at most {most} may be")
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []


def _is_implausible_count(token_count: float | str | dict[str, Any]) -> bool:
    try:
        number = 0.0 if isinstance(token_count, dict) else float(token_count)
        return not 0 <= number <= MOST_TOKENS or not number.is_integer()
    except (OverflowError, ValueError):
        return True


def _find_error_in_body(body: bytes) -> object:
    try:
        telling = _decode_error_fields(body)
    except msgspec.ValidationError:  # no object
        return None
    if not any(structs.astuple(telling)):
        return None
    found = msgspec.json.decode(body)
    code = next((found[name] for name in _CODES if not is_nothing(found.get(name))), None)
    told = isinstance(found.get("message"), str) and code is not None and str(code) != "200"
    told = told or found.get("object") == "error" or isinstance(found.get("detail"), str | list)
    return found if told else None


def _repair_inner_surrogates(json_value: Any, field_name: str = "") -> Any:
    if isinstance(json_value, dict):
        return {key: _repair_inner_surrogates(each, key) for key, each in json_value.items()}
    if isinstance(json_value, list):
        return [_repair_inner_surrogates(each) for each in json_value]
    if not isinstance(json_value, str) or not _SURROGATE.search(json_value):
        return json_value
    first = last = ""
    if field_name in _CUT and "\udc00" <= json_value[0] <= "\udfff":
        first, json_value = json_value[0], json_value[1:]
    if field_name in _CUT and json_value and "\ud800" <= json_value[-1] <= "\udbff":
        last, json_value = json_value[-1], json_value[:-1]
    return first + whole_characters(json_value) + last


def whole_characters(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def mended(data: bytes) -> Any:
    """Parse JSON, replacing NaN, bad UTF-8 and lone surrogates; raise :class:`ValueError`."""
    sound = _STRING_OR_NAN.sub(lambda found: b"null" if found[1] else found[0], data)
    return _repair_inner_surrogates(json.loads(sound.decode("utf-8", "replace")))
