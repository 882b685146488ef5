"""Child process that decodes images before an engine does; it is killed if it takes too much.

A question is the file of an image. The answer begins with one of the letters below: the engine
can take the file as it is, or what follows in its place, or it is told why neither. Behind the
first two stands the number of pixels, in four bytes.
"""

from __future__ import annotations

import io
import sys
import warnings

from PIL import Image, ImageOps

from causerie.chat.worker_process import limit_memory, limited_work, serve

SAME, OTHER, REFUSED = b"=", b"+", b"!"
MOST_PIXELS = 50_000_000  # a photograph of the largest sensors of telephones
MOST_LOSSLESS = 4_000_000  # pixels that become a PNG; of more it may have hundreds of megabytes
FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
"""Formats that are taken; those before the last one are read by engines as they are."""

_SECONDS = 5.0  # of processor time, for one image
_ORIENTATION = 0x0112  # of EXIF: the number of the turn by which it is shown upright


def answer(data: bytes) -> bytes:
    with limited_work(_SECONDS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which nobody would read
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                return _accept_convert_or_refuse_image(image)
        except MemoryError:
            return REFUSED + b"takes more memory to decode than there is for it"
        except Exception as fault:  # noqa: BLE001 - whatever a decoder stumbles over
            return REFUSED + f"cannot be decoded ({type(fault).__name__})".encode()


def _accept_convert_or_refuse_image(image: Image.Image) -> bytes:
    width, height = image.size
    if width * height > MOST_PIXELS:
        words = f"has {width:,} times {height:,} pixels; at most {MOST_PIXELS:,} are allowed"
        return REFUSED + words.encode()
    pixels = (width * height).to_bytes(4)
    image.load()
    upright = image.getexif().get(_ORIENTATION, 1) in (0, 1)
    if upright and image.format != FORMATS[-1]:
        return SAME + pixels
    other = io.BytesIO()
    # A JPEG takes a tenth of the time.
    kind = "JPEG" if image.format == "JPEG" or width * height > MOST_LOSSLESS else "PNG"
    turned = ImageOps.exif_transpose(image).convert("RGB")
    turned.save(other, kind, quality=95, compress_level=1)
    return OTHER + pixels + other.getvalue()


def main(memory: str) -> None:
    Image.init()  # before the limit
    Image.MAX_IMAGE_PIXELS = None  # the bound is ours
    limit_memory(int(memory))
    serve(sys.stdin.buffer, sys.stdout.buffer, answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
