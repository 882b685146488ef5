"""Generate ``docs/reference/providers.md`` from the known providers."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from causerie.providers.dialects import KNOWN_PROVIDERS, KnownProvider

_INTRODUCTION = """# Known providers

Name a provider of this page by `known`, and its base URL and dialect are filled in:

```toml
[[providers]]
known = "anthropic"
key = { env = "ANTHROPIC_API_KEY" }

[[aliases]]
id = "smart"
targets = [{ provider = "anthropic", model = "claude-opus-4-6" }]
```

What the entry sets itself goes first: `name` (otherwise the name here), `base_url`, `dialect`. All
other settings of a [provider](configuration.md) work as usual. A key that begins in another way is
probably one of another provider. Written from `causerie/providers/known.toml` (`make docs`).
"""
_AFTER = """
Azure OpenAI has a base URL for each resource, so it has no entry. Set `base_url` with the dialect
`azure` or `azure-deployments`, as [dialects](dialects.md#what-to-know) shows. That of `vertex` has
the name of your project, and that of `bedrock` a region:
[set it](../guides/changing-keys.md), and how their keys are renewed.
"""


def providers_page() -> str:
    """Return the whole page."""
    hosted = (one for one in KNOWN_PROVIDERS.values() if not one.local)
    local = (one for one in KNOWN_PROVIDERS.values() if one.local)
    lines = [
        _INTRODUCTION, "## Hosted\n", *_table(hosted), "\n## On your own machine\n", *_table(local),
    ]  # fmt: skip
    return "\n".join(lines) + "\n" + _AFTER


def _table(providers: Iterable[KnownProvider]) -> Iterable[str]:
    yield "| `known` | provider | base URL | dialect | its keys begin with |"
    yield "| --- | --- | --- | --- | --- |"
    for one in providers:
        key = f"`{one.key}`" if one.key else "no key" if one.local else "–"
        cells = (f"`{one.name}`", f"[{one.title}]({one.docs})", f"`{one.base_url}`")
        yield f"| {' | '.join(cells)} | `{one.dialect}` | {key} |"


if __name__ == "__main__":
    sys.stdout.write(providers_page())
