"""Plant the faults of ``tests/mutants.toml`` one by one, and tell which of them no test finds.

    python tools/mutants.py                  # what `make test` finds
    python tools/mutants.py --all            # what `make test-all` finds
    python tools/mutants.py --only hosted    # those with this in room, file or words

Each fault is planted in a copy of the working tree. The tests that its entry names are asked
first, then all others. A test that fails without the fault too has found nothing. The exit status
is 1 if a fault is missed, or if an entry does not fit the source any more.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "mutants.toml"
# Installed, not tracked, and needed by some tests.
_LINKED = ("tests/javascript/node_modules", ".venv", "build/prometheus")
_ALL = ("-m", "not timing", "--hypothesis-profile", "full")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?|\S+)(?: - |$)", re.MULTILINE)
_PASSED, _FAILURES, _INTERRUPTED = 0, 1, 2


@dataclass(frozen=True)
class Mutant:
    """A fault: in ``file`` the ``text``, which stands there once, ``becomes`` another."""

    room: str
    breaks: str
    file: str
    text: str
    becomes: str
    tests: tuple[str, ...]
    invariant: int | None = None

    def __str__(self) -> str:
        number = f", invariant {self.invariant}" if self.invariant else ""
        return f"{self.room}{number}: {self.breaks} ({self.file})"

    def trouble(self, root: Path) -> str | None:
        """Return why it cannot be planted, if it cannot."""
        try:
            count = (root / self.file).read_text(encoding="utf-8").count(self.text)
        except FileNotFoundError:
            return "the file is gone"
        if count != 1:
            return f"the text stands there {count} times"
        return next((f"{one} is gone" for one in self.tests if not (root / one).exists()), None)


class NoAnswer(Exception):
    """The tests ended for another reason than a test that failed."""


class Copy:
    """A copy of the working tree, in which a fault is planted and taken out again."""

    def __init__(self, root: Path, limit: int) -> None:
        self._root = root
        self._limit = limit
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        )  # fmt: skip
        for name in filter(None, names.stdout.split("\0")):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        for name in _LINKED:
            if (ROOT / name).exists() and not (root / name).exists():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).symlink_to((ROOT / name).resolve())

    def found_by(self, mutant: Mutant, more: Sequence[str], *, rest: bool) -> str | None:
        """Return the test that finds a fault, or ``None``; its own tests are asked first."""
        others = [f"--ignore={one}" for one in mutant.tests]
        steps = [list(mutant.tests)]
        if rest:
            steps.append(["-n", "auto", "--dist", "loadgroup", "--no-loadscope-reorder", *others])
        return next((test for step in steps if (test := self._found(mutant, [*more, *step]))), None)

    def _found(self, mutant: Mutant, arguments: Sequence[str]) -> str | None:
        passed_over: list[str] = []
        while True:
            spared = [f"--deselect={one}" for one in passed_over]
            with Planted(self._root / mutant.file, mutant):
                status, said = self._asked([*arguments, *spared])
            if status == _PASSED:
                return None
            found: list[str] = _FAILED.findall(said)
            if status not in (_FAILURES, _INTERRUPTED) or not found:
                raise NoAnswer(f"status {status}: {said[-300:].strip()}")
            test = found[0]
            if status == _INTERRUPTED or self._asked([test, "-m", ""])[0] == _PASSED:
                return test
            passed_over.append(test)

    def _asked(self, arguments: Sequence[str]) -> tuple[int, str]:
        source = f"PYTHONPATH={self._root / 'src'}"  # before the one that is installed
        command = ["env", source, sys.executable, "-m", "pytest", "-x", "-q", "-rfE"]
        try:
            ended = subprocess.run(
                [*command, "-p", "no:cacheprovider", *arguments], cwd=self._root,
                timeout=self._limit,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return -1, f"not within {self._limit} s"
        return ended.returncode, ended.stdout + ended.stderr


class Planted:
    """The fault while the block runs."""

    def __init__(self, file: Path, mutant: Mutant) -> None:
        self._file = file
        self._mutant = mutant
        self._text = file.read_text(encoding="utf-8")

    def __enter__(self) -> None:
        changed = self._text.replace(self._mutant.text, self._mutant.becomes)
        self._file.write_text(changed, encoding="utf-8")

    def __exit__(self, *_: object) -> None:
        self._file.write_text(self._text, encoding="utf-8")


def read() -> list[Mutant]:
    """Return the faults that are listed."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))["mutants"]
    return [Mutant(**{**each, "tests": tuple(each["tests"])}) for each in listed]


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Plant them, and print what becomes of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="ask all tests, as `make test-all` does")
    parser.add_argument("--only", default="", help="those with this in room, file or words")
    parser.add_argument("--own", action="store_true", help="ask only the tests that an entry names")
    parser.add_argument("--limit", type=int, default=1800, help="seconds for each run of tests")
    asked = parser.parse_args()
    chosen = [each for each in read() if asked.only in str(each)]
    missed, stale = 0, 0
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        copy = Copy(Path(folder), asked.limit)
        for mutant in chosen:
            if (trouble := mutant.trouble(ROOT)) is not None:
                stale += 1
                _tell(f"stale   {mutant}: {trouble}")
                continue
            began = time.monotonic()
            try:
                found = copy.found_by(mutant, _ALL if asked.all else (), rest=not asked.own)
            except NoAnswer as failure:
                found, words = None, f"\n        no answer: {failure}"
            else:
                words = f"\n        by {found}" if found else ""
            missed += found is None
            word = "missed" if found is None else "found"
            _tell(f"{word:7} {mutant}, {time.monotonic() - began:.0f} s{words}")
    _tell(f"{len(chosen) - missed - stale} of {len(chosen)} found, {missed} missed, {stale} stale")
    return 1 if missed or stale else 0


if __name__ == "__main__":
    sys.exit(main())
