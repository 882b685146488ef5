"""The pages on the interface name everything that the code knows."""

from __future__ import annotations

import re
from pathlib import Path

import causerie
from causerie.protocol.parsing import HINTS, HONOURED

ROOT = Path(__file__).parent.parent
SOURCE = Path(causerie.__file__).parent
SHOWN = re.compile(r'\bcode(?:: str)? ?= ?"([a-z_]+)"')


def test_every_error_code_is_documented() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    used = {code for path in SOURCE.rglob("*.py") for code in SHOWN.findall(path.read_text())}
    assert len(used) > 15
    missing = sorted(code for code in used if f"`{code}`" not in page)
    assert not missing, f"add these codes to docs/errors.md: {missing}"


def test_every_parameter_is_documented() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    missing = sorted(
        name
        for name in (HONOURED | HINTS) - {"modalities", "stream_options"}
        if f"`{name}`" not in page
    )
    assert not missing, f"add these parameters to docs/api.md: {missing}"
