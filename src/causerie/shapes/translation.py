"""A request of another API while it becomes one of chat completions.

The reader of chat completions judges what it holds, so that repairs, limits, names of functions,
thinking and output formats are the same. Errors and reports name the fields of the client's API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field, structs

from causerie.errors import InvalidRequest, forget_frames
from causerie.protocol.body import ObjectReader, check_work, decode_marked
from causerie.protocol.bounded_json import SMALL
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest, ImagePart, UnreadParts, with_images
from causerie.shapes.chat_completions.messages import read_part
from causerie.shapes.chat_completions.past import Changes, Entry
from causerie.shapes.chat_completions.reader import read_fields
from causerie.shapes.shape import AT_ONCE, Places


class Translation(Struct, eq=False):
    """A request as far as it is translated: ``values`` are its fields of chat completions.

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
    unread: UnreadParts = field(default_factory=UnreadParts)

    def refuse(self, failure: InvalidRequest) -> None:
        """Record an error that all targets raise, except providers of the client's own API."""
        forget_frames(failure)
        self.unread.refused = self.unread.refused or failure

    def read(
        self, rules: ParsingRules, names: Mapping[str, str], mark: str, size: int
    ) -> tuple[ChatRequest, Places]:
        """Return the request of the translated fields, and their places in the client's body."""
        changes, unread = self.changes.reported(), self.unread
        # These are fields of the client's body already.
        own = {*unread.addresses, (unread.refused and unread.refused.param) or ""}
        named = {**names, **self.names, **{name: name for name in own}}
        places = Places(tuple(self.places), named, frozenset(changes))
        self.values["messages"] = self.messages
        try:
            request = read_fields(ObjectReader(self.values), rules, large=size > AT_ONCE, mark=mark)
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
        request = structs.replace(
            request,
            messages=messages,
            changes=changes,
            lenient_tools=True,
            unread=None if unread == UnreadParts() else unread,
        )
        return request, places


def decoded(body: bytes, rules: ParsingRules) -> tuple[ObjectReader, str]:
    """Decode a body that no fast reader takes; return it and the mark of lone surrogates in it."""
    if len(body) <= SMALL:  # larger ones were checked before
        check_work(body, rules)
    document, mark = decode_marked(body)
    return ObjectReader(document), mark


def is_image(part: Entry) -> bool:
    """Return true if the part is an image that a message of a user may have."""
    try:
        return isinstance(read_part(ObjectReader(part), "user"), ImagePart)
    except InvalidRequest:
        return False


def without(
    entries: Sequence[object], leaves_out: Callable[[object], bool], place: str, changes: Changes
) -> list[object]:
    """Return the entries that ``leaves_out`` does not select, and note each one that it does."""
    for at, each in enumerate(entries):
        if leaves_out(each):
            changes.note(f"{place}[{at}] dropped")
    return [each for each in entries if not leaves_out(each)]
