"""The configuration reference is what the program itself says."""

from __future__ import annotations

import re
from pathlib import Path

from configuration_page import configuration_page

from causerie.settings.load import load

PAGE = (Path(__file__).parents[2] / "docs" / "reference/configuration.md").read_text("utf-8")


def test_page_is_up_to_date() -> None:
    assert configuration_page() == PAGE, "run `make docs`"


def test_example_on_the_page_is_a_valid_configuration(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    file = tmp_path / "causerie.toml"
    file.write_text(found.group(1), encoding="utf-8")
    assert load(file=file, environ={}).settings.models[0].id == "qwen3-4b"
