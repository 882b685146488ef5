"""A reload: all of the new configuration or nothing, and nobody who is being served notices."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from faultkit import Reply, upstream
from hub import gguf
from servicekit import SERVER, ServiceView, service_view
from structlog.testing import capture_logs

from causerie.cli.keys import digest_line, new_key
from causerie.composition.reloading import refusals
from causerie.settings.load import Loaded, load

LINES = SERVER.count("\n")
OWN = '[[models]]\nid = "own"\nengine = "fake"\npreload = true\noptions = { replies = ["Me."] }\n'
LONG = "A very long story. " * 400
LONG_OWN = f'[[models]]\nid = "long"\nengine = "fake"\noptions = {{ replies = ["{LONG}"] }}\n'
TALE = Reply("Once upon a time there was a gateway that went on.", pause=0.01)


def provider(base_url: str, more: str = "") -> str:
    return f'[[providers]]\nname = "up"\nbase_url = "{base_url}"\n{more}\n'


def alias(id: str, *targets: str) -> str:
    listed = ", ".join(targets or ('{ provider = "up", model = "m" }',))
    return f'[[aliases]]\nid = "{id}"\ntargets = [{listed}]\n'


async def test_models_aliases_and_doors_come_and_go(tmp_path: Path) -> None:
    async with upstream(lambda _: TALE) as up, service_view(tmp_path, OWN) as service:
        assert await service.models("/v1") == ["own"]
        outcome = await service.reload(OWN + provider(up.base_url) + alias("tale"))
        assert (outcome.problems, outcome.doors, outcome.models, outcome.aliases) == ((), 3, 1, 1)
        assert await service.models("/v1") == ["tale"]
        assert await service.models("/gateway/v1") == ["tale"]
        assert await service.models("/endpoints/own/v1") == ["own"]
        status, headers, answer = await service.ask("/v1", "tale")
        assert (status, headers["x-served-by"]) == (200, "up/m")
        assert answer["choices"][0]["message"]["content"] == TALE.text
        outcome = await service.reload(OWN.replace('"own"', '"other"'))
        assert outcome.applied
        assert await service.models("/v1") == ["other"]
        for base in ("/gateway/v1", "/endpoints/own/v1"):
            assert (await service.get(f"{base}/models"))[0] == 404


async def test_what_is_known_of_a_loaded_model_is_shown_before_it_is_asked(tmp_path: Path) -> None:
    async with service_view(tmp_path, OWN) as service:
        for text in (OWN, f"{OWN}max_output_tokens = 9\n"):
            assert (await service.reload(text)).applied
            _, listed = await service.get("/v1/models")
            assert listed["data"][0]["context_length"] > 0


async def test_requests_share_the_cache_of_the_engine_that_is_in_force(tmp_path: Path) -> None:
    def sharing(tokens: int) -> str:
        options = f"options = {{ context_length = 1000, cache_tokens = {tokens},"
        return OWN.replace("options = {", options)

    async with service_view(tmp_path, sharing(2000)) as service:
        for choices, expected in ((2, 200), (3, 400)):
            status, _, answer = await service.ask("/v1", "own", n=choices, max_tokens=900)
            assert status == expected
        assert answer["error"]["param"] == "n"
        assert (await service.reload(sharing(3000))).applied
        assert (await service.ask("/v1", "own", n=3, max_tokens=900))[0] == 200


async def test_beside_a_draft_model_no_probabilities_are_promised(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf({}))
    text = '[[models]]\nid = "own"\nref = "./m.gguf"\npreload = false\n'
    async with service_view(tmp_path, f'{text}[models.llamacpp]\ndraft = "m.gguf"\n') as service:
        status, _, answer = await service.ask("/v1", "own", logprobs=True)
        assert (status, answer["error"]["param"]) == (400, "logprobs")
        _, listed = await service.get("/v1/models")
        assert "logprobs" not in listed["data"][0]["supported_parameters"]
        assert (await service.reload(text)).applied
        _, listed = await service.get("/v1/models")
        assert "logprobs" in listed["data"][0]["supported_parameters"]


async def test_entries_of_the_catalog_are_counted(tmp_path: Path) -> None:
    entry = '[[catalog]]\nid = "a/own"\n[[catalog.endpoints]]\nmodel = "own"\n'
    router = '[[doors]]\nname = "router"\nkind = "router"\nkeys = "off"\n'
    async with service_view(tmp_path, OWN) as service:
        assert (await service.reload()).entries == 0
        outcome = await service.reload(OWN + router + entry + entry.replace("a/own", "b/own"))
        assert (outcome.problems, outcome.entries) == ((), 2)
        assert await service.models("/router/v1") == ["a/own", "b/own"]


async def test_a_bad_file_changes_nothing_and_says_where_it_is_wrong(tmp_path: Path) -> None:
    async with service_view(tmp_path, OWN) as service:
        outcome = await service.reload(
            OWN + '[[doors]]\nname = "d"\nkeys = []\n[[models]]\nid = "new"\nengin = "fake"\n'
        )
        assert outcome.problems == (
            f"{service.file}:{LINES + 11}: models[1].engin: is not a setting; "
            "did you mean `engine`?",
            f"{service.file}:{LINES + 8}: doors[0].keys: is empty, so nobody could enter; "
            'add a digest (`causerie key`) or write `keys = "off"`',
        )
        outcome = await service.reload(OWN + '[[doors]]\nname = "d"\nkeys = []\n')
        assert [one.split(": ")[1] for one in outcome.problems] == ["doors[0].keys"]
        outcome = await service.reload("[[models]\n")
        assert outcome.problems[0].startswith(f"{service.file}:{LINES + 1}: ")
        service.file.unlink()
        assert "No such file" in (await service.reload()).problems[0]
        assert await service.models("/v1") == ["own"]
        assert (await service.ask("/v1", "own"))[0] == 200
        assert (await service.reload(OWN)).applied


async def test_a_file_that_was_emptied_changes_nothing(tmp_path: Path) -> None:
    async with service_view(tmp_path, OWN) as service:
        for text in ("", "# to be written\n"):
            service.file.write_text(text, encoding="utf-8")
            [problem] = (await service.reload()).problems
            assert problem.startswith(f"{service.file}: is gone, or sets nothing any more")
        assert await service.models("/v1") == ["own"]


async def test_a_pipe_is_not_read_again(tmp_path: Path) -> None:
    async with service_view(tmp_path, OWN) as service:
        service.file.unlink()
        os.mkfifo(service.file)
        [problem] = (await service.reload()).problems
        assert "is a pipe, which was read at the start" in problem
        assert await service.models("/v1") == ["own"]


def test_a_file_that_was_found_in_the_folder_and_is_gone_is_not_the_default(
    tmp_path: Path,
) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text(OWN, encoding="utf-8")
    environ = {"XDG_CACHE_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    nothing, started = (
        load(environ=environ, folder=tmp_path / "x"),
        load(environ=environ, folder=tmp_path),
    )
    file.unlink()
    [problem] = refusals(started, load(environ=environ, folder=tmp_path))
    assert str(problem).startswith(f"{file}: is gone")
    assert not [*refusals(started, started), *refusals(nothing, nothing)]


def test_a_service_that_others_reach_stays_closed_until_it_listens_elsewhere(
    tmp_path: Path,
) -> None:
    def written(server: str) -> Loaded:
        file = tmp_path / "causerie.toml"
        file.write_text(f"[server]\n{server}\n{OWN}", encoding="utf-8")
        return load(file=file, environ={"XDG_CACHE_HOME": str(tmp_path)})

    started = written(f'host = "0.0.0.0"\nkeys = ["{digest_line(new_key())}"]')
    [problem] = refusals(started, written("port = 0"))
    assert "server.keys: is unset, and 0.0.0.0 can be reached from other mach" in str(problem)
    assert not list(refusals(started, written('keys = "off"')))


def test_a_reload_brings_no_own_model_to_several_workers(tmp_path: Path) -> None:
    """The number of workers stays as it was until the service is started again."""
    file = tmp_path / "causerie.toml"
    provider = '[[providers]]\nname = "a"\nbase_url = "http://127.0.0.1:9/v1"\n'
    provider += '[[aliases]]\nid = "x"\ntargets = [{ provider = "a", model = "m" }]\n'

    def written(workers: int, more: str = "") -> Loaded:
        file.write_text(f"[server]\nworkers = {workers}\n{provider}{more}")
        return load(file=file, environ={})

    started = written(2)
    own = written(1, '[[models]]\nid = "m"\nengine = "fake"\n')
    [problem] = refusals(started, own)
    assert problem.key == "models[0]"
    assert "each of 2 workers would load it" in problem.advice
    limited = '[aliases.limits]\nconcurrent = 1\n[shared]\nurl = "valkey://127.0.0.1:1/0"\n'
    [problem] = refusals(started, written(2, limited))
    assert problem.key == "aliases[0].limits"
    assert not list(refusals(started, written(3)))
    assert not list(refusals(written(1), own))


async def test_a_secret_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "key.txt"
    secret.write_text("sk-first")
    key = 'key = { file = "key.txt" }'
    async with upstream(lambda _: TALE) as up:
        text = provider(up.base_url, key) + alias("tale")
        async with service_view(tmp_path, text) as service:
            assert (await service.ask("/v1", "tale"))[0] == 200
            secret.unlink()
            [problem] = (await service.reload()).problems
            assert f"causerie.toml:{LINES + 4}: providers[0].key: the file" in problem
            assert (await service.ask("/v1", "tale"))[0] == 200
            secret.write_text("sk-second")
            assert (await service.reload()).applied
            assert (await service.ask("/v1", "tale"))[0] == 200
        sent = [request.headers["authorization"] for request in up.requests]
    assert sent == ["Bearer sk-first", "Bearer sk-first", "Bearer sk-second"]


async def test_keys_of_doors_change(tmp_path: Path) -> None:
    first, second = new_key(), new_key()

    def door(key: str) -> str:
        return OWN + f'[[doors]]\nname = "d"\nkeys = ["{digest_line(key)}"]\n'

    async with service_view(tmp_path, door(first)) as service:
        assert await service.models("/v1", first) == ["own"]
        assert (await service.reload(door(second))).applied
        assert (await service.get("/v1/models", first))[0] == 401
        assert await service.models("/v1", second) == ["own"]


async def test_what_waits_for_a_restart_is_said(tmp_path: Path) -> None:
    async with service_view(tmp_path, OWN) as service:
        service.file.write_text('[server]\nport = 9\nhost = "::1"\n' + OWN)
        outcome = await service.reload()
        assert outcome.applied
        assert outcome.notes == (
            "server.host stays 127.0.0.1 until the service is started again; the configuration "
            "says ::1",
            "server.port stays 0 until the service is started again; the configuration says 9",
            "server.drain_seconds stays 0.2 until the service is started again; the configuration "
            "says 30.0",
        )
        assert await service.models("/v1") == ["own"]
        secret = "postgresql://u:s3cret@db/n"
        keys = 'secret_keys = [{ env = "PATH" }]'
        service.file.write_text(
            f'{SERVER}[console]\nsign_up = true\n[store]\nurl = "{secret}"\n{keys}\n'
            f'[shared]\nurl = "valkey://:s3cret@there:6379"\n{OWN}'
        )
        assert (await service.reload()).notes == (
            "console.sign_up stays False until the service is started again; the configuration "
            "says True",
            "store stays as it was until the service is started again",
            "shared stays as it was until the service is started again",
        )


async def test_a_removed_model_finishes_what_it_began(tmp_path: Path) -> None:
    async with service_view(tmp_path, OWN + LONG_OWN) as service, asyncio.TaskGroup() as group:
        began = asyncio.Event()
        running = group.create_task(service.stream("/v1", "long", began))
        await began.wait()
        assert (await service.reload(OWN)).applied
        assert not running.done(), "the story was too short to be cut"
        assert (await service.ask("/v1", "long"))[0] == 404
        assert (await running).strip() == LONG.strip()
        status, health = await service.get("/health")
        assert (status, [one["model"] for one in health["engines"]]) == (200, ["own"])


async def test_a_changed_model_is_another_engine_and_an_unchanged_one_is_not(
    tmp_path: Path,
) -> None:
    def loads() -> int:
        return [line["event"] for line in lines].count("model loaded")

    async with service_view(tmp_path, OWN) as service:
        await service.ask("/v1", "own")
        with capture_logs() as lines:
            renamed = (
                OWN + 'name = "Mine"\nidle_unload_seconds = 3600\n[models.queue]\nmax_waiting = 3\n'
            )
            assert (await service.reload(renamed)).applied
            assert (await service.ask("/v1", "own"))[0] == 200
            assert loads() == 0
            assert (await service.reload(OWN.replace("Me.", "I."))).applied
            _, _, answer = await service.ask("/v1", "own")
            assert answer["choices"][0]["message"]["content"] == "I."
            assert loads() == 1


async def test_an_unchanged_provider_keeps_its_connections(tmp_path: Path) -> None:
    async with upstream(lambda _: Reply("Yes.")) as up:
        text = provider(up.base_url, "[providers.health]\npath = ''") + alias("x")
        async with service_view(tmp_path, text) as service:
            await service.ask("/v1", "x")
            [first] = up.open_connections
            assert (await service.reload(text + alias("y"))).applied
            await service.ask("/v1", "y")
            assert up.open_connections == [first]
            changed = text.replace("[providers.health]", "max_concurrent = 9\n[providers.health]")
            assert (await service.reload(changed)).applied
            await service.ask("/v1", "x")
            async with asyncio.timeout(60):
                while first in up.open_connections:  # noqa: ASYNC110 - seen from the other side
                    await asyncio.sleep(0.005)
            assert len(up.open_connections) == 1


async def test_sighup_reloads(tmp_path: Path) -> None:
    async with service_view(tmp_path, OWN) as service:
        service.write(OWN.replace('"own"', '"other"'))
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(60):
            while await service.models("/v1") != ["other"]:  # noqa: ASYNC110 - from outside
                await asyncio.sleep(0.01)


async def test_sighup_while_it_starts_reloads_then(tmp_path: Path) -> None:
    (tmp_path / "next.toml").write_text(SERVER + OWN.replace('"own"', '"other"'), encoding="utf-8")
    hang_up = f"cd '{tmp_path}' && cp next.toml causerie.toml && kill -HUP $PPID; echo secret"
    key = f"""key = {{ command = ["sh", "-c", "{hang_up}"] }}"""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # where it is not handled this test fails, no more
    try:
        async with service_view(tmp_path, OWN + provider("http://127.0.0.1:9/v1", key)) as service:
            async with asyncio.timeout(60):
                while await service.models("/v1") != ["other"]:  # noqa: ASYNC110 - from outside
                    await asyncio.sleep(0.01)
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


async def test_racing_reloads_end_with_the_last_file(tmp_path: Path) -> None:
    async with service_view(tmp_path, OWN) as service:

        async def one(number: int) -> None:
            assert (await service.reload(OWN.replace('"own"', f'"own-{number}"'))).applied

        await asyncio.gather(*(one(number) for number in range(12)))
        [written] = [line for line in service.file.read_text().split("\n") if line[:2] == "id"]
        assert [f'id = "{id}"' for id in await service.models("/v1")] == [written]


@pytest.mark.full
async def test_fifty_reloads_under_load_fail_nobody(tmp_path: Path) -> None:
    """Streams from a provider and from our own engine, while everything else changes."""
    counts = {"tale": 0, "own": 0}

    async def load(service: ServiceView, model: str, base: str, over: asyncio.Event) -> None:
        while not over.is_set():
            text = await service.stream(base, model)
            assert text == (TALE.text if model == "tale" else "Me.")
            counts[model] += 1

    async with upstream(lambda _: TALE) as up:
        fixed = OWN + provider(up.base_url) + alias("tale")
        async with service_view(tmp_path, fixed) as service, asyncio.TaskGroup() as group:
            over = asyncio.Event()
            for _ in range(6):
                group.create_task(load(service, "tale", "/gateway/v1", over))
                group.create_task(load(service, "own", "/endpoints/own/v1", over))
            for number in range(50):
                extra = (
                    f'[[models]]\nid = "extra-{number}"\nengine = "fake"\n' if number % 2 else ""
                )
                more = f"max_concurrent = {100 + number % 3}"
                text = (
                    OWN + extra + provider(up.base_url, more) + alias("tale") + alias(f"t{number}")
                )
                if number % 10 == 5:
                    assert (await service.reload(text + "[[aliases]]\n")).problems
                    continue
                assert (await service.reload(text)).applied
                assert f"t{number}" in await service.models("/gateway/v1")
            over.set()
    assert min(counts.values()) > 5, counts
