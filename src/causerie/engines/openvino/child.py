"""The child process: runs OpenVINO GenAI's continuous batching for its parent until told to go.

Reads lines of JSON from standard input and answers with lines of JSON on standard output. The
first line is the :class:`~causerie.engines.openvino.engine.OpenVinoLaunch`, answered by
``{"ready": true, ...}`` once the model is loaded. Each further line is an order with an ``id``:

- ``generate``: token ids; answered by lines with ``ids``, of which the last has an ``end``, or by
  ``refused`` with the reason.
- ``cancel``: ends the generation of that id; there is no answer.
- ``encode``: texts; answered by the token ids of each.
- ``ping``: answered between two steps.

When standard input ends, the parent is gone or has enough, and so are we. All calls of the
pipeline are made by one thread; it holds the interpreter's lock while it computes a step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from time import monotonic
from typing import Any, TextIO

import numpy
import openvino
import openvino_genai

from causerie.engines.child import die_with_parent, ignore_signals, stay_on
from causerie.engines.openvino.prefill import BATCH, Prefill

_MOST_TOKENS = 2**31 - 1
_GREEDY = 1e-5  # and below, a temperature draws the most likely token only, or overflows
_MOST_MIN_P = 1 - 1e-6  # it refuses 1
_ENDS = {
    openvino_genai.GenerationFinishReason.STOP: "stop",
    openvino_genai.GenerationFinishReason.LENGTH: "length",
}

Order = dict[str, Any]


def main() -> None:
    die_with_parent(signal.SIGKILL)
    ignore_signals()
    # What native code prints to standard output goes to the log instead.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    launch = json.loads(sys.stdin.readline())
    stay_on(launch["cpus"])
    orders: SimpleQueue[Order] = SimpleQueue()
    threading.Thread(target=_queue_stdin_orders_until_exit, args=(orders,), daemon=True).start()
    try:
        pipeline = _build_pipeline(launch)
    except RuntimeError as error:
        sys.exit(f"RuntimeError: {error}")
    _write_answer(out, {"ready": True, "version": openvino_genai.get_version()})
    Batch(pipeline, launch, out).serve(orders)


@dataclass(slots=True)
class _Running:
    handle: Any
    prompt: Sequence[int]
    tokens: list[int] = field(default_factory=list)


class Batch:
    """Runs the generations of the pipeline and reads waiting prompts, step by step."""

    def __init__(self, pipeline: Any, launch: dict[str, Any], out: TextIO) -> None:
        self._pipeline = pipeline
        self._end_ids = set(launch["end"])
        self._output = out
        self._tokenizer = pipeline.get_tokenizer()
        self._prefill = Prefill(launch["blocks"], divided=launch["divided"])
        self._new_orders_by_id: dict[int, Order] = {}  # of the prompts that wait
        self._parts: dict[int, Any] = {}  # handles of those that are read
        self._runs_by_id: dict[int, _Running] = {}

    def serve(self, orders: SimpleQueue[Order]) -> None:
        """Obey orders between steps; wait for one where nothing is to be computed."""
        while True:
            while not (self._runs_by_id or self._prefill or self._parts) or not orders.empty():
                self._execute_order(orders.get())
            if not self._parts:
                self._submit_planned_parts()
            if not (self._runs_by_id or self._parts):
                continue  # what was to be read was refused
            began = monotonic()
            self._pipeline.step()
            self._prefill.stepped(monotonic() - began)
            self._remove_read_parts()
            for id, running in list(self._runs_by_id.items()):
                self._report_tokens(id, running)

    def _execute_order(self, order: Order) -> None:
        id = order["id"]
        if "generate" in order:
            self._new_orders_by_id[id] = order
            self._prefill.add(id, order["generate"])
        elif "cancel" in order:
            self._cancel_generation(id)
        elif "encode" in order:
            encode = self._tokenizer.encode
            read = (
                encode(text, add_special_tokens=False, max_length=_MOST_TOKENS).input_ids.data
                for text in order["encode"]
            )
            encoded = [[int(one) for one in ids.reshape(-1)] for ids in read]
            _write_answer(self._output, {"id": id, "encoded": encoded})
        else:
            _write_answer(self._output, {"id": id})

    def _cancel_generation(self, id: int) -> None:
        self._prefill.drop(id)
        self._new_orders_by_id.pop(id, None)
        if (part := self._parts.pop(id, None)) is not None:
            part.cancel()
        if (running := self._runs_by_id.pop(id, None)) is not None:
            running.handle.cancel()
            self._note_tokens_left_in_cache(running)

    def _submit_planned_parts(self) -> None:
        streaming = any(running.tokens for running in self._runs_by_id.values())
        for part in self._prefill.plan(streaming=streaming):
            try:
                id, tokens = part.prompt.id, part.prompt.tokens
                if part.is_last:
                    config = _build_generation_config(self._new_orders_by_id.pop(id), self._end_ids)
                    self._runs_by_id[id] = _Running(self._open_handle(id, tokens, config), tokens)
                else:  # a prompt alone
                    self._parts[id] = self._open_handle(id, tokens[: part.end], _base_config(1))
            except RuntimeError as error:  # of one request: all others go on
                self._cancel_generation(part.prompt.id)
                _write_answer(self._output, {"id": part.prompt.id, "refused": str(error)})

    def _open_handle(self, id: int, tokens: Sequence[int], config: Any) -> Any:
        tensor = openvino.Tensor(numpy.array([tokens], dtype=numpy.int64))
        return self._pipeline.add_request(id, tensor, config)

    def _remove_read_parts(self) -> None:
        for id, handle in list(self._parts.items()):
            status = handle.get_status()
            if status != openvino_genai.GenerationStatus.RUNNING:
                del self._parts[id]
            if status == openvino_genai.GenerationStatus.IGNORED:
                self._cancel_generation(id)
                _write_answer(self._output, {"id": id, "end": "ignored"})

    def _report_tokens(self, id: int, running: _Running) -> None:
        ids: list[int] = []
        logprobs: list[float] = []
        end = None
        while running.handle.can_read():
            for output in running.handle.read().values():
                ids += output.generated_ids
                logprobs += output.generated_log_probs
                end = _ENDS.get(output.finish_reason, end)
        dropped = running.handle.get_status() == openvino_genai.GenerationStatus.IGNORED
        if end is None and dropped:
            end = "ignored"  # it finds no room for it in its cache
        running.tokens += ids
        if ids or end:
            _write_answer(self._output, {"id": id, "ids": ids, "logprobs": logprobs, "end": end})
        if end:
            del self._runs_by_id[id]
            self._note_tokens_left_in_cache(running)

    def _note_tokens_left_in_cache(self, running: _Running) -> None:
        # The cache holds all tokens of a generation but the last one.
        self._prefill.note([*running.prompt, *running.tokens[:-1]])


def _build_pipeline(launch: dict[str, Any]) -> Any:
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 0  # by blocks
    scheduler.num_kv_blocks = launch["blocks"]
    scheduler.max_num_seqs = launch["parallel"]
    scheduler.enable_prefix_caching = True
    scheduler.dynamic_split_fuse = True  # tokens of prompts and of streams in one step
    scheduler.max_num_batched_tokens = BATCH + launch["parallel"]
    properties = {} if launch["threads"] is None else {"INFERENCE_NUM_THREADS": launch["threads"]}
    return openvino_genai.ContinuousBatchingPipeline(
        launch["weights"], scheduler, "CPU", properties
    )


def _base_config(max_tokens: int) -> Any:
    config = openvino_genai.GenerationConfig()
    config.apply_chat_template = False
    config.max_new_tokens = max_tokens
    return config


def _build_generation_config(order: Order, end_ids: set[int]) -> Any:
    config = _base_config(order["max_tokens"])
    config.logprobs = 1  # more than that of the drawn token it does not tell
    # As long as fewer are made it forbids all that would end_ids the text.
    config.min_new_tokens = order["max_tokens"] if order["ignore_eos"] else 0
    config.stop_token_ids = end_ids
    config.do_sample = order["fields"].get("temperature", 1.0) > _GREEDY
    for name, value in order["fields"].items():
        if config.do_sample or name != "temperature":
            setattr(config, name, min(value, _MOST_MIN_P) if name == "min_p" else value)
    if order["ebnf"] is not None:
        config.structured_output_config = openvino_genai.StructuredOutputConfig(
            grammar=order["ebnf"]
        )
    return config


def _queue_stdin_orders_until_exit(orders: SimpleQueue[Order]) -> None:
    while line := sys.stdin.readline():
        orders.put(json.loads(line))
    os._exit(0)  # native threads hold no state worth a farewell


def _write_answer(out: TextIO, answer: dict[str, object]) -> None:
    out.write(json.dumps(answer) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
