"""Passwords: hashed with argon2id, and none that others would guess.

Hashing is slow on purpose (tens of milliseconds and 64 MiB), so it runs in a
thread, few at a time: a flood of attempts must not take the machine's memory.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError
from zxcvbn import zxcvbn

from causerie.errors import InvalidRequest, Overloaded

_SHORTEST = 10
_LONGEST = 256
_LOOKED_AT = 72  # the estimate takes no more; what is longer is not weaker
_ENOUGH = 3  # of 4: some ten billion guesses
_AT_ONCE = 4
_IN_LINE = 64
_T = TypeVar("_T")

# A hash of 256 random bits that nobody kept, made as the hasher here makes them.
NOBODY = (
    "$argon2id$v=19$m=65536,t=3,p=4$W+tVcvI2wl2klkpctaYKLQ"
    "$NEyy3lrrkgNKKGDQbCxZzG0XS6TIPH877AFMvuPCeXw"
)


class Passwords:
    """Makes and checks hashes."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()  # the second recommendation of RFC 9106
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._in_line = 0
        self._nobody = self._hasher.hash("nobody has this password") if hasher else NOBODY

    async def hash_new(self, password: str, about: Iterable[str]) -> str:
        """The hash of a password that somebody chose.

        Raises :class:`InvalidRequest` for one that is short, common, or like
        ``about``: what others know of them, such as name and address.
        """
        password = _normal(password)
        if not _SHORTEST <= len(password) <= _LONGEST:
            raise InvalidRequest(
                f"A password has {_SHORTEST} to {_LONGEST} characters.", param="password"
            )
        return await self._slowly(partial(self._checked, password, tuple(about)))

    async def matches(self, kept: str | None, password: str) -> bool:
        """Return true if the password matches; without a stored hash it takes as long."""
        return await self._slowly(partial(self._verify, kept, _normal(password[:_LONGEST])))

    def _verify(self, kept: str | None, password: str) -> bool:
        try:
            self._hasher.verify(kept or self._nobody, password)
        except (VerifyMismatchError, VerificationError, InvalidHashError):
            return False
        return kept is not None

    def _checked(self, password: str, about: tuple[str, ...]) -> str:
        _refuse_easy(password, about)
        return self._hasher.hash(password)

    async def _slowly(self, work: Callable[[], _T]) -> _T:
        if self._in_line >= _IN_LINE:
            raise Overloaded("Too many people sign in at this moment. Try again in a second.")
        self._in_line += 1
        try:
            async with self._places:
                return await asyncio.to_thread(work)
        finally:
            self._in_line -= 1


def _refuse_easy(password: str, about: tuple[str, ...]) -> None:
    known = [part for word in about for part in (word, *word.replace("@", ".").split("."))]
    found = zxcvbn(password[:_LOOKED_AT], user_inputs=[*known, "causerie"])
    if found["score"] < _ENOUGH:
        why = found["feedback"]["warning"] or "Others would guess it soon."
        raise InvalidRequest(
            f"This password is too easy to guess. {why} Several unrelated words are good.",
            param="password",
            code="weak_password",
        )


def _normal(password: str) -> str:
    return unicodedata.normalize("NFKC", password)
