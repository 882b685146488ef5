"""OpenVINO GenAI's continuous batching alone, behind the thinnest server that streams.

``python bare_openvino.py WEIGHTS PORT CONTEXT SLOTS``: a GGUF file or a folder of OpenVINO's. A
request is the text of a prompt and the tokens to write; the answer has a line for each of them.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

import openvino_genai

_BLOCK = 32  # tokens of a block of the cache


class Pipeline:
    """The pipeline, which one thread drives; ``generate`` is called by any other."""

    def __init__(self, weights: str, context: int, slots: int) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 0  # by blocks
        scheduler.num_kv_blocks = -(-context * slots // _BLOCK) + slots
        scheduler.max_num_seqs = slots
        scheduler.enable_prefix_caching = True
        scheduler.dynamic_split_fuse = True
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(weights, scheduler, "CPU", {})
        self._asked: SimpleQueue[tuple[str, int, SimpleQueue[int | None]]] = SimpleQueue()
        threading.Thread(target=self._drive, daemon=True).start()

    def generate(self, prompt: str, tokens: int) -> SimpleQueue[int | None]:
        """Return the queue to which the tokens come, and ``None`` behind the last."""
        told: SimpleQueue[int | None] = SimpleQueue()
        self._asked.put((prompt, tokens, told))
        return told

    def _drive(self) -> None:
        running: dict[int, tuple[Any, SimpleQueue[int | None]]] = {}
        count = 0
        while True:
            while not self._asked.empty() or not running:
                prompt, tokens, told = self._asked.get()
                count += 1
                config = openvino_genai.GenerationConfig(
                    max_new_tokens=tokens, ignore_eos=True, apply_chat_template=False
                )
                running[count] = self._pipeline.add_request(count, prompt, config), told
            self._pipeline.step()
            for id, (handle, told) in list(running.items()):
                ended = False
                while handle.can_read():
                    for output in handle.read().values():
                        for token in output.generated_ids:
                            told.put(token)
                        reason = output.finish_reason
                        ended = ended or reason != openvino_genai.GenerationFinishReason.NONE
                if ended:
                    told.put(None)
                    del running[id]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pipeline: Pipeline

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        told = self.pipeline.generate(asked["prompt"], asked["n_predict"])
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        while (token := told.get()) is not None:
            line = f"{token}\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


def main() -> None:
    """Serve until somebody ends this."""
    weights, port, context, slots = sys.argv[1:5]
    _Handler.pipeline = Pipeline(weights, int(context), int(slots))
    ThreadingHTTPServer(("127.0.0.1", int(port)), _Handler).serve_forever()


if __name__ == "__main__":
    main()
