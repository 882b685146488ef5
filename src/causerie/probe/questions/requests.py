"""Questions on chat requests: what is accepted or refused, replies and streams, clients that leave.

They belong to the interface, 5 and 7, and the contract, 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from jsonschema import Draft202012Validator

from causerie.probe.question import (
    SAMPLES,
    Credential,
    ProbeReply,
    ProbeRequest,
    Script,
    Subject,
    chat,
    checked,
    dig,
    no,
    partly,
    script,
    unclear,
    user,
    weighed,
    yes,
)

HELLO = "Say hello in one short sentence."
MOST = 24


@script("completion")
def _probe_completion(subject: Subject) -> Script:
    reply = yield subject.ask(HELLO, MOST).with_reuse()
    tried = [
        replace(subject, limit="max_completion_tokens"),
        replace(subject, steady={}),
        replace(subject, limit="max_completion_tokens", steady={}),
    ]
    while reply.refusal is not None and reply.status in (400, 422) and tried:
        subject = tried.pop(0)
        reply = yield subject.ask(HELLO, MOST).with_reuse()
    answer = reply.answer()
    missing = []
    for field in SAMPLES["fields"]:
        value = answer.at(*field["path"])
        if not Draft202012Validator(field["schema"]).is_valid(value):
            seen = "missing" if value is None else f"{value!r:.40}"
            missing.append(f"`{'.'.join(map(str, field['path']))}` is {seen}")
    return replace(weighed(missing, of=len(SAMPLES["fields"])), learned=subject)


@script("usage")
def _probe_usage(subject: Subject) -> Script:
    answer = (yield subject.ask(HELLO, MOST).with_reuse()).answer()
    usage = answer.at("usage")
    parts, total = (answer.prompt or 0) + (answer.completion or 0), dig(usage, "total_tokens")
    details = (
        ("prompt_tokens_details", "cached_tokens"),
        ("completion_tokens_details", "reasoning_tokens"),
    )
    return checked(
        (not answer.prompt or not answer.completion, "no counts of prompt and completion"),
        (total != parts, f"total_tokens is {total}, the sum is {parts}"),
        *((not isinstance(dig(usage, *path), int), f"no `{'.'.join(path)}`") for path in details),
    )


@script("identity")
def _probe_reply_identity(subject: Subject) -> Script:
    reply = yield subject.ask(HELLO, MOST).with_reuse()
    document = reply.answer().document
    id, model = str(dig(document, "id") or ""), dig(document, "model")
    return checked(
        (not id.startswith("chatcmpl-"), "`id` does not begin with chatcmpl-"),
        (not dig(document, "system_fingerprint"), "no `system_fingerprint`"),
        (model != subject.model, f"`model` is {model!r:.60}, not what was asked for"),
        ("x-request-id" not in reply.headers, "no header x-request-id"),
    )


_SAY = user("Say ok.")
_HINTS: Mapping[str, object] = SAMPLES["hints"]


@script("messages.roles")
def _probe_acceptance_of_message_roles(subject: Subject) -> Script:
    refused = []
    for sample in SAMPLES["roles"]:
        reply = yield subject.ask(sample["messages"], 4)
        if (why := reply.refusal) is not None:
            refused.append(f"{sample['words']}: {why}")
        else:
            reply.answer()
    return weighed(refused, of=len(SAMPLES["roles"]))


@script("hints")
def _probe_optional_parameters(subject: Subject) -> Script:
    reply = yield subject.ask("Say ok.", 4, **_HINTS)
    if reply.refusal is None:
        reply.answer()
        return yes()
    taken = []
    for name, value in _HINTS.items():
        one = yield subject.ask("Say ok.", 4, **{name: value})
        if one.refusal is None:
            taken.append(name)
    left = sorted(set(_HINTS) - set(taken))
    if not taken:
        return no("refuses every hint")
    return partly("refuses " + (", ".join(left) or "them only together"))


@script("unknown")
def _probe_report_of_unknown_field(subject: Subject) -> Script:
    reply = yield subject.ask("Say ok.", 4, zz_unknown_field=1)
    refused = reply.refusal
    if refused is not None:
        return partly(refused)
    reply.answer()
    named = reply.headers.get("x-request-changes", "")
    if "zz_unknown_field dropped" in named:
        return yes("dropped, and named in x-request-changes")
    return partly("taken in silence: whether a parameter is known cannot be told from status 200")


@script("lengthens")
def _probe_prompt_growth(subject: Subject, *, least: int, what: str, **fields: object) -> Script:
    plain = (yield subject.ask(HELLO, 4)).answer()
    more = (yield subject.ask(HELLO, 4, **fields)).answer()
    if plain.prompt is None or more.prompt is None:
        return unclear("no usage tells the length of the prompt")
    if more.prompt > plain.prompt + least:
        return yes(f"the prompt grew from {plain.prompt} to {more.prompt} tokens")
    return no(f"accepted and left out: the prompt is as long as without {what}")


@script("accepted")
def _probe_field_acceptance(subject: Subject, *, how: str, clear: bool, **fields: object) -> Script:
    (yield subject.ask("Say ok.", 4, **fields)).answer()
    return (yes if clear else unclear)(f"accepted; {how}")


# Errors and keys: wrong requests get the right status and form.


def _build_short_request(subject: Subject, credential: Credential) -> ProbeRequest:
    fields = {"model": subject.model, "messages": [_SAY], subject.limit: 4}
    return replace(chat(fields), credential=credential)


def _find_refusal_faults(reply: ProbeReply, expected_statuses: Sequence[int]) -> list[str]:
    missing = []
    if reply.status not in expected_statuses:
        wanted = " or ".join(map(str, expected_statuses))
        missing.append(f"status {reply.status} instead of {wanted}: {reply.message}")
    error = reply.at("error")
    if not isinstance(error, dict):
        missing.append("no object `error`")
    else:
        lacks = [name for name in ("message", "type", "param", "code") if name not in error]
        if lacks:
            missing.append("`error` lacks " + ", ".join(lacks))
    return missing


_WRONG_REQUESTS: Mapping[str, Callable[[Subject], ProbeRequest]] = {
    "broken JSON": lambda one: replace(
        chat({}), body=b'{"model": "' + one.model.encode() + b'", "messages": ['
    ),
    "no messages": lambda one: chat({"model": one.model}),
    "no such model": lambda one: _build_short_request(
        replace(one, model="no-such-model-probe"), "ours"
    ),
    "out of range": lambda one: one.ask("Say ok.", 4, temperature=-3),
    "no such path": lambda _: ProbeRequest("GET", "/no/such/path"),
}


@script("refused")
def _probe_wrong_request(subject: Subject, *, request: str, statuses: Sequence[int]) -> Script:
    reply = yield _WRONG_REQUESTS[request](subject)
    if not reply.status:
        return unclear(reply.trouble)
    if reply.status == 200:
        return no("taken: status 200")
    return weighed(_find_refusal_faults(reply, statuses), of=2)


@script("key")
def _probe_refusal_without_valid_key(subject: Subject, *, credential: Credential) -> Script:
    if not subject.keyed:
        return unclear("asked without a key anyway")
    reply = yield _build_short_request(subject, credential)
    if reply.status == 200:
        return partly("no key is needed")
    missing = _find_refusal_faults(reply, (401,)) if reply.status else [reply.trouble]
    if "www-authenticate" not in reply.headers:
        missing.append("no header WWW-Authenticate")
    return weighed(missing, of=3)


@script("key.placeholder")
def _probe_placeholder_key(subject: Subject) -> Script:
    # Clients that insist on a key send any, where none is needed.
    if subject.keyed:
        return unclear("asked with a key")
    reply = yield _build_short_request(subject, "wrong")
    if reply.status == 200:
        return yes()
    if not reply.status:
        return unclear(reply.trouble)
    return no(f"status {reply.status}: {reply.message}")


@script("errors.param")
def _probe_if_error_names_parameter(subject: Subject) -> Script:
    reply = yield subject.ask("Say ok.", 4, temperature="hot")
    if reply.status == 200:
        return no("taken: status 200")
    if not reply.status:
        return unclear(reply.trouble)
    param = reply.at("error", "param")
    if param == "temperature":
        return yes()
    if "temperature" in reply.message:
        return partly("in words, not as `param`")
    return no(reply.message)


# Streams: form, chunks and usage.


def _build_stream_request(subject: Subject) -> ProbeRequest:
    return subject.ask(HELLO, MOST, stream=True).with_reuse()


def _build_usage_stream_request(subject: Subject) -> ProbeRequest:
    options = {"include_usage": True}
    return subject.ask(HELLO, MOST, stream=True, stream_options=options).with_reuse()


@script("stream")
def _probe_stream_form(subject: Subject) -> Script:
    stream = (yield _build_stream_request(subject)).stream()
    return weighed(list(stream.faults), of=4)


@script("stream.chunks")
def _probe_stream_chunk_fields(subject: Subject) -> Script:
    stream = (yield _build_stream_request(subject)).stream()
    ids = {str(dig(chunk, "id") or "") for chunk in stream.chunks}
    objects = {str(dig(chunk, "object")) for chunk in stream.chunks}
    first, count = next(iter(stream.deltas()), {}), len(stream.finishes())
    return checked(
        (len(ids) != 1 or "" in ids, "not the same `id` on every chunk"),
        (objects != {"chat.completion.chunk"}, "`object` is not chat.completion.chunk"),
        (first.get("role") != "assistant", "the first delta has no role"),
        (count != 1, f"{count} finish reasons instead of one"),
        (not stream.answer().text, "no text"),
    )


@script("stream.usage")
def _probe_stream_usage(subject: Subject) -> Script:
    stream = (yield _build_usage_stream_request(subject)).stream()
    if stream.usage is None:
        return no("no chunk carries usage")
    carrying = [chunk for chunk in stream.chunks if dig(chunk, "usage") is not None]
    is_last = carrying[-1] is stream.chunks[-1]
    total, parts = dig(stream.usage, "total_tokens"), stream.answer()
    return checked(
        (not is_last, "usage is not in the last chunk"),
        (is_last and dig(carrying[-1], "choices") != [], "the chunk with usage has choices"),
        (len(carrying) > 1, "several chunks carry usage"),
        (total != (parts.prompt or 0) + (parts.completion or 0), "its numbers do not add up"),
    )


@script("stream.unasked")
def _probe_unasked_usage(subject: Subject) -> Script:
    stream = (yield _build_stream_request(subject)).stream()
    if stream.usage is not None:
        return no("a chunk carries usage although nobody asked for it")
    return yes()


@script("stream.same")
def _probe_stream_equality(subject: Subject) -> Script:
    plain = (yield subject.ask(HELLO, MOST).with_reuse()).answer()
    stream = (yield _build_usage_stream_request(subject)).stream().answer()
    if stream.text != plain.text:
        again = (yield subject.ask(HELLO, MOST)).answer()
        if again.text != plain.text:
            return unclear("two plain answers differ from each other already")
        return no(f"plain {plain.text!r:.60}, streamed {stream.text!r:.60}")
    missing = []
    if stream.finish != plain.finish:
        missing.append(f"finish reasons differ: {plain.finish} and {stream.finish}")
    if stream.completion is not None and (stream.prompt, stream.completion) != (
        plain.prompt,
        plain.completion,
    ):
        missing.append("the usage differs")
    return partly("; ".join(missing)) if missing else yes()


_LONG = "Count from 1 to 500 in words, one number a line."
_MOST = 600
_LOOKS = 12
_PAUSE = 0.15
_LONGEST_PAUSE = 1.0
_TRIES = 2  # without a page: a machine that stalls once is not taken for a server at work
_GAUGES = re.compile(
    rb"^(?:vllm:num_requests_running|sglang:num_running_reqs|llamacpp:requests_processing)"
    rb"(?:\{[^}]*\})? ([0-9]{1,9})(?![0-9])",
    re.MULTILINE,
)


def _count_busy_slots(reply: ProbeReply) -> int | None:
    found = reply.document()
    if not isinstance(found, list) or not found:
        return None
    return sum(dig(one, "is_processing") is True for one in found)


def _sum_running_request_gauges(reply: ProbeReply) -> int | None:
    found = _GAUGES.findall(reply.body)
    return sum(map(int, found)) if found else None


def _sum_busy_counts_of_engines(reply: ProbeReply) -> int | None:
    engines = reply.at("engines")
    if not isinstance(engines, list):
        return None
    return sum(busy for one in engines if isinstance(busy := dig(one, "busy"), int))


BusyReader = Callable[[ProbeReply], int | None]
"""Returns how many requests a page shows to be running; ``None`` if it is another page."""
_PAGES: Mapping[str, BusyReader] = {
    "/health": _sum_busy_counts_of_engines,
    "/slots": _count_busy_slots,
    "/metrics": _sum_running_request_gauges,
}


@script("left")
def _probe_stop_on_client_leaving(subject: Subject, *, stream: bool) -> Script:
    plain = replace(subject.ask(_LONG, _MOST), leave_after=0.5)
    streamed = replace(subject.ask(_LONG, _MOST, stream=True), leave_at_data=True)
    ask = streamed if stream else plain
    for path, busy_in in _PAGES.items():
        look = ProbeRequest("GET", path, at_root=True)
        if (before := busy_in((yield look))) is not None:
            return (yield from _probe_stop_by_status_page(look, busy_in, before, ask))
    return (yield from _probe_stop_by_time_of_next_request(subject, ask))


def _probe_stop_by_status_page(
    page: ProbeRequest, count_running: BusyReader, before: int, request: ProbeRequest
) -> Script:
    reply = yield request
    if reply.ended != "left":
        return unclear(reply.refusal or "it had ended before we could leave")
    waited = 0.0
    slow = min(max(_PAUSE, reply.seconds / 4), _LONGEST_PAUSE)  # a slow server stops slowly
    for pause in (0.0, *[slow] * (_LOOKS - 1)):
        waited += pause
        busy = count_running((yield replace(page, wait_seconds=pause)))
        if busy is not None and busy <= before:
            return yes(f"{page.path} shows it free {waited:.2g} s later")
    return no(f"{page.path} shows it busy {waited:.2g} s later")


def _probe_stop_by_time_of_next_request(subject: Subject, request: ProbeRequest) -> Script:
    alone = yield subject.ask("Say ok.", 4)
    for _ in range(_TRIES):
        left = yield request
        if left.ended != "left":
            return unclear(left.refusal or "it had ended before we could leave")
        after = yield subject.ask("Say ok.", 4)
        if after.seconds <= 3 * alone.seconds + 1.0:
            return unclear(
                "no page of the server tells what is running; the next request was not slower"
            )
    return no(f"the next request took {after.seconds:.1f} s instead of {alone.seconds:.1f} s")
