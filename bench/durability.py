"""Is everything that a client saw end in the ledger, once, however often the service is killed?

A hosted service with a scripted engine serves eight clients, who note down each
completion whose end they saw (`[DONE]`, or a whole plain reply). At a random
moment the service is killed (`kill -9`), and started again. At the end every
completion that was noted has to be in the ledger exactly once.

    make bench BENCH=bench/durability.py
    make bench BENCH=bench/durability.py ARGS="--times 10 --journal off"
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from killkit import killed


def main() -> int:
    """Run it; the exit status is 1 where something is missing or there twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--journal", default="write", choices=["write", "sync", "off"])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()

    def watch(number: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{number}/{given.times}", end="", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        outcome = killed(
            Path(folder), given.times, journal=given.journal, seed=given.seed, watch=watch
        )
    print(
        f"{given.times} kills: clients saw {outcome.ended} completions end, {outcome.broken} "
        f"broke off; missing in the ledger {len(outcome.missing)}, twice {len(outcome.twice)}"
    )
    return 1 if outcome.missing or outcome.twice else 0


if __name__ == "__main__":
    sys.exit(main())
