"""An index of the members of a pool that hold the beginning of a prompt, as far as is known.

A prompt is a chain of blocks: the hash of a block covers all tokens up to its end. A table leads
from a block to the set of members that hold it, a bit for each. Blocks that were not used for
long are forgotten: each shard has two generations, and what is used moves to the younger one.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from struct import Struct

BLOCK = 16  # tokens; what vLLM caches by, or a divisor of it
_each_block = Struct(f"{BLOCK * 4}s").iter_unpack
_HASH_BITS = 60  # two digits of Python's integers, which take less memory than three
_MASK = (1 << _HASH_BITS) - 1
_SHARDS = 64
_SHARD = _HASH_BITS - 6
_MOST_SETS = 65_536  # of members that are shared
_MOST_BITS = 256  # beyond the members that there are


def chain(tokens: Sequence[int], scope: str = "") -> list[int]:
    """Return the blocks of the tokens of a prompt in a scope.

    The last tokens that fill no block are left out. The hashes hold in this process only.
    """
    return extended(root(scope), tokens)


def root(scope: str) -> int:
    """Return the parent hash of the first block of a prompt in a scope."""
    return hash(scope) & _MASK if scope else 0


def extended(previous: int, tokens: Sequence[int]) -> list[int]:
    """Return the blocks of tokens that follow the block ``previous``, or a root."""
    blocks: list[int] = []
    whole = tokens[: len(tokens) // BLOCK * BLOCK]
    for (content,) in _each_block(array("I", whole).tobytes()):
        previous = hash((previous, content)) & _MASK
        blocks.append(previous)
    return blocks


class PrefixIndex:
    """Of members by name, for at most about so many ``blocks``."""

    def __init__(self, blocks: int) -> None:
        self.resize(blocks)
        self._bits: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._sets: dict[int, int] = {}  # each by itself, so that blocks share it: memory and time
        self._next = 0
        self._clear()

    def __len__(self) -> int:
        """Return the number of entries; a block may have one in each generation."""
        return sum(map(len, self._young)) + sum(map(len, self._old))

    def resize(self, blocks: int) -> None:
        """Have another bound from now on."""
        self._half = max(blocks // _SHARDS // 2, 1)

    def forget(self, name: str) -> None:
        """Take a member as one that holds nothing: new, gone, or started again."""
        bit = self._bits.pop(name, None)
        if bit is not None:
            del self._names[bit]  # its bit stays in the table, and means nobody

    def runs(self, blocks: Iterable[int]) -> Mapping[str, int]:
        """Return how many of the first blocks each member holds without a gap; none is left out
        but those that do not hold the first."""
        young, old = self._young, self._old
        holding = sum(self._names)
        found: dict[str, int] = {}
        length = 0
        for block in blocks:
            shard = block >> _SHARD
            held = young[shard].get(block)
            if held is None:
                held = old[shard].get(block, 0)
            if held is not holding:  # mostly it is: equal sets are one object
                here = holding & held
                if here != holding:
                    if length:
                        self._note(found, holding & ~here, length)
                    if not here:
                        return found
                    holding = held if here == held else here
            length += 1
        if length:
            self._note(found, holding, length)
        return found

    def _note(self, found: dict[str, int], members: int, length: int) -> None:
        while members:
            bit = members & -members
            found[self._names[bit]] = length
            members ^= bit

    def add(self, name: str, blocks: Iterable[int]) -> None:
        """Record that a member holds these blocks, and has used them now."""
        bit, sets = self._bit(name), self._sets
        young, old, half = self._young, self._old, self._half
        for block in blocks:
            shard = block >> _SHARD
            table = young[shard]
            held = table.get(block)
            if held is None:
                held = old[shard].get(block, 0)
                if len(table) >= half:
                    old[shard] = table
                    table = young[shard] = {}
            if held & bit:
                table[block] = held
            elif held:
                both = held | bit
                table[block] = sets.setdefault(both, both)
            else:
                table[block] = bit
        if len(sets) > _MOST_SETS:
            sets.clear()

    def remove(self, name: str, blocks: Collection[int]) -> None:
        bit = self._bits.get(name, 0)
        for block in blocks:
            for tables in (self._young, self._old):
                table = tables[block >> _SHARD]
                if left := table.get(block, 0) & bit:
                    table[block] ^= left

    def _bit(self, name: str) -> int:
        bit = self._bits.get(name)
        if bit is None:
            if self._next >= len(self._bits) + _MOST_BITS:  # sets are not to grow without end
                self._clear()
                self._names = {1 << at: each for at, each in enumerate(self._bits)}
                self._bits = {each: one for one, each in self._names.items()}
                self._next = len(self._bits)
            bit = self._bits[name] = 1 << self._next
            self._names[bit] = name
            self._next += 1
        return bit

    def _clear(self) -> None:
        self._young: list[dict[int, int]] = [{} for _ in range(_SHARDS)]
        self._old: list[dict[int, int]] = [{} for _ in range(_SHARDS)]
