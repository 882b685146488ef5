"""Content of a conversation (interface 2.2, contract 1), and hints alongside it."""

from __future__ import annotations

from causerie.probe.question import ProbeQuestion, Script
from causerie.probe.questions.completion import HELLO
from causerie.probe.reading import answered, refusal
from causerie.probe.subject import Messages, Subject, user
from causerie.probe.verdict import no, partly, unclear, weighed, yes

_SAY = user("Say ok.")
_KINDS: tuple[tuple[str, Messages], ...] = (
    ("a system message", [{"role": "system", "content": "Be brief."}, _SAY]),
    ("the role developer", [{"role": "developer", "content": "Be brief."}, _SAY]),
    (
        "a system message later on",
        [
            {"role": "system", "content": "Be brief."},
            _SAY,
            {"role": "assistant", "content": "ok"},
            {"role": "system", "content": "Be kind."},
            user("Again."),
        ],
    ),
    ("text parts", [{"role": "user", "content": [{"type": "text", "text": "Say ok."}]}]),
)
_HINTS = {
    "user": "probe",
    "metadata": {"from": "probe"},
    "store": False,
    "service_tier": "auto",
    "prompt_cache_key": "probe",
    "prediction": {"type": "content", "content": "ok"},
    "verbosity": "low",
    "safety_identifier": "probe",
}


def _roles(subject: Subject) -> Script:
    refused = []
    for name, said in _KINDS:
        reply = yield subject.ask(said, 4)
        why = refusal(reply)
        if why is not None:
            refused.append(f"{name}: {why}")
            continue
        answered(reply)
    return weighed(refused, of=len(_KINDS))


def _hints(subject: Subject) -> Script:
    reply = yield subject.ask("Say ok.", 4, **_HINTS)
    if refusal(reply) is None:
        answered(reply)
        return yes()
    taken = []
    for name, value in _HINTS.items():
        one = yield subject.ask("Say ok.", 4, **{name: value})
        if refusal(one) is None:
            taken.append(name)
    left = sorted(set(_HINTS) - set(taken))
    if not taken:
        return no("refuses every hint")
    return partly("refuses " + (", ".join(left) or "them only together"))


def _unknown(subject: Subject) -> Script:
    reply = yield subject.ask("Say ok.", 4, zz_unknown_field=1)
    refused = refusal(reply)
    if refused is not None:
        return partly(refused)
    answered(reply)
    named = reply.headers.get("x-request-changes", "")
    if "zz_unknown_field dropped" in named:
        return yes("dropped, and named in x-request-changes")
    return partly("taken in silence: whether a parameter is known cannot be told from status 200")


def _documents(subject: Subject) -> Script:
    plain = answered((yield subject.ask(HELLO, 4)))
    documents = [{"title": "Foxes", "text": "A fox has a red tail. " * 6}]
    more = answered((yield subject.ask(HELLO, 4, documents=documents)))
    if plain.prompt is None or more.prompt is None:
        return unclear("no usage tells the length of the prompt")
    if more.prompt > plain.prompt + 20:
        return yes(f"the prompt grew from {plain.prompt} to {more.prompt} tokens")
    return no("accepted and left out: the prompt is as long as without them")


def _session(subject: Subject) -> Script:
    answered((yield subject.ask("Say ok.", 4, session_id="probe-1")))
    return unclear("accepted; where a request goes cannot be seen from outside")


def _modalities(subject: Subject) -> Script:
    answered((yield subject.ask("Say ok.", 4, modalities=["text"])))
    return yes("accepted; replies are text anyway")


QUESTIONS = (
    ProbeQuestion(
        "messages.roles",
        "2.2, contract 1",
        "Are system, developer, late system messages and text parts taken?",
        _roles,
        asks=4,
        tokens=60,
    ),
    ProbeQuestion("hints", "contract 1", "Are hints taken?", _hints, asks=9, tokens=50),
    ProbeQuestion("unknown", "contract 1", "Is an unknown field told of?", _unknown, tokens=50),
    ProbeQuestion(
        "documents",
        "contract 1",
        "Do `documents` reach the prompt?",
        _documents,
        decides=("documents",),
        asks=2,
        tokens=130,
    ),
    ProbeQuestion("session_id", "contract 1", "Is `session_id` taken?", _session, tokens=50),
    ProbeQuestion(
        "modalities",
        "contract 1",
        "Is `modalities` of text taken?",
        _modalities,
        decides=("modalities",),
        tokens=50,
    ),
)
