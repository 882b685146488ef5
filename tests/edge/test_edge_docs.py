"""The pages on the interface name everything that the code knows."""

from __future__ import annotations

import re
from pathlib import Path

from api_table import parameter_table, renewed

import causerie
from causerie.protocol.parameters import HINT_NAMES, HONOURED

ROOT = Path(__file__).parents[2]
SOURCE = Path(causerie.__file__).parent
LINK = re.compile(r'\]\(([^)\s:]+)\)|\bsrc(?:set)?="([^"]+)"')
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
SHOWN = re.compile(r'\bcode(?:: str)? ?= ?"([a-z_]+)"')


def test_every_error_code_is_documented() -> None:
    page = (ROOT / "docs" / "reference/errors.md").read_text()
    used = {code for path in SOURCE.rglob("*.py") for code in SHOWN.findall(path.read_text())}
    assert len(used) > 15
    missing = sorted(code for code in used if f"`{code}`" not in page)
    assert not missing, f"add these codes to docs/reference/errors.md: {missing}"


def test_the_table_of_parameters_is_that_of_the_declarations() -> None:
    page = (ROOT / "docs" / "reference/api.md").read_text()
    assert parameter_table() in page
    assert renewed(page) == page, "run `make docs`"


def test_every_parameter_is_documented() -> None:
    page = (ROOT / "docs" / "reference/api.md").read_text()
    missing = sorted(
        name
        for name in (HONOURED | HINT_NAMES) - {"modalities", "stream_options"}
        if f"`{name}`" not in page
    )
    assert not missing, f"add these parameters to docs/reference/api.md: {missing}"


def test_every_link_leads_somewhere() -> None:
    first = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    pages = [*first, *(ROOT / "docs").rglob("*.md")]
    lost = [
        f"{page.name}: {link}" for page in pages for link in _links(page) if not _leads(page, link)
    ]
    assert not lost


def test_every_page_is_two_clicks_from_the_first() -> None:
    first = _pages(ROOT / "README.md")
    second = {page for one in first for page in _pages(one)}
    pages = {*(ROOT / "docs").rglob("*.md")}
    assert pages <= first | second


def _links(page: Path) -> list[str]:
    return [link or picture for link, picture in LINK.findall(page.read_text())]


def _pages(page: Path) -> set[Path]:
    found = (page.parent / link.partition("#")[0] for link in _links(page))
    return {path.resolve() for path in found if path.suffix == ".md"}


def _leads(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not anchor or anchor in _anchors(target.read_text()))


def _anchors(text: str) -> set[str]:
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in HEADING.findall(text)}
