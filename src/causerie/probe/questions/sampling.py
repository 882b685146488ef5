"""Sampling of tokens (contract 1): each parameter by its effect on the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from causerie.probe.question import (
    ProbeQuestion,
    ProbeRequest,
    Script,
    Steps,
    Subject,
    dig,
    no,
    of_parameter,
    question,
    unclear,
    weighed,
    yes,
)
from causerie.probe.reading import ProbeAnswer, answered, refusal
from causerie.protocol.declaration import Effect
from causerie.protocol.parameters import SAMPLING

_OPEN = "Invent a name for a spaceship and for its captain."
_AGAIN = "Write the word ha thirty times, like this: ha ha ha ha"
_HOT = 1.5
_TOKENS = (65, 300, 1000)
_STILL = "the text never varies, so no effect can be seen"


def _hot(subject: Subject, **fields: object) -> ProbeRequest:
    return subject.ask(_OPEN, 16, **({"temperature": _HOT} | fields))


def _varies(subject: Subject) -> Steps[bool]:
    texts = set()
    for _ in range(3):
        texts.add(answered((yield _hot(subject))).text)
        if len(texts) > 1:
            return True
    return False


def _repeated(ask: ProbeRequest) -> Steps[tuple[bool, str]]:
    # Up to three texts: the first may be computed otherwise, for its prompt was not cached.
    before = answered((yield ask)).text
    for _ in range(2):
        text = answered((yield ask)).text
        if text == before:
            return True, text
        before = text
    return False, before


@of_parameter("temperature", asks=5, tokens=80)
def _temperature(subject: Subject) -> Script:
    """Does `temperature` heat and cool?"""
    still, cold = yield from _repeated(subject.ask(_OPEN, 16, temperature=0))
    hot = answered((yield _hot(subject))).text
    hotter = answered((yield _hot(subject))).text
    moved = len({hot, hotter, cold}) > 1
    if still and moved:
        return yes(f"at 0 it repeats itself, at {_HOT} it does not")
    if still:
        return no(f"the same text at 0 and at {_HOT}")
    return no("the text varies at temperature 0")


def _narrowed(name: str, value: float) -> ProbeQuestion:
    # Texts at a high temperature are equal if only the likeliest token is left.
    @of_parameter(name, f"Does `{name}` narrow?", asks=6, tokens=80)
    def script(subject: Subject) -> Script:
        same, _ = yield from _repeated(_hot(subject, **{name: value}))
        if not same:
            return no(f"accepted, no effect: three texts at {value:g} all differ")
        if not (yield from _varies(subject)):
            return unclear(_STILL)
        return yes(f"at {value:g} hot texts are the same, without it they differ")

    return script


@of_parameter("seed", asks=5, tokens=80)
def _seed(subject: Subject) -> Script:
    """Does `seed` repeat a text?"""
    same, text = yield from _repeated(_hot(subject, seed=7))
    if not same:
        return no("accepted, no effect: three texts with the same seed all differ")
    for other in (8, 9):
        if answered((yield _hot(subject, seed=other))).text != text:
            return yes("the same seed gives the same text, another one another text")
    return unclear(_STILL)


def _changed(name: str, value: float) -> ProbeQuestion:
    # A text that repeats itself must change under a penalty on repetition.
    @of_parameter(name, f"Does `{name}` change a text that repeats?", asks=4, tokens=80)
    def script(subject: Subject) -> Script:
        first = answered((yield subject.ask(_AGAIN, 32)))
        plain = answered((yield subject.ask(_AGAIN, 32)))
        changed = answered((yield subject.ask(_AGAIN, 32, **{name: value})))
        if changed.text == plain.text:
            return no(f"accepted, no effect: the same text at {value:g}")
        if first.text != plain.text:
            again = answered((yield subject.ask(_AGAIN, 32)))
            if again.text != plain.text:
                return unclear("the text varies by itself")
        return yes(f"{plain.text!r:.40} became {changed.text!r:.40}")

    return script


@of_parameter("logit_bias", asks=3, tokens=80)
def _bias(subject: Subject) -> Script:
    """Does `logit_bias` force a token?"""
    refused = ""
    for token in _TOKENS:
        fields: dict[str, object] = {subject.limit: 4, "logit_bias": {str(token): 100}}
        reply = yield subject.ask(_OPEN, 4, **fields)
        refused = refusal(reply) or ""
        if refused:
            continue
        answer = answered(reply)
        text = answer.text or answer.reasoning
        for count in (4, 3, 2):
            unit, rest = divmod(len(text), count)
            if unit and not rest and text == text[:unit] * count:
                return yes(f"token {token} at 100 gave {text!r:.40}")
    return no(refused or "accepted, no effect: no token could be forced")


@question("logprobs", "contract 1, 2", decides=("logprobs", "top_logprobs"), tokens=60)
def _logprobs(subject: Subject) -> Script:
    """Do log-probabilities come, in their shape?"""
    answer = answered((yield subject.ask(_OPEN, 4, logprobs=True, top_logprobs=2)))
    tokens = dig(answer.document, "choices", 0, "logprobs", "content")
    if not isinstance(tokens, list) or not tokens:
        return no("accepted, no effect: no `logprobs.content`")
    return weighed(_odd_logprobs(tokens, answer), of=4)


def _odd_logprobs(tokens: list[object], answer: ProbeAnswer) -> list[str]:
    missing = []
    if any(not isinstance(dig(one, "logprob"), int | float) for one in tokens):
        missing.append("a token without `logprob`")
    tops = [dig(one, "top_logprobs") for one in tokens]
    if any(not isinstance(top, list) or len(top) != 2 for top in tops):
        missing.append("not two `top_logprobs` a token")
    if any(not isinstance(dig(one, "bytes"), list) for one in tokens):
        missing.append("a token without `bytes`")
    if not answer.reasoning and "".join(str(dig(one, "token")) for one in tokens) != answer.text:
        missing.append("the tokens are not the text")
    return missing


def _of_effects(
    effect: Effect, make: Callable[[str, float], ProbeQuestion]
) -> Iterator[ProbeQuestion]:
    for parameter in SAMPLING:
        if parameter.facts.effect == effect and (value := parameter.facts.visible_at) is not None:
            yield make(parameter.name, value)


QUESTIONS = (
    _temperature,
    *_of_effects("narrows", _narrowed),
    _seed,
    *_of_effects("penalises", _changed),
    *(_bias, _logprobs),
)
