"""Copy the scripts of others that pages load from their npm packages, as they were released.

    python tools/vendor/vendor.py

`package-lock.json` beside this file pins the packages. The digests of the copies are in
`SHA256SUMS` beside them, and a test compares.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
TO = HERE.parents[1] / "src/causerie/http/pages/static/vendor"
LANGUAGES = (
    *("bash", "c", "cpp", "csharp", "css", "diff", "dockerfile", "go", "ini", "java"),
    *("javascript", "json", "kotlin", "lua", "makefile", "markdown", "php", "powershell"),
    *("python", "r", "ruby", "rust", "scala", "sql", "swift", "typescript", "xml", "yaml"),
)
_HIGHLIGHT = "@highlightjs/cdn-assets"
FILES: Mapping[str, str] = {
    "htmx.js": "htmx.org/dist/htmx.min.js",
    "htmx.LICENSE": "htmx.org/LICENSE",
    "hljs.js": f"{_HIGHLIGHT}/es/core.min.js",
    "hljs.LICENSE": f"{_HIGHLIGHT}/LICENSE",
    **{f"hljs_{name}.js": f"{_HIGHLIGHT}/es/languages/{name}.min.js" for name in LANGUAGES},
    "pdf.js": "pdfjs-dist/legacy/build/pdf.min.mjs",
    "pdf_worker.js": "pdfjs-dist/legacy/build/pdf.worker.min.mjs",
    "pdf.LICENSE": "pdfjs-dist/LICENSE",
    "temml.js": "temml/dist/temml.min.js",
    "temml.LICENSE": "temml/LICENSE",
}
"""Copies, and where the packages have them."""


def main() -> None:
    """Run it."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=optional"]
        subprocess.run(command, cwd=folder, check=True)
        for name, path in FILES.items():
            shutil.copy(Path(folder, "node_modules", path), TO / name)
    lines = [f"{hashlib.sha256((TO / name).read_bytes()).hexdigest()}  {name}" for name in FILES]
    (TO / "SHA256SUMS").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
