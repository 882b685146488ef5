"""The Messages API as a shape: its paths, its errors and its signs of life."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, Struct, UnsetType

from causerie.errors import ErrorDetails, ServiceError
from causerie.protocol import sse
from causerie.shapes.messages.encoder import error_body
from causerie.shapes.messages.reader import parse, parse_at_once
from causerie.shapes.shape import Shape
