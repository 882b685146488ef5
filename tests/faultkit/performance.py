"""Performance of a step of the script over the wire."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from faultkit.connection import Connection
from faultkit.fault import BEFORE_HEAD, Broken, Fault
from faultkit.frames import Frames, framed, whole
from faultkit.received import Received
from faultkit.reply import Reply
from faultkit.response import (
    JSON,
    LAST_CHUNK,
    STREAM,
    chunk,
    drip,
    error,
    head,
    plain,
    stream_head,
)

PAGE = b"<!doctype html><html><body><h1>Bad Gateway</h1><p>proxy-7.internal</p></body></html>\n"
_BREAKS = frozenset(
    {
        Fault.RESET,
        Fault.RESET_MID_STREAM,
        Fault.CLOSE,
        Fault.HANG,
        Fault.STALL_BEFORE_FIRST,
        Fault.STALL_MID_STREAM,
        Fault.CUT_MID_CHUNK,
        Fault.CUT_MID_UTF8,
        Fault.HALF_CLOSED,
        Fault.GARBAGE_JSON,
        Fault.ERROR_IN_STREAM,
        Fault.ENDLESS,
    }
)
_PIECE_OF_CHARACTER = "é".encode()[:1]


async def perform(step: Reply | Broken, request: Received, line: Connection) -> None:
    """Answer a request as the step says. Raises :class:`ConnectionError` where the client left."""
    if isinstance(step, Reply):
        await _reply(step, None, request, line)
    elif step.fault in _BREAKS:
        await _broken(step, request, line)
    else:
        await _answered(step, request, line)


async def _reply(
    reply: Reply, odd: Fault | None, request: Received, line: Connection, size: int = 0
) -> None:
    """All of it, with something odd or not."""
    if not request.streamed or odd is Fault.NOT_STREAMED:
        if reply.pause:  # it takes as long as a stream of it
            await asyncio.sleep(reply.pause * len(reply.deltas()))
        content_type = "text/plain" if odd is Fault.WRONG_CONTENT_TYPE else JSON
        await line.write(plain(whole(reply, request, odd, size), content_type=content_type))
        return
    frames = framed(reply, request, odd, size)
    await _begin(frames, line, "text/plain" if odd is Fault.WRONG_CONTENT_TYPE else STREAM)
    await _content(frames.content, reply.pause, line)
    await _end(frames, line)


async def _begin(frames: Frames, line: Connection, content_type: str = STREAM) -> None:
    await line.write(stream_head(content_type) + chunk(b"".join(frames.opening)))


async def _content(frames: list[bytes], pause: float, line: Connection) -> None:
    for frame in frames:
        await line.write(chunk(frame))
        if pause:
            await asyncio.sleep(pause)


async def _end(frames: Frames, line: Connection) -> None:
    await line.write(chunk(b"".join(frames.closing)) + LAST_CHUNK)


async def _broken(step: Broken, request: Received, line: Connection) -> None:
    """The reply up to its place, then the break."""
    if step.place == BEFORE_HEAD:
        if step.fault in (Fault.GARBAGE_JSON, Fault.CUT_MID_UTF8, Fault.ENDLESS):
            raise ValueError(f"{step.fault.name} needs a head before it")
    elif request.streamed:
        frames = framed(step.reply, request, None, 0)
        await _begin(frames, line)
        await _content(frames.content[: step.place], step.reply.pause, line)
        await _break_stream(step, frames, request, line)
        return
    else:
        await _break_plain(step, request, line)
        return
    await _break_off(step.fault, request, line)


async def _break_stream(step: Broken, frames: Frames, request: Received, line: Connection) -> None:
    open_text = b'data: {"choices":[{"index":0,"delta":{"content":"'
    match step.fault:
        case Fault.CUT_MID_CHUNK:
            await line.write(b"%x\r\n" % 4096 + open_text)
            line.close()
        case Fault.CUT_MID_UTF8:
            await line.write(chunk(open_text + _PIECE_OF_CHARACTER) + LAST_CHUNK)
        case Fault.GARBAGE_JSON:
            await line.write(chunk(open_text + b'"}}\n\n'))
            await _content(frames.content[step.place :], step.reply.pause, line)
            await _end(frames, line)
        case Fault.ERROR_IN_STREAM:
            message = b'data: {"error":{"message":"out of memory","code":500}}\n\n'
            await line.write(chunk(message + b"data: [DONE]\n\n") + LAST_CHUNK)
        case Fault.ENDLESS:
            request.reached.set()
            while True:
                await _content(frames.content, step.reply.pause, line)
                await asyncio.sleep(0.001)
        case _:
            await _break_off(step.fault, request, line)


async def _break_plain(step: Broken, request: Received, line: Connection) -> None:
    """A body with a length that is not kept, or one that is kept and worth nothing."""
    body = whole(step.reply, request, None, 0)
    match step.fault:
        case Fault.GARBAGE_JSON:
            await line.write(plain(body[: len(body) // 2]))
        case Fault.CUT_MID_UTF8:
            cut = body.index("é".encode()) + 1 if "é".encode() in body else 1
            await line.write(plain(body[:cut]))
        case Fault.ERROR_IN_STREAM:
            await line.write(plain(b'{"error":{"message":"out of memory","code":500}}'))
        case Fault.ENDLESS:
            await line.write(stream_head(JSON))
            request.reached.set()
            while True:
                await line.write(chunk(b" " * 1024))
                await asyncio.sleep(0.001)
        case _:
            sent = len(body) // 2 if step.place else 0
            await line.write(plain(body)[: -len(body)] + body[:sent])
            await _break_off(step.fault, request, line)


async def _break_off(fault: Fault, request: Received, line: Connection) -> None:
    match fault:
        case Fault.RESET | Fault.RESET_MID_STREAM:
            line.reset()
        case Fault.CLOSE | Fault.CUT_MID_CHUNK:
            line.close()
        case Fault.HALF_CLOSED:
            line.finish_sending()
            request.reached.set()
            await line.left()
        case Fault.HANG | Fault.STALL_BEFORE_FIRST | Fault.STALL_MID_STREAM:
            request.reached.set()
            await line.left()
        case _:
            raise ValueError(f"{fault.name} is not possible there")


async def _answered(step: Broken, request: Received, line: Connection) -> None:
    """An answer of another kind, or a complete reply with something odd."""
    match step.fault:
        case Fault.NOT_HTTP:
            await line.write(b"-ERR unknown command 'POST'\r\n")
        case Fault.HTML_ERROR_PAGE:
            status = step.status or 502
            await line.write(plain(PAGE, status=status, content_type="text/html; charset=utf-8"))
        case Fault.ERROR_IN_200:
            await line.write(plain(b'{"error":{"message":"model crashed","code":500}}'))
        case Fault.TOO_MANY | Fault.TOO_MANY_SECONDS | Fault.TOO_MANY_DATE:
            await line.write(error(step.status or 429, "slow down", _retry_after(step)))
        case Fault.SERVER_ERROR:
            await line.write(error(step.status or 500, "CUDA error at /srv/engine.cu"))
        case Fault.REDIRECT:
            fields = {"location": f"/elsewhere{request.path}", "content-length": "0"}
            await line.write(head(step.status or 307, fields))
        case Fault.SLOW_HEADERS:
            body = whole(step.reply, request, None, 0)
            slow = stream_head() if request.streamed else plain(body)[: -len(body)]
            await drip(line, slow, step.pause)
            await _rest(step.reply, request, line)
        case _:
            await _reply(step.reply, step.fault, request, line, step.size)
            if step.fault is Fault.CLOSES_IDLE:
                line.close()


async def _rest(reply: Reply, request: Received, line: Connection) -> None:
    """The body, after a head that was sent already."""
    if not request.streamed:
        await line.write(whole(reply, request, None, 0))
        return
    frames = framed(reply, request, None, 0)
    await _content([*frames.opening, *frames.content], reply.pause, line)
    await _end(frames, line)


def _retry_after(step: Broken) -> dict[str, str]:
    if step.fault is Fault.TOO_MANY:
        return {}
    if step.fault is Fault.TOO_MANY_SECONDS:
        return {"retry-after": str(step.retry_after)}
    when = datetime.now(UTC) + timedelta(seconds=step.retry_after)
    return {"retry-after": format_datetime(when, usegmt=True)}
