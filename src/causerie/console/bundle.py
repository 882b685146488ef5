"""A script in one file with all that it imports: one request, and one text to compress.

Each imported script becomes a function that returns what it exports, called where its importers
can read the result. What a script loads by ``import()`` stays a file of its own.

Scripts are written for this: an import or export begins its line, names what it takes, and no
imported script waits at its top level. A test asserts it of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_IMPORT = re.compile(r'^import (?:\{ ([^}]*) \} from )?"\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const|let)\b\*? ?(\w+))", re.MULTILINE)


def bundle(name: str, scripts: Mapping[str, str]) -> str:
    """Return the script ``name`` after all that it imports, directly or not.

    Raises :class:`KeyError` where it imports what is not there, and :class:`ValueError` for scripts
    that import each other.
    """
    before: dict[str, str] = {}
    _collect(name.removesuffix(".js"), scripts, before, ())
    return "".join(before.values())


def _collect(
    stem: str, scripts: Mapping[str, str], before: dict[str, str], path: tuple[str, ...]
) -> None:
    """Put a script into ``before``, after those that it imports."""
    if stem in path:
        raise ValueError(f"Scripts import each other: {', '.join((*path, stem))}.")
    text = scripts[f"{stem}.js"]
    for found in _IMPORT.finditer(text):
        if found[2] not in before:
            _collect(found[2], scripts, before, (*path, stem))
    text = _IMPORT.sub(_taken, text)
    if path:
        exported = ", ".join(found[2] for found in _EXPORT.finditer(text))
        body = _EXPORT.sub(r"\1", text)
        text = f"const {stem}_js = (() => {{\n{body}return {{ {exported} }};\n}})();\n"
    before[stem] = text


def _taken(found: re.Match[str]) -> str:
    """Return the line that takes from a script what an import named."""
    names = (found[1] or "").replace(" as ", ": ")
    return f"const {{ {names} }} = {found[2]}_js;\n" if names else ""
