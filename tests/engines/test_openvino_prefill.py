"""Which tokens of which prompts OpenVINO's next step reads."""

from __future__ import annotations

from collections.abc import Sequence

from casekit import each_of

from causerie.engines.openvino.prefill import BATCH, Prefill, block_keys

FAST, SLOW = 0.0005, 0.005  # seconds for each token


def tokens(count: int, first: int = 0) -> Sequence[int]:
    return range(first, first + count)


def prefill(token_seconds: float = FAST, blocks: int = 1000) -> Prefill:
    """A prefill that has seen one step of this speed, after a first one that was much slower."""
    made = Prefill(blocks)
    step(made, 0, tokens(64, 800_000), 10)
    step(made, 0, tokens(64, 900_000), token_seconds)
    return made


def step(
    asked: Prefill,
    id: int,
    prompt: Sequence[int],
    token_seconds: float,
    *,
    streaming: bool = False,
) -> list[tuple[int, int, int]]:
    """Add a prompt, and take one step; returns what it reads."""
    asked.add(id, prompt)
    return again(asked, token_seconds, streaming=streaming)


def again(
    asked: Prefill, token_seconds: float, *, streaming: bool = False
) -> list[tuple[int, int, int]]:
    parts = asked.plan(streaming=streaming)
    asked.stepped(token_seconds * sum(part.end - part.begin for part in parts))
    return [(part.prompt.id, part.begin, part.end) for part in parts]


@each_of(
    ("token_seconds", "alone", "streaming"),
    [(0.0001, BATCH, BATCH), (0.001, BATCH, 96), (0.003, BATCH, 32), (0.006, 160, 32), (1, 32, 32)],
)
def test_parts_are_as_small_as_streams_need_and_end_with_a_block(
    token_seconds: float, alone: int, streaming: int
) -> None:
    for beside, count in ((False, alone), (True, streaming)):
        asked = prefill(token_seconds)
        (first,) = step(asked, 1, tokens(4000), token_seconds, streaming=beside)
        assert first == (1, 0, count)


def test_prompts_that_are_not_long_fill_a_step_beside_a_stream_too() -> None:
    asked = prefill(0.003)
    asked.add(1, tokens(100))
    assert step(asked, 2, tokens(400, 1000), 0.003, streaming=True) == [(1, 0, 100), (2, 0, 128)]


def test_a_long_prompt_stays_one_to_its_end_and_shares_no_step_with_what_comes_behind() -> None:
    asked = prefill(0.003)
    found = step(asked, 1, tokens(1100), 0.003, streaming=True)
    while len(asked._waiting_prompts_by_id):
        found += again(asked, 0.003, streaming=True)
    assert found == [(1, at, min(at + 32, 1100)) for at in range(0, 1100, 32)]
    asked.add(2, tokens(1100, 2000))
    assert step(asked, 3, tokens(1100, 4000), 0.003, streaming=True) == [(2, 0, 32)]


def test_a_prompt_is_read_to_its_end_and_waits_no_more() -> None:
    asked = prefill()
    found = step(asked, 1, tokens(600), FAST)
    while asked:
        found += again(asked, FAST)
    assert found == [(1, 0, 256), (1, 256, 512), (1, 512, 600)]
    assert again(asked, FAST) == []


def test_what_is_read_is_found_again_but_for_the_last_token() -> None:
    asked = prefill()
    assert step(asked, 1, tokens(96), FAST) == [(1, 0, 96)]
    assert step(asked, 2, tokens(96), FAST) == [(2, 64, 96)]
    assert step(asked, 3, [*tokens(80), *tokens(50, 500)], FAST) == [(3, 64, 130)]
    asked.note(tokens(4000, 7000))
    assert step(asked, 4, tokens(4001, 7000), FAST) == [(4, 4000, 4001)]


def test_prompts_of_one_step_do_not_find_each_other() -> None:
    asked = prefill()
    asked.add(1, tokens(96))
    assert step(asked, 2, tokens(96), FAST) == [(1, 0, 96), (2, 0, 96)]


def test_several_prompts_share_a_step() -> None:
    asked = prefill()
    asked.add(1, tokens(100))
    asked.add(2, tokens(100, 1000))
    assert step(asked, 3, tokens(100, 2000), FAST) == [(1, 0, 100), (2, 0, 100), (3, 0, 32)]
    assert again(asked, FAST) == [(3, 32, 100)]


def test_a_short_prompt_passes_a_long_one_which_does_not_wait_for_all_short_ones() -> None:
    asked = prefill()
    asked.add(1, tokens(4000))
    firsts = [again(asked, FAST)[0][0]]
    for id in range(2, 8):
        firsts.append(step(asked, id, tokens(256, 5000 * id), FAST)[0][0])
    assert firsts[:2] in ([1, 2], [1, 1])
    assert firsts.count(1) in {3, 4}


def test_a_prompt_that_is_dropped_is_not_read() -> None:
    asked = prefill()
    asked.add(1, tokens(600))
    assert again(asked, FAST) == [(1, 0, 256)]
    asked.drop(1)
    asked.drop(1)
    assert not asked
    assert again(asked, FAST) == []


def test_prompts_of_models_without_whole_blocks_are_read_at_once() -> None:
    asked = Prefill(1000, divided=False)
    asked.add(1, tokens(4000))
    assert step(asked, 2, tokens(50), SLOW, streaming=True) == [(1, 0, 4000), (2, 0, 50)]


def test_blocks_that_were_used_longest_ago_are_forgotten() -> None:
    asked = Prefill(2)
    for noted in (tokens(64), tokens(32), [7] * 32):
        asked.note(noted)
    assert list(asked.known) == [*block_keys(tokens(32)), *block_keys([7] * 32)]


def test_a_key_stands_for_all_tokens_up_to_its_block() -> None:
    one, other = block_keys(tokens(96)), block_keys([*tokens(32), 7, *tokens(63, 33)])
    assert len(one) == len(other) == 3
    assert [a == b for a, b in zip(one, other, strict=True)] == [True, False, False]
    assert block_keys(tokens(31)) == []
