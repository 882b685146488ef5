"""Templates and files of pages, made once for all services of a process of tests.

Each service compiles its templates when a page is first shown, which is what users need once. A
test has a service of its own, and would compile them again: that took most of its time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from causerie.hosted.console import application
from causerie.http.pages import templating
from causerie.http.pages.assets import Statics
from causerie.http.pages.branding import Branding
from causerie.http.pages.templating import Templates, environment


@pytest.fixture(scope="session", autouse=True)
def lasting_templates() -> Iterator[None]:
    """Services with the same colours, name and logos share them: nothing changes either."""
    statics: Any = cache(Statics)
    made: dict[object, Templates] = {}

    def templates(files: Statics, brand: Branding, logos: Mapping[str, str] = {}) -> Templates:
        key = (files, brand, tuple(sorted(logos.items())))
        if key not in made:
            made[key] = environment(files, brand, logos)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        for module in (application, templating):
            patch.setattr(module, "Statics", statics)
            patch.setattr(module, "environment", templates)
        yield
