"""The nearest name: found for one typing error, with the same work among ten names or 20,000."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.catalog.catalog import Catalog
from causerie.catalog.model import ModelCard, ServedModel, TargetCapabilities
from causerie.chat.schema.keywords import ignored_keyword
from causerie.chat.schema.normal import Rewriter
from causerie.errors import NotFound
from causerie.protocol import nearest as module
from causerie.protocol.nearest import ALIKE, AROUND, NameIndex, nearest
from causerie.protocol.targets import Candidate

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-."
SIZES = ("large", "small", "nano", "70b")
KINDS = ("instruct", "coder", "vision", "base")
NAMES = [f"{maker}/{size}-{kind}" for maker in ("acme", "meta") for size in SIZES for kind in KINDS]
INDEX = NameIndex(NAMES)


def misspelt(name: str, at: int, kind: str, letter: str) -> str:
    match kind:
        case "left out":
            return name[:at] + name[at + 1 :]
        case "added":
            return name[:at] + letter + name[at:]
        case "swapped":
            return name[:at] + name[at + 1 : at + 2] + name[at : at + 1] + name[at + 2 :]
    return name[:at] + letter + name[at + 1 :]


@given(
    st.sampled_from(NAMES),
    st.integers(0, 30),
    st.sampled_from(["left out", "added", "swapped", "other"]),
    st.sampled_from(LETTERS),
)
def test_a_name_with_one_typing_error_has_a_nearest_name(
    name: str, at: int, kind: str, letter: str
) -> None:
    wrong = misspelt(name, min(at, len(name) - 1), kind, letter)
    found = nearest(wrong, INDEX.around(wrong), 0.4)
    assert found is not None
    assert module._compute_unlike_share(wrong, found) <= module._compute_unlike_share(wrong, name)


@given(st.text(max_size=300))
def test_the_work_does_not_grow_with_the_names(text: str) -> None:
    assert len(list(INDEX.around(text))) <= 4 * AROUND
    nearest(text, INDEX.around(text), 0.4)


@pytest.mark.parametrize("models", [10, 2000])
def test_an_unknown_model_is_compared_with_few(
    models: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = TargetCapabilities(Candidate("a"))
    catalog = Catalog(
        ServedModel(ModelCard(f"maker-{n % 7}/model-{n:05}", "M"), [target]) for n in range(models)
    )
    compared: list[str] = []
    distance = module._compute_unlike_share

    def counted(one: str, other: str) -> float:
        compared.append(other)
        return distance(one, other)

    monkeypatch.setattr(module, "_compute_unlike_share", counted)
    for asked in ("maker-3/model-0000", "x" * 5000, "", "model-00003", "maker-3/modle-00003"):
        compared.clear()
        with pytest.raises(NotFound):
            catalog.resolve(None, asked)
        assert len(compared) <= 4 * AROUND
    with pytest.raises(NotFound, match=r"Did you mean maker-3/model-00003\?"):
        catalog.resolve(None, "model-00003")
    hidden = frozenset(f"maker-{n % 7}/model-{n:05}" for n in range(5))
    with pytest.raises(NotFound, match="GET /models"):
        catalog.resolve(hidden, "maker-1/modle-99998")


def test_a_bounded_number_of_unknown_keywords_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(key: str) -> str:
        asked.append(key)
        return ignored_keyword(key)

    monkeypatch.setattr("causerie.chat.schema.keywords.ignored_keyword", counted)
    names = [f"{'k' * 70}{n}" for n in range(3000)]  # all look the same in a header
    Rewriter({"type": "object", **dict.fromkeys(names, 1)}, "p").rewrite()
    assert len(asked) == 32


def test_of_two_that_are_as_near_the_one_that_begins_alike_is_meant() -> None:
    assert nearest("log", ["catalog", "logging"], ALIKE) == "logging"
