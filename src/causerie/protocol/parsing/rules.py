"""Rules by which a door reads requests, and the names of all parameters by their treatment."""

from __future__ import annotations

from msgspec import Struct

from causerie.protocol import bounded_json, parameters


class ParsingRules(Struct, frozen=True):
    """Rules by which a body is read.

    ``reasoning_object`` says whether the door knows the router's ``reasoning``
    object, ``router`` whether it knows ``models``, ``provider`` and the like;
    ``reject_unknown`` refuses fields that are not known to who answers, ``reject_long_output`` an
    output limit that does not fit beside the prompt; ``work`` bounds the work of decoding a body.
    """

    reasoning_object: bool = False
    router: bool = False
    reject_unknown: bool = False
    reject_long_output: bool = False
    max_messages: int = 4096
    work: bounded_json.Bounds = bounded_json.DEFAULT


HINTS = frozenset(parameters.HINTS)
"""Taken and dropped: nothing in the answer depends on them."""

HONOURED = frozenset(parameters.PARAMETERS)
"""Read, checked, and kept."""
