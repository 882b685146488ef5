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
WITHOUT_WEIGHTS = ("--load-format", "dummy")


@dataclass(frozen=True)
class Servers:
    """Servers of a pool: ``number`` of a ``program`` that is started, or those at ``addresses``.

    Each has ``blocks``, and a share of the device's memory. Without ``weights``, started servers
    have random ones: what a prompt costs is the same.
    """

    folder: Path
    blocks: int
    program: str = "vllm"
    number: int = 2
    addresses: tuple[str, ...] = ()
    weights: bool = True

    @property
    def memory(self) -> int:
        """Return the blocks of all."""
        return self.blocks * (len(self.addresses) or self.number)

    def options(self, longest: int) -> dict[str, object]:
        """Return the ``[models.vllm]`` of all, for requests of at most ``longest`` tokens."""
        if self.addresses:
            events = {"port": 5557, "replay_port": 5558}
            return {"addresses": self.addresses, "parallel": SLOTS, "kv_events": events}
        args = (*ARGS, "--num-gpu-blocks-override", str(self.blocks))
        return {
            "command": self.program,
            "context": longest + BLOCK,
            "parallel": SLOTS,
            "args": args if self.weights else (*args, *WITHOUT_WEIGHTS),
            "gpu_memory": round(0.8 / self.number, 2),
            "devices": ["0"] * self.number,
            "replicas": self.number,
        }


async def compared(servers: Servers, work: Work, seed: int) -> bool:
    """Print what was measured; return whether the bars are met."""
    async with started(servers.options(work.longest), servers.folder) as pool:
        assert isinstance(pool, EnginePool)
        words = _words(await pool.facts())
        prompts = work.prompts(f"ours {seed}", words)
        best = work.best_rate(prompts, servers.memory, BLOCK)
        print(f"{work}: a cache of all memories hits {best:.1%}", flush=True)
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
