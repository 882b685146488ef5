"""Options chosen for llama.cpp from the machine and the model's header."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from enginekit import HEADER
from msgspec import structs

from causerie.engines import machine as machine_module
from causerie.engines.llamacpp import options as module
from causerie.engines.llamacpp.engine import environment
from causerie.engines.llamacpp.options import Launch, LlamaCppOptions, available_memory, for_machine
from causerie.engines.machine import MachinePart, cores, model_memory_bytes, own_groups, quota

FILE = HEADER.path
GIB = 2**30
KV = 16 * 8 * 128 * 2  # bytes a token


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(module, "available_memory", lambda: 64 * GIB)
    monkeypatch.setattr(module, "free_memory", lambda: 64 * GIB)
    monkeypatch.setattr(module, "cores", lambda *_: 16)
    monkeypatch.setattr(module, "has_gpu", lambda: False)
    return monkeypatch


def test_what_is_set_is_taken(machine: pytest.MonkeyPatch) -> None:
    options = LlamaCppOptions(
        context=100_000, parallel=3, cache_tokens=200_000, threads=5, gpu_layers=7, kv_type="q8_0",
        flash_attention=True, batch=96, lora=("a.gguf",), draft="d.gguf", prompt_cache="0B",
    )  # fmt: skip
    launch = for_machine(FILE, options, HEADER)
    assert launch.options == options
    for name in set(LlamaCppOptions.__struct_fields__) & set(Launch.__slots__):
        assert getattr(launch, name) == getattr(options, name)
    assert launch.prompt_cache_bytes == options.prompt_cache_bytes


def test_a_large_machine_gets_eight_slots_and_a_bounded_context(
    machine: pytest.MonkeyPatch,
) -> None:
    launch = for_machine(FILE, LlamaCppOptions(), HEADER)
    assert (launch.context, launch.parallel, launch.threads) == (32768, 8, 16)
    assert (launch.kv_type, launch.cpu_batch) == ("f16", 64)
    assert launch.cache_tokens == 8 * 8192
    assert launch.memory > GIB + 8 * 8192 * KV


def test_the_context_is_what_the_model_was_trained_for(machine: pytest.MonkeyPatch) -> None:
    launch = for_machine(FILE, LlamaCppOptions(), replace(HEADER, context_length=2048))
    assert launch.context == 2048


def test_one_request_may_have_all_of_a_usual_cache(machine: pytest.MonkeyPatch) -> None:
    """A longer one is made for a model of long texts, up to a bound, and when it is asked for."""
    for trained, tokens in ((40_960, 40_960), (262_144, 131_072)):
        long = replace(HEADER, context_length=trained)
        launch = for_machine(FILE, LlamaCppOptions(), long)
        assert (launch.context, launch.cache_tokens) == (tokens, max(tokens, 8 * 8192))
    launch = for_machine(FILE, LlamaCppOptions(context=8192), HEADER)
    assert (launch.context, launch.cache_tokens) == (8192, 8 * 8192)
    launch = for_machine(FILE, LlamaCppOptions(cache_tokens=9000), HEADER)
    assert (launch.context, launch.cache_tokens) == (9000, 9000)


def test_memory_that_others_will_give_back_counts_as_free(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(module, "free_memory", lambda: 2 * GIB)
    assert for_machine(FILE, LlamaCppOptions(), HEADER).context == 8192
    assert for_machine(FILE, LlamaCppOptions(spare=32 * GIB), HEADER).context == 32768


FIXED = model_memory_bytes(HEADER, 0)  # weights and buffers


@pytest.mark.parametrize(
    ("left", "tokens"),
    [(2**17, 8 * 8192), (2**16, 2**15), (2**15, 2**14), (1000, 8192), (-1000, 8192)],
)
def test_the_cache_takes_half_of_what_weights_and_stored_prompts_leave(
    machine: pytest.MonkeyPatch, left: int, tokens: int
) -> None:
    """And holds at least one request; slots share it where it holds no context of each."""
    machine.setattr(module, "available_memory", lambda: FIXED + left * KV)
    launch = for_machine(FILE, LlamaCppOptions(prompt_cache="0B"), HEADER)
    context = min(tokens, 32768)  # all of the cache, or what the model was trained for
    assert (launch.context, launch.parallel, launch.cache_tokens) == (context, 8, tokens)
    assert launch.memory == FIXED + tokens * KV
    stored = LlamaCppOptions(prompt_cache=f"{2**15 * KV}B")
    machine.setattr(module, "available_memory", lambda: FIXED + (left + 2**15) * KV)
    assert for_machine(FILE, stored, HEADER).cache_tokens == tokens


def test_the_cache_takes_less_beside_a_gpu(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(module, "has_gpu", lambda: True)
    machine.setattr(module, "available_memory", lambda: FIXED + 2**16 * KV)
    options = LlamaCppOptions(prompt_cache="0B")
    assert for_machine(FILE, options, HEADER).cache_tokens == 2**14
    assert for_machine(FILE, structs.replace(options, gpu_layers=0), HEADER).cache_tokens == 2**15


def test_the_cache_takes_no_more_than_is_free(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(module, "free_memory", lambda: (FIXED + 20_000 * KV) * 100 // 90 + 1)
    options = LlamaCppOptions(prompt_cache="0B")
    assert for_machine(FILE, options, HEADER).cache_tokens == 19_968
    longer = for_machine(FILE, structs.replace(options, context=30_000), HEADER)
    assert (longer.context, longer.cache_tokens) == (30_000, 30_000)


def test_a_laptop_of_16_gb_holds_what_the_documentation_says(machine: pytest.MonkeyPatch) -> None:
    """8B parameters at 4 bits, with 16k of context for one, and 4k for eight at once."""
    large = replace(
        HEADER, file_size=4_900_000_000, block_count=32, embedding_length=4096,
        head_count_kv=(8,) * 32, key_length=128, value_length=128, vocabulary_size=128_000,
        context_length=131_072,
    )  # fmt: skip
    for memory in ("available_memory", "free_memory"):
        machine.setattr(module, memory, lambda: 16 * 10**9)
    launch = for_machine(FILE, LlamaCppOptions(context=16_384), large)
    assert (launch.context, launch.parallel) == (16_384, 8)
    assert launch.cache_tokens >= 8 * 4096
    assert launch.memory + launch.prompt_cache_bytes < 12 * 10**9


def test_few_cores_get_four_slots(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(module, "cores", lambda *_: 2)
    launch = for_machine(FILE, LlamaCppOptions(), HEADER)
    assert (launch.parallel, launch.threads, launch.cpu_batch) == (4, 2, 64)


def test_a_batch_has_a_token_of_every_slot_in_it(machine: pytest.MonkeyPatch) -> None:
    small = replace(HEADER, file_size=98 * 10**6)
    many = for_machine(FILE, LlamaCppOptions(threads=2, parallel=48, batch=8), small)
    assert (many.batch, many.cpu_batch) == (48, 96)
    few = for_machine(FILE, LlamaCppOptions(threads=2, parallel=4, batch=8), small)
    assert (few.batch, few.cpu_batch) == (8, 64)


def test_adapters_and_the_draft_count_as_memory(
    machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("a", "d"):
        (tmp_path / name).write_bytes(bytes(1000))
    alone = for_machine(FILE, LlamaCppOptions(), HEADER)
    options = LlamaCppOptions(lora=(str(tmp_path / "a"),), draft=str(tmp_path / "d"))
    assert for_machine(FILE, options, HEADER).memory == alone.memory + 2000


@pytest.mark.parametrize(
    ("text", "most"), [("100000 100000", 1), ("50000 100000", 1), ("max 100000", None)]
)
def test_a_control_group_bounds_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, most: int | None
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setattr(machine_module, "own_groups", lambda: (own, tmp_path))
    everything = cores()
    assert 1 <= everything <= (os.cpu_count() or 1)
    for group in (own, tmp_path):
        (group / "cpu.max").write_text(text)
        assert cores() == (most or everything)
        (group / "cpu.max").unlink()


def test_parts_of_a_machine_share_its_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_module, "own_groups", lambda: (tmp_path,))
    assert quota() is None
    (tmp_path / "cpu.max").write_text("800000 100000")
    assert [quota(MachinePart(0, of)) for of in (1, 2, 16)] == [8, 4, 1]


@pytest.mark.parametrize(("logical", "expected"), [(2, 2), (4, 4), (6, 4), (12, 6), (16, 8)])
def test_of_two_threads_on_a_core_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logical: int, expected: int
) -> None:
    for cpu in range(logical):
        topology = tmp_path / f"cpu{cpu}/topology"
        topology.mkdir(parents=True)
        siblings = f"{cpu // 2 * 2},{cpu // 2 * 2 + 1}\n"
        (topology / "thread_siblings_list").write_text(siblings)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(logical)), raising=False)
    monkeypatch.setattr(machine_module, "_CPUS", tmp_path)
    monkeypatch.setattr(machine_module, "own_groups", lambda: ())
    assert cores() == expected


def test_a_control_group_bounds_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(module, "own_groups", lambda: (tmp_path,))
    machine = available_memory()
    limit.write_text("max\n")
    assert available_memory() == machine
    limit.write_text(f"{machine // 2}\n")
    assert available_memory() == machine // 2


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("0::/system.slice/a.service\n", ("system.slice/a.service", "system.slice", "")),
        ("4:memory:/x\n0::/\n", ("",)),
        ("0::/../elsewhere\n", ("",)),
        ("4:memory:/x\n", ("",)),
    ],
)
def test_the_groups_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, groups: tuple[str, ...]
) -> None:
    root, own = tmp_path / "groups", tmp_path / "own"
    monkeypatch.setattr(machine_module, "_ROOT", root)
    monkeypatch.setattr(machine_module, "_OWN", own)
    assert own_groups() == (root,)
    own.write_text(text)
    assert own_groups() == tuple(root / group for group in groups)


def test_threads_spin_shortly_unless_the_environment_says_otherwise(
    machine: pytest.MonkeyPatch,
) -> None:
    machine.delenv("GOMP_SPINCOUNT", raising=False)
    assert environment(LlamaCppOptions())["GOMP_SPINCOUNT"] == "1000"
    machine.setenv("GOMP_SPINCOUNT", "7")
    assert environment(LlamaCppOptions())["GOMP_SPINCOUNT"] == "7"


@pytest.mark.parametrize(
    ("megabytes", "threads", "tokens"),
    [(98, 1, 64), (98, 2, 64), (98, 8, 256), (98, 64, 512), (491, 2, 64), (4900, 8, 64)],
)
def test_prompts_are_read_in_batches_as_large_as_a_stream_beside_them_bears(
    machine: pytest.MonkeyPatch, megabytes: int, threads: int, tokens: int
) -> None:
    header = replace(HEADER, file_size=megabytes * 10**6)
    options = LlamaCppOptions(threads=threads, parallel=1)
    assert for_machine(FILE, options, header).cpu_batch == tokens
