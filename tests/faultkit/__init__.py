"""An upstream that goes wrong as told: the faults, their scripts, and what is seen of the client.

async with upstream([Fault.STALL_MID_STREAM, Reply("Good day.")]) as up:
    ...  # up.base_url; up.requests; await up.received(2)
"""

from faultkit.fault import BEFORE_FIRST, BEFORE_HEAD, Broken, Fault
from faultkit.received import Received
from faultkit.reply import Call, Reply
from faultkit.upstream import Upstream, upstream

__all__ = [
    "BEFORE_FIRST",
    "BEFORE_HEAD",
    "Broken",
    "Call",
    "Fault",
    "Received",
    "Reply",
    "Upstream",
    "upstream",
]
