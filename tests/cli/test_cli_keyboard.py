"""Lines that a person types, and those that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from casekit import each_of

from causerie.cli.chat_terminal import append_history, load_history, read_message


def typed(*lines: str) -> str:
    left: Iterator[str] = iter(lines)
    text = read_message(lambda _: next(left))
    assert next(left, None) is None, "a line is left"
    return text


@each_of(
    ("lines", "text"),
    [
        ((" Why? ",), "Why?"),
        (("a\\", "b \\", "  c"), "a\nb \n  c"),
        (('"""', "a", "", "  b", '"""'), "a\n\n  b"),
        (('"""a', 'b"""'), "a\nb"),
        (('"""a"""',), "a"),
        (('"""', "a\\", '"""'), "a\\"),
    ],
)
def test_a_question_may_have_several_lines(lines: tuple[str, ...], text: str) -> None:
    assert typed(*lines) == text


def test_a_long_history_is_shortened(tmp_path: Path) -> None:
    file = tmp_path / "state/chat_history"
    assert load_history(file) == []
    for number in range(2001):
        append_history(file, f"line {number}")
    assert load_history(file)[0] == "line 1001"
    assert len(file.read_text(encoding="utf-8").splitlines()) == 1000
    append_history(file, "first\n\n  second")
    append_history(file, "third")
    assert load_history(file)[-2:] == ["first\n\n  second", "third"], "each is one message"
    for number in range(1000):
        append_history(file, f"line {number}\nof two")
    assert load_history(file)[-1000:] == [f"line {number}\nof two" for number in range(1000)]
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_a_chat_goes_on_without_history(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    append_history(tmp_path / "file/chat_history", "Why?")
    assert load_history(tmp_path / "file/chat_history") == []
