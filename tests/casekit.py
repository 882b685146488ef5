"""Which cases a test is asked of: all in one loop, or the first with every run."""

from __future__ import annotations

import functools
import inspect
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from zlib import crc32

import pytest
from hypothesis import settings

T = TypeVar("T", bound=Callable[..., Any])
V = TypeVar("V")

_PARAM: Any = type(pytest.param())
_TOLD = 5
_NAME_LENGTH = 80

# What a profile of Hypothesis divides: so many examples a test has where it names no number.
_USUAL = 100


def examples(number: int) -> int:
    """So many examples with every test, and as large a part of them as the profile has else."""
    return max(3, number * settings().max_examples // _USUAL)


def each_of(
    names: str | tuple[str, ...],
    cases: Iterable[object],
    *,
    ids: Iterable[str] | Callable[[Any], str | None] = (),
    every: int = 1,
) -> Callable[[T], T]:
    """Ask a test of every case in turn, as ``pytest.mark.parametrize`` does of one test each.

    Fixtures are made once, so they must not keep what a case does. What fails names its case.
    ``make test`` asks only each third case where ``every`` is 3, of each test other ones.
    ``CAUSERIE_TEST_CASE`` leaves those cases alone that have its text in their names.
    """
    wanted = (names,) if isinstance(names, str) else names
    rows = [_row(wanted, case, ids if callable(ids) else None) for case in cases]
    if not callable(ids) and (given := list(ids)):
        rows = [(name, row) for name, (_, row) in zip(given, rows, strict=True)]

    def asked(test: T) -> T:
        few = settings().max_examples < _USUAL
        some = rows[crc32(test.__name__.encode()) % every :: every] if few else rows
        made = _asked(test, some) if inspect.iscoroutinefunction(test) else _told(test, some)
        signature = inspect.signature(test)
        left = [each for name, each in signature.parameters.items() if name not in wanted]
        made.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return made  # type: ignore[return-value]

    return asked


def part_of(cases: Iterable[V], turn: int, *, every: int = 3) -> list[V]:
    """Return the cases that a test walks through in this ``turn``.

    ``make test`` walks through one in so many: tests that take turns walk through all together.
    """
    few = settings().max_examples < _USUAL
    return list(cases)[turn % every :: every] if few else list(cases)


def first_of(cases: Iterable[Any], *, every: int = 0) -> list[Any]:
    """Leave all cases but the first to ``make test-all``, for ``pytest.mark.parametrize``.

    With ``every`` all but the first of each such group. A case that is itself a tuple stands in
    another one.
    """
    return [
        pytest.param(*_values(case), marks=[pytest.mark.full] if left else [])
        for at, case in enumerate(cases)
        for left in [at % every if every else at]
    ]


def _values(case: object) -> tuple[object, ...]:
    return case if isinstance(case, tuple) else (case,)


def _told(test: Callable[..., Any], rows: list[tuple[str, dict[str, object]]]) -> Any:
    @functools.wraps(test)
    def of_each(**fixtures: object) -> None:
        outcomes = Outcomes()
        for name, values in _chosen(rows):
            with outcomes.of(name):
                test(**values, **fixtures)
        outcomes.tell()

    return of_each


def _asked(test: Callable[..., Any], rows: list[tuple[str, dict[str, object]]]) -> Any:
    @functools.wraps(test)
    async def of_each(**fixtures: object) -> None:
        outcomes = Outcomes()
        for name, values in _chosen(rows):
            with outcomes.of(name):
                await test(**values, **fixtures)
        outcomes.tell()

    return of_each


class Outcomes:
    """What became of each case."""

    def __init__(self) -> None:
        self.asked = 0
        self.failed: list[tuple[str, BaseException]] = []
        self.skipped: list[BaseException] = []

    def of(self, name: str) -> Outcome:
        self.asked += 1
        return Outcome(self, name)

    def tell(self) -> None:
        """Fail with all cases that failed; the first of them say where."""
        __tracebackhide__ = True
        if self.failed:
            lines = [f"{len(self.failed)} of {self.asked} cases fail"]
            for at, (name, error) in enumerate(self.failed):
                lines.append(f"== {name}: {_line(error)}")
                if at < _TOLD:
                    lines += traceback.format_exception(error)
            raise AssertionError("\n".join(lines)) from None
        if not self.asked or len(self.skipped) == self.asked:
            pytest.skip(str(self.skipped[0]) if self.skipped else "no cases")


class Outcome:
    """One case: its failure is kept, so that the next case is asked, too."""

    def __init__(self, outcomes: Outcomes, name: str) -> None:
        self._outcomes = outcomes
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if isinstance(error, pytest.skip.Exception):
            self._outcomes.skipped.append(error)
        elif isinstance(error, Exception | pytest.fail.Exception):
            self._outcomes.failed.append((self._name, error))
        return isinstance(error, Exception | pytest.fail.Exception | pytest.skip.Exception)


def _row(
    names: tuple[str, ...], case: object, told: Callable[[Any], str | None] | None
) -> tuple[str, dict[str, object]]:
    given_name: str | None = None
    values: tuple[Any, ...]
    if isinstance(case, _PARAM):
        if case.marks:
            raise ValueError("a case that is marked is a test of its own")
        given_name, values = case.id, tuple(case.values)
    else:
        values = (case,) if len(names) == 1 else tuple(case)  # type: ignore[arg-type]
    row = dict(zip(names, values, strict=True))
    return given_name or ", ".join(_named(row, told)), row


def _named(row: Mapping[str, object], told: Callable[[Any], str | None] | None) -> Iterator[str]:
    for name, value in row.items():
        text = told(value) if told else None  # which may leave a value to us
        text = text or getattr(value, "__name__", None) or repr(value)
        yield f"{name}={text if len(text) <= _NAME_LENGTH else text[:_NAME_LENGTH] + '…'}"


def _chosen(rows: list[tuple[str, dict[str, object]]]) -> Iterator[tuple[str, dict[str, object]]]:
    wanted = os.environ.get("CAUSERIE_TEST_CASE", "")
    return (row for row in rows if wanted in row[0])


def _line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
