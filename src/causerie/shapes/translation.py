"""A request of another API while it becomes one of chat completions.

The reader of chat completions judges what it holds, so that repairs, limits, names of functions,
thinking and output formats are the same. Errors and reports name the fields of the client's API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field, structs

from causerie.errors import InvalidRequest
from causerie.http.event_loop import LARGE
from causerie.protocol.body import ObjectReader, check_work, decode_marked
from causerie.protocol.bounded_json import SMALL
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest, with_images
from causerie.shapes.chat_completions.past import Changes
from causerie.shapes.chat_completions.reader import read_fields
from causerie.shapes.shape import AT_ONCE, ParsedRequest, Places


class Translation(Struct, eq=False):
    """``values`` are the fields of chat completions, ``messages`` are one of them.

    ``places`` has the place of each message in the client's body, ``names`` those of other fields.
    """

    body: ObjectReader
    values: dict[str, Any] = {}
    messages: list[dict[str, Any]] = []
    places: list[str] = []
    names: dict[str, str] = {}
    returned_images: set[str] = set()
    """Addresses of images that tools returned: their client cannot leave them out."""
    changes: Changes = field(default_factory=Changes)

    def read(
        self, rules: ParsingRules, names: Mapping[str, str], mark: str, *, large: bool
    ) -> tuple[ChatRequest, Places]:
        """Read the fields, of which ``names`` have always the same place in the client's body."""
        changes = self.changes.reported()
        places = Places(tuple(self.places), {**names, **self.names}, frozenset(changes))
        self.values["messages"] = self.messages
        try:
            request = read_fields(ObjectReader(self.values), rules, large=large, mark=mark)
        except InvalidRequest as failure:
            places.rename(failure)
            raise
        messages, addresses = request.messages, self.returned_images
        if addresses:
            messages = with_images(
                messages,
                lambda one: structs.replace(one, optional=True) if one.url in addresses else one,
            )
        changes = (*changes, *request.changes)
        request = structs.replace(request, messages=messages, changes=changes, lenient_tools=True)
        return request, places


def parse_translated(
    body: bytes,
    rules: ParsingRules,
    parse_plain: Callable[[], ParsedRequest | None],
    translated: Callable[[ObjectReader, str, bool], ParsedRequest],
) -> ParsedRequest:
    """Parse a request that is plain text in one native pass, and any other field by field."""
    if len(body) > SMALL:  # else reading all of it does no harm
        check_work(body, rules)
    if len(body) <= LARGE and (plain := parse_plain()) is not None:
        return plain
    if len(body) <= SMALL:
        check_work(body, rules)
    document, mark = decode_marked(body)
    return translated(ObjectReader(document), mark, len(body) > AT_ONCE)
