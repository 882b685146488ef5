"""Images of requests, checked before an engine reads them.

Their number and size are bounded, and their formats known by their bytes. A process that may be
killed decodes each once. In the messages that are rendered, a mark stands for an image: a secret of
this process and the image's digest, so that nobody can write one, and a conversation that comes
back has the same marks.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass, field

from msgspec import structs

from causerie.chat.schema.bounded_cache import BoundedCache
from causerie.chat.worker import Died, WorkerProcess
from causerie.engines.base import Image
from causerie.errors import InvalidRequest, Overloaded
from causerie.http.event_loop import offload
from causerie.protocol.request import ChatRequest, ImagePart, images, with_images

MOST_IMAGES = 64  # in one request
MOST_BYTES = 20 * 2**20  # of one image
_PATIENCE = 30.0  # seconds for a turn and for the answer, where others have the processor
_AT_ONCE = 2**20  # characters of base64, a multiple of four
_CONVERTED = 64 * 2**20  # bytes of images that were converted
_MOST_GROWTH = 16 * 2**20  # characters by which those of a request may be longer then
MOST_PIXELS = 100_000_000  # of one request: the engine holds all at once, in three bytes each
_FORMATS = {b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG", b"GIF8": "GIF", b"RIFF": "WebP"}
_SECRET = secrets.token_hex(16)
_MARK = re.compile(rf"(<image {_SECRET} [0-9a-f]{{64}}>)")


def mark_of(digest: bytes) -> str:
    """Return the placeholder for the image of this digest in a prompt that is rendered."""
    return f"<image {_SECRET} {digest.hex()}>"


def format_of_image(data: bytes) -> str | None:
    """Return the name of the image format by its first bytes, or ``None`` if not accepted."""
    name = next((name for head, name in _FORMATS.items() if data.startswith(head)), None)
    return None if name == "WebP" and data[8:12] != b"WEBP" else name


def split_at_marks(text: str) -> list[str]:
    """Return the texts between image placeholders at even indexes, and these at odd indexes."""
    return _MARK.split(text)


@dataclass(eq=False)
class ImageReader:
    """Checks images, one at a time, in a process of at most ``memory`` bytes."""

    memory: int = 1 << 30
    _worker_lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        # Pixels, and what takes the place of an image, or nothing if it stays as it is, by digest.
        self._worker_answers_by_digest = BoundedCache[bytes, tuple[int, bytes]](_CONVERTED)
        self._worker_process = WorkerProcess("causerie.chat.image_worker", str(self.memory))

    async def stop(self) -> None:
        """End the process; a check that still runs fails. May be called again."""
        await self._worker_process.kill()

    async def read(self, request: ChatRequest) -> tuple[ChatRequest, dict[str, Image]]:
        """Return the request with placeholders for its images, and the images by placeholder.

        Raises ``InvalidRequest`` for an image that cannot be read, or is too large, and
        ``Overloaded`` where that is not known in time.
        """
        parts = list(images(request.messages))
        if len(parts) > MOST_IMAGES:
            raise InvalidRequest(
                f"The messages hold {len(parts)} images; at most {MOST_IMAGES} are allowed. "
                "Leave out the oldest.",
                param="messages",
            )
        if not parts:
            return request, {}
        found: list[Image] = []
        room, pixels = _MOST_GROWTH, MOST_PIXELS
        for place, part in parts:
            image, size = await self._check_data_url(part.url, param := f"{place}.image_url.url")
            found.append(image)
            room -= len(image.base64) - len(part.url)
            pixels -= size
            if min(room, pixels) < 0:
                words = f"is too large with those before it; {MOST_PIXELS:,} pixels are allowed"
                raise _build_refusal(param, f"{words}, and fewer where they are not JPEG or PNG")
        marks = iter([mark_of(image.digest) for image in found])

        def marked(part: ImagePart) -> ImagePart:
            return structs.replace(part, url=next(marks))

        request = structs.replace(request, messages=with_images(request.messages, marked))
        return request, {mark_of(image.digest): image for image in found}

    async def _check_data_url(self, data_url: str, param: str) -> tuple[Image, int]:
        size = len(data_url) * 3 // 4
        if size > MOST_BYTES:
            words = f"has about {size:,} bytes; at most {MOST_BYTES:,} are allowed"
            raise _build_refusal(param, words)
        try:
            text, data, digest = await offload(_decode_and_hash_data_url, data_url)
        except ValueError:
            raise _build_refusal(param, "is not valid base64") from None
        if format_of_image(data) is None:
            raise _build_refusal(
                param, f"is none of {', '.join(_FORMATS.values())}, by its first bytes"
            )
        known = self._worker_answers_by_digest.get(digest)
        if known is None:
            known = await self._check_in_worker(data, param)
            self._worker_answers_by_digest.keep(digest, known, len(known[1]) + len(digest))
        pixels, other = known
        return Image(await offload(_encode_base64, other) if other else text, digest), pixels

    async def _check_in_worker(self, image_bytes: bytes, param: str) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(_PATIENCE), self._worker_lock:
                answer = await self._ask_worker_and_retry_if_dead(image_bytes)
        except TimeoutError:
            raise Overloaded("Too many images are being read; try again.") from None
        except Died as died:
            why = "time" if died.worked else "time or memory"
            raise _build_refusal(
                param, f"takes more {why} to decode than there is for it"
            ) from None
        if answer[:1] == b"!":
            raise _build_refusal(param, answer[1:].decode())
        return int.from_bytes(answer[1:5]), answer[5:]

    async def _ask_worker_and_retry_if_dead(self, image_bytes: bytes) -> bytes:
        while True:
            fresh = await self._worker_process.start()
            try:
                return await self._worker_process.ask(image_bytes)
            except Died as died:
                if fresh or died.worked:
                    raise  # an older one may have died before


def _build_refusal(param: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"The image at `{param}` {reason}.", param=param)


# Python decodes without letting other threads run, so a large image is decoded bit by bit.


def _decode_and_hash_data_url(data_url: str) -> tuple[str, bytes, bytes]:
    text = data_url[data_url.index(",") + 1 :].rstrip("=").replace("-", "+").replace("_", "/")
    text += "=" * (-len(text) % 4)
    parts = (text[at : at + _AT_ONCE] for at in range(0, len(text), _AT_ONCE))
    data = b"".join(b64decode(part, validate=True) for part in parts)
    return text, data, hashlib.sha256(data).digest()


def _encode_base64(image_bytes: bytes) -> str:
    step = _AT_ONCE // 4 * 3
    parts = (image_bytes[at : at + step] for at in range(0, len(image_bytes), step))
    return "".join(b64encode(part).decode() for part in parts)
