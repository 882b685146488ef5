"""The measurement: round robin, the choice of the pool, and what one cache would hit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from causerie.engines.base import ModelFacts
from causerie.engines.pool.pool import EnginePool
from vllm_pool.measured import Measured, Work, in_turn, measured, started

BLOCK = 32  # tokens of a block of vLLM
SLOTS = 8
ARGS = ("--enforce-eager", "--block-size", str(BLOCK), "--max-num-batched-tokens", "2048")


@dataclass(frozen=True)
class Servers:
    """Two servers: of a ``program`` that is started, or at ``addresses``; ``blocks`` of each."""

    folder: Path
    blocks: int
    program: str = "vllm"
    addresses: tuple[str, ...] = ()

    def options(self) -> dict[str, object]:
        """Return the ``[models.vllm]`` of both."""
        if self.addresses:
            events = {"port": 5557, "replay_port": 5558}
            return {"addresses": self.addresses, "parallel": SLOTS, "kv_events": events}
        args = (*ARGS, "--num-gpu-blocks-override", str(self.blocks))
        started = {"command": self.program, "context": 2048, "parallel": SLOTS, "args": args}
        return {**started, "replicas": 2}


async def compared(servers: Servers, work: Work, seed: int) -> bool:
    """Print what was measured; return whether the bars are met."""
    async with started(servers.options(), servers.folder) as pool:
        assert isinstance(pool, EnginePool)
        words = _words(await pool.facts())
        prompts = work.prompts(f"ours {seed}", words)
        best = work.best_rate(prompts, 2 * servers.blocks, BLOCK)
        print(f"{work}: a cache of both memories hits {best:.1%}", flush=True)
        turns = await measured(in_turn(pool), work.prompts(f"turns {seed}", words))
        _say("round robin", turns)
        ours = await measured(pool.generate, prompts)
        _say("by prefix", ours)
        for member in pool.status().members:
            print(f"    {member.model} is chosen by {member.prefix_source} {member.detail}")
    return ours.rate >= 0.95 * best and ours.deciles[8] <= 0.5 * turns.deciles[8]


def _words(facts: ModelFacts) -> int:
    assert facts.size is not None
    return facts.size


def _say(name: str, one: Measured) -> None:
    p50, p90 = one.deciles[4], one.deciles[8]
    print(f"  {name:12} hits {one.rate:6.1%}  TTFT {p50:.2f} {p90:.2f} s", flush=True)
