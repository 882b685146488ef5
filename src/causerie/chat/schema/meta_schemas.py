"""Documents outside a schema that it may refer to: the meta-schemas of the standard."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from causerie.chat.schema.addresses import Addresses

Documents = Mapping[str, Mapping[str, object]]
_HOST = "json-schema.org/"


def with_meta_schemas(found: Addresses) -> Addresses:
    """Return the addresses of the same schema with the meta-schemas that it refers to."""
    if not any(_HOST in name for name in found.documents):
        return found
    return with_documents(found, _meta_schemas())


def with_documents(found: Addresses, given: Documents) -> Addresses:
    """Return the same with those of some documents that it refers to, also by way of others."""
    while True:
        named = {name for name in found.documents if name in given and name not in found}
        definitions = found.whole.get("$defs", {})
        if not named or not isinstance(definitions, Mapping):
            return found
        held = {name: {**given[name], "$id": name} for name in sorted(named)}
        found = Addresses({**found.whole, "$defs": {**definitions, **held}})


@cache
def _meta_schemas() -> Documents:
    """Return the meta-schemas from draft 4 on, by their addresses."""
    from jsonschema_specifications import REGISTRY  # noqa: PLC0415 - few schemas refer to one

    return {
        address: REGISTRY.contents(address) for address in REGISTRY if "draft-03" not in address
    }
