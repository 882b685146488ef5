"""Images of requests: what is refused before an engine sees it, and what it gets otherwise."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import zlib
from base64 import b64decode
from collections.abc import AsyncIterator
from io import BytesIO

import numpy as np
import pytest
import pytest_asyncio
from imagekit import data_url, encoded, picture, url_of
from PIL import Image

from causerie.chat import images
from causerie.chat.images import MOST_BYTES, MOST_IMAGES, ImageReader, split_at_marks
from causerie.errors import InvalidRequest
from causerie.protocol.request import ChatRequest, ImagePart, Message, TextPart

pytestmark = pytest.mark.asyncio(loop_scope="module")

_ORIENTATION = 0x0112
PNG = encoded(picture())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader() -> AsyncIterator[ImageReader]:
    made = ImageReader()
    yield made
    await made.stop()


def asked(*urls: str) -> ChatRequest:
    parts = (TextPart("What?"), *map(ImagePart, urls))
    return ChatRequest("m", (Message("user", parts),))


async def refusal(reader: ImageReader, *urls: str) -> str:
    with pytest.raises(InvalidRequest) as refused:
        await reader.read(asked(*urls))
    return refused.value.message


async def test_marks_stand_for_images_and_are_the_same_each_time(reader: ImageReader) -> None:
    one, other = url_of(), url_of(seed=1)
    marked, found = await reader.read(asked(one, other, one))
    content = marked.messages[0].content
    assert isinstance(content, tuple)
    marks = [part.url for part in content if isinstance(part, ImagePart)]
    assert marks[0] == marks[2] != marks[1]
    assert split_at_marks(f"a{marks[0]}b{marks[1]}") == ["a", marks[0], "b", marks[1], ""]
    assert f"data:image/png;base64,{found[marks[0]].base64}" == one
    again, _ = await reader.read(asked(one, other, one))
    assert again == marked
    assert split_at_marks(re.sub("[0-9a-f]{32}", "0" * 32, marks[0], count=1))[1:] == []


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF"])
async def test_what_engines_read_stays_as_it_is(reader: ImageReader, format: str) -> None:
    data = encoded(picture(), format)
    _, found = await reader.read(asked(data_url(data, "png")))  # its bytes say what it is
    [image] = found.values()
    assert b64decode(image.base64) == data


async def test_webp_becomes_png_and_a_turned_photograph_is_upright(reader: ImageReader) -> None:
    webp = encoded(picture(40, 20), "WEBP", lossless=True)
    exif = Image.Exif()
    exif[_ORIENTATION] = 6
    turned = encoded(picture(40, 20), "JPEG", exif=exif)
    _, found = await reader.read(asked(data_url(webp), data_url(turned)))
    shown = [Image.open(BytesIO(b64decode(image.base64))) for image in found.values()]
    assert [one.format for one in shown] == ["PNG", "JPEG"]
    assert [one.size for one in shown] == [(40, 20), (20, 40)]
    assert shown[0].tobytes() == picture(40, 20).tobytes()


async def test_what_cannot_be_an_image_is_refused(reader: ImageReader) -> None:
    place = "`messages[0].content[1].image_url.url`"
    assert "is none of PNG, JPEG, GIF, WebP" in await refusal(reader, data_url(b"<svg/>"))
    assert "is none of" in await refusal(reader, data_url(b"RIFF0000AVI LIST"))  # a video
    assert place in await refusal(reader, data_url(PNG[: len(PNG) // 2]))
    assert "cannot be decoded" in await refusal(reader, data_url(PNG[: len(PNG) // 2]))
    assert "not valid base64" in await refusal(reader, "data:image/png;base64,AAAAA")


async def test_bounds_hold_before_anything_is_decoded(reader: ImageReader) -> None:
    large = data_url(PNG + bytes(MOST_BYTES))
    assert f"at most {MOST_BYTES:,} are allowed" in await refusal(reader, large)
    many = [url_of(8, 8)] * (MOST_IMAGES + 1)
    assert "65 images; at most 64" in await refusal(reader, *many)
    bomb = _png_of_one_colour(60_000, 60_000)
    assert len(bomb) < 20_000
    assert "60,000 times 60,000 pixels; at most 50,000,000" in await refusal(reader, data_url(bomb))


async def test_what_little_data_becomes_is_bounded(reader: ImageReader) -> None:
    # Two rows of noise, in turn: WebP says so in few bytes, and PNG says every pixel.
    rows = np.asarray(picture(15_000, 2))
    bomb = encoded(Image.fromarray(np.tile(rows, (400, 1, 1))), "WEBP", lossless=True, method=0)
    assert len(bomb) < 300_000
    _, found = await reader.read(asked(data_url(bomb)))
    [image] = found.values()
    assert len(image.base64) < MOST_BYTES
    assert "too large with those before it" in await refusal(reader, *[data_url(bomb)] * 3)
    blank = [encoded(Image.new("1", (7000, 7000), colour)) for colour in (0, 1)]
    urls = [data_url(each) for each in blank]
    assert len((await reader.read(asked(*urls)))[1]) == 2
    assert "100,000,000 pixels are allowed" in await refusal(reader, *urls, urls[0])


async def test_a_process_that_dies_costs_one_image_and_comes_back(reader: ImageReader) -> None:
    await reader.read(asked(url_of(seed=2)))
    pid = reader._worker_process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    _, found = await reader.read(asked(url_of(seed=3)))
    assert len(found) == 1
    assert reader._worker_process.pid not in (None, pid)


async def test_an_image_that_takes_too_long_ends_its_process(
    reader: ImageReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "_PATIENCE", 0.5)
    await reader.read(asked(url_of(seed=4)))
    pid = reader._worker_process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Exception, match="Too many images"):
        await reader.read(asked(url_of(seed=5)))
    assert reader._worker_process.pid is None


@pytest.mark.timing
async def test_the_loop_goes_on_while_a_large_image_is_read(reader: ImageReader) -> None:
    noise = picture(2200, 2200)
    url = data_url(encoded(noise, compress_level=0))  # 14.5 MB
    longest = 0.0
    loop = asyncio.get_running_loop()

    async def watch() -> None:
        nonlocal longest
        while True:
            before = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - before)

    watching = asyncio.ensure_future(watch())
    try:
        await reader.read(asked(url))
    finally:
        watching.cancel()
    assert longest < 0.05


def _png_of_one_colour(width: int, height: int) -> bytes:
    row = zlib.compressobj(9)
    data = row.compress(bytes(4096)) + row.flush()

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = zlib.crc32(kind + body).to_bytes(4, "big")
        return len(body).to_bytes(4, "big") + kind + body + check

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 0, 0, 0, 0))
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts
