"""Rules for the models, doors and providers that a project, a person or a member may use.

Every rule has to allow a model, and so has the key, which can only narrow them. What a rule says of
a model is remembered until the model is another one, so that a request costs a look-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct

from causerie.errors import Forbidden, InvalidRequest
from causerie.protocol.numbers import money
from causerie.protocol.targets import Candidate, TargetOffer

WILDCARD = "*"
_KEPT = 1000
_LONGEST_NAME = 200
_MOST_NAMES = 500
_MOST_PRICE = Decimal(1_000_000)


_Names = Annotated[
    frozenset[Annotated[str, Meta(min_length=1, max_length=_LONGEST_NAME)]],
    Meta(max_length=_MOST_NAMES),
]


class Access(Struct, frozen=True, forbid_unknown_fields=True):
    """Allowed models, doors, providers and highest prices; ``None`` does not restrict."""

    models: _Names | None = None
    """Names; with ``*`` at the end all names that begin so."""
    doors: _Names | None = None
    providers: _Names | None = None
    """``causerie`` stands for models that this service runs itself."""
    prompt_price: Decimal | None = None
    completion_price: Decimal | None = None
    """Prices are the highest, of 1M tokens."""

    def opens(self, door: str) -> bool:
        return self.doors is None or door in self.doors

    def check(self) -> None:
        """Raise :class:`InvalidRequest` if a name or a price in this rule is not valid."""
        for name in ("models", "doors", "providers"):
            given: frozenset[str] = getattr(self, name) or frozenset()
            wrong = [each for each in given if not 0 < len(each) <= _LONGEST_NAME]
            wrong += [each for each in given if WILDCARD in each[:-1]]
            if wrong or len(given) > _MOST_NAMES:
                raise InvalidRequest(
                    f"There are at most {_MOST_NAMES} names of 1 to {_LONGEST_NAME} characters, "
                    "and `*` stands at the end of one.",
                    param=name,
                )
        for name in ("prompt_price", "completion_price"):
            price: Decimal | None = getattr(self, name)
            try:
                fits = price is None or (
                    money(price) <= _MOST_PRICE and int(price.as_tuple().exponent) <= 0
                )
            except ValueError:
                fits = False
            if not fits:
                raise InvalidRequest(
                    f"A price is from 0 to {_MOST_PRICE:,}, without an exponent.", param=name
                )

    def words(self) -> str:
        """Return the restrictions on one line, for the audit log."""
        found = []
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            if isinstance(value, frozenset):
                value = ", ".join(sorted(value)) or "none"
            if value is not None:
                found.append(f"{name} {value}")
        return "; ".join(found) or "all"


ALL = Access()


class Restricted(Protocol):
    """What access rules read of a model: its id, its names and the offers of its targets."""

    @property
    def id(self) -> str: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def offers(self) -> Sequence[TargetOffer]: ...


class AccessRule(Struct, frozen=True):
    """An access rule, with the kind of its owner: ``project``, ``person`` or ``member``."""

    whose: str
    access: Access


class Verdict(Struct, frozen=True):
    """Why a model may not be used (empty: it may), and its allowed targets (``None``: all)."""

    refusal: str = ""
    targets: frozenset[str] | None = None


_ALLOWED = Verdict()
_WHOSE = {
    "project": "the project",
    "person": "the person whose key it is",
    "member": "this member of the project",
}


class Permissions:
    """Checks models and their targets by the access rules of one caller."""

    def __init__(self, rules: Sequence[AccessRule]) -> None:
        self._rules_that_must_all_allow = tuple(rules)
        self._model_and_verdict_by_name: dict[str, tuple[Restricted, Verdict]] = {}

    def verdict(self, model: Restricted) -> Verdict:
        """Return whether the rules allow a model, and which of its targets."""
        name = model.names[0]
        known = self._model_and_verdict_by_name.get(name)
        if known is not None and known[0] is model:
            return known[1]
        found = self._compute_verdict(model)
        if len(self._model_and_verdict_by_name) >= _KEPT:
            self._model_and_verdict_by_name.clear()
        self._model_and_verdict_by_name[name] = model, found
        return found

    def check(self, model: Restricted) -> None:
        """Raise :class:`Forbidden` for a model that a rule does not allow."""
        refusal = self.verdict(model).refusal
        if refusal:
            raise Forbidden(
                f"The model {model.names[-1]} may not be used: {refusal}.",
                code="model_not_allowed",
                param="model",
            )

    def kept(self, model: Restricted, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates that the rules allow; raise :class:`Forbidden` if none is left."""
        targets = self.verdict(model).targets
        if targets is None:
            return candidates
        found = [one for one in candidates if one.name in targets]
        if not found:
            raise Forbidden(
                f"No target of the model {model.id} that serves this request may be used here.",
                code="model_not_allowed",
                param="model",
            )
        return found

    def _compute_verdict(self, model: Restricted) -> Verdict:
        left = list(model.offers)
        for rule in self._rules_that_must_all_allow:
            listed = rule.access.models
            if listed is not None and not any(_is_listed(listed, name) for name in model.names):
                return Verdict(f"it is not among the models of {_WHOSE[rule.whose]}")
            fitting = [one for one in left if not _explain_exclusion_or_empty(rule.access, one)]
            if left and not fitting:
                why = _explain_exclusion_or_empty(rule.access, left[0])
                return Verdict(f"{why} for {_WHOSE[rule.whose]}")
            left = fitting
        if len(left) == len(model.offers):
            return _ALLOWED
        return Verdict(targets=frozenset(one.target for one in left))


def _is_listed(patterns: frozenset[str], model_name: str) -> bool:
    beginnings = tuple(each[:-1] for each in patterns if each[-1:] == WILDCARD)
    return model_name in patterns or model_name.startswith(beginnings)


def _explain_exclusion_or_empty(access: Access, target_offer: TargetOffer) -> str:
    if access.providers is not None and target_offer.provider not in access.providers:
        return f"the provider {target_offer.provider} is not allowed"
    for kind, price, most in (
        ("input", target_offer.prompt, access.prompt_price),
        ("output", target_offer.completion, access.completion_price),
    ):
        if most is not None and price > most:
            return f"its {kind} price of {price.normalize():f} per 1M tokens is above {most:f}"
    return ""
