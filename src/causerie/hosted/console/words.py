"""Words of pages, from a table: notices, navigation, choices, letters, and sentences of the log."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WORDS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
CHOICES: Mapping[str, Any] = WORDS["choices"]
"""Values of fields, each with its words."""
