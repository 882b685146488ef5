"""A server that is spoken to like vLLM and runs no model: it repeats the prompt, token by token.

python -m vllm_pool.scripted FOLDER PORT
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from vllm_stand_in import Server, listening

CONTEXT = 2048


async def main(folder: Path, port: int) -> None:
    """Listen until killed."""
    server = Server(folder, None)
    server.context = CONTEXT
    async with listening(server, port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
