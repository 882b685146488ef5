"""Plans which tokens of which waiting prompts the OpenVINO pipeline reads in its next step.

The pipeline would fill every step with all that its batch holds, oldest prompt first. So prompts
are given to it in *parts*, as many tokens as the next step is to read; they end where a block of
the prefix cache ends, in which the next part finds them. The last part is the request itself.

What the cache holds is not told, so it is counted here. Where that is mistaken, a
step is longer or shorter than planned, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from causerie.engines.prefill import STREAMING_SECONDS, TOKEN_BYTES, PrefillSpeed, packed

BLOCK = 32  # tokens of a block of the cache on a CPU
BATCH = 256  # tokens of the largest step

_ALONE_SECONDS = 1.0  # a client that leaves, and a prompt that comes, wait for the step
_LONG_SECONDS = 3.0  # small parts cost half more: too much for prompts that are read sooner
_EXPECTED_SECONDS = STREAMING_SECONDS / BATCH  # for a token: the first step is as large as any


# The cache holds `read` of its tokens.
@dataclass(slots=True, eq=False)
class _WaitingPrompt:
    id: int
    tokens: Sequence[int]
    blocks: Sequence[int]  # keys of its whole blocks
    read: int = 0
    is_long: bool = False

    @property
    def rest(self) -> int:
        return len(self.tokens) - self.read


@dataclass(frozen=True, slots=True)
class Part:
    """The tokens of a prompt that one step reads."""

    prompt: _WaitingPrompt
    begin: int
    end: int

    @property
    def is_last(self) -> bool:
        return self.end == len(self.prompt.tokens)


class Prefill:
    """The prompts that wait, and which of their tokens the next step reads.

    ``blocks`` is the size of the cache. Prompts that are not ``divided`` are read at once.
    """

    def __init__(self, blocks: int, *, divided: bool = True) -> None:
        self._speed_meter = PrefillSpeed(_EXPECTED_SECONDS)
        self._most_blocks = blocks
        self.known: dict[int, None] = {}  # keys of blocks in the cache, in the order of their use
        self._may_divide = divided
        self._waiting_prompts_by_id: dict[int, _WaitingPrompt] = {}
        self._parts_of_current_step: Sequence[Part] = ()
        self._is_oldest_first = False
        self._has_done_first_step = False  # the first step prepares kernels, and tells no speed

    def __bool__(self) -> bool:
        return bool(self._waiting_prompts_by_id)

    def add(self, id: int, tokens: Sequence[int]) -> None:
        self._waiting_prompts_by_id[id] = _WaitingPrompt(id, tokens, block_keys(tokens))

    def drop(self, id: int) -> None:
        _ = self._waiting_prompts_by_id.pop(id, None)

    def plan(self, *, streaming: bool) -> Sequence[Part]:
        """Return the parts of prompts that the next step reads; a wholly planned prompt is dropped.

        The oldest prompt and the shortest rest come first in turns: so none waits for all that
        are longer, nor for all that are shorter. Beside a stream a part of a long prompt is small,
        and the last one of its step.
        """
        self._is_oldest_first = not self._is_oldest_first
        waiting, planned = list(self._waiting_prompts_by_id.values()), []
        left, fitting = sum(prompt.rest for prompt in waiting), self._speed_meter.fitting
        if self._may_divide:
            left = min(_round_down_to_blocks_min_one(fitting(_ALONE_SECONDS)), BATCH)
        if not self._is_oldest_first:
            waiting.sort(key=lambda prompt: prompt.rest)
        for prompt in waiting:
            # At least one token has to be computed, so the last one is never skipped.
            while prompt.rest > BLOCK and prompt.blocks[prompt.read // BLOCK] in self.known:
                prompt.read += BLOCK
            prompt.is_long = prompt.is_long or prompt.rest > fitting(_LONG_SECONDS)
            small = self._may_divide and streaming and prompt.is_long
            most = left
            if small:
                most = min(left, _round_down_to_blocks_min_one(fitting(STREAMING_SECONDS)))
            end = prompt.read + most
            end = len(prompt.tokens) if prompt.rest <= most else end - end % BLOCK
            if end > prompt.read:
                planned.append(Part(prompt, prompt.read, end))
                left = 0 if small else left - (end - prompt.read)
                prompt.read = end
        for part in planned:
            if part.is_last:
                self.drop(part.prompt.id)
        self._parts_of_current_step = planned
        return planned

    def stepped(self, seconds: float) -> None:
        """Record that the planned step is done, and how long it took."""
        if self._has_done_first_step:
            tokens = sum(part.end - part.begin for part in self._parts_of_current_step)
            self._speed_meter.observe(tokens, seconds)
        self._has_done_first_step = True
        for part in self._parts_of_current_step:
            self._remember_blocks(part.prompt.blocks[: part.end // BLOCK])
        self._parts_of_current_step = ()

    def note(self, tokens: Sequence[int]) -> None:
        """Record that the cache holds these tokens, from the first on."""
        self._remember_blocks(block_keys(tokens))

    def _remember_blocks(self, keys: Iterable[int]) -> None:
        for key in keys:
            self.known.pop(key, None)
            self.known[key] = None
        while len(self.known) > self._most_blocks:
            del self.known[next(iter(self.known))]


def _round_down_to_blocks_min_one(tokens: int) -> int:
    return max(tokens // BLOCK, 1) * BLOCK


def block_keys(tokens: Sequence[int]) -> Sequence[int]:
    """Return a key for each whole block, which stands for all tokens up to the block's end."""
    raw, key, keys = packed(tokens), 0, []
    for begin in range(0, len(tokens) // BLOCK * BLOCK, BLOCK):
        key = hash((key, raw[begin * TOKEN_BYTES : (begin + BLOCK) * TOKEN_BYTES]))
        keys.append(key)
    return keys
