"""A model repository on the hub: which files, where they lie, what their checksums are.

Listing, addresses, tokens and error codes are huggingface_hub's; it does not
take up a broken download again, so the bytes come by :mod:`.transfer`. Knows
nothing about where files are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError: its client's
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)

from causerie.engines.weights import HubOptions, errors
from causerie.engines.weights.reference import Reference
from causerie.engines.weights.transfer import DownloadSource

_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
_SECONDS = 20.0  # for one question to the hub

Choose = Callable[[str, Sequence[str]], Sequence[str]]


def sources(
    reference: Reference, options: HubOptions, choose: Choose
) -> tuple[DownloadSource, ...]:
    """Return the sources of the files that ``choose`` picks. Blocks; raises ``WeightsError``."""
    token = (options.token or "").strip()
    if not token.isascii() or not token.isprintable():  # no error message may show it
        raise errors.Gated("The token in HF_TOKEN holds characters that no token has; set it anew.")
    api = HfApi(endpoint=options.endpoint, token=token or None, library_name="causerie")
    try:
        model = api.model_info(reference.name, files_metadata=True, timeout=_SECONDS)
        siblings = {sibling.rfilename: sibling for sibling in model.siblings or ()}
        chosen = choose(reference.name, list(siblings))
        revision = model.sha or "main"
        urls = {
            name: hf_hub_url(reference.name, name, revision=revision, endpoint=api.endpoint)
            for name in chosen
        }
        # A gated repository lists its files to everybody; only asking for one tells.
        api.get_hf_file_metadata(url=urls[chosen[0]], timeout=_SECONDS)
        every = api._build_hf_headers()
        headers = {name: value for name, value in every.items() if name.lower() == "authorization"}
        found = ((siblings[name], siblings[name].lfs) for name in chosen)
        return tuple(
            DownloadSource(
                name=file.rfilename,
                url=urls[file.rfilename],
                headers=headers,
                size=large.size if large else file.size,
                sha256=large.sha256 if large else None,
            )
            for file, large in found
        )
    except HFValidationError as error:
        raise errors.BadReference(
            f"{reference} names no repository: {_error_summary(error)}."
        ) from error
    except (HTTPError, OSError) as error:
        raise _weights_error(reference.name, api.endpoint, error) from error


def _weights_error(repository: str, endpoint: str, error: Exception) -> errors.WeightsError:
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else 0
    if isinstance(error, GatedRepoError) or status == 403:
        return errors.Gated(
            f"{repository} is gated: accept its terms at {endpoint}/{repository}, "
            "then give your token in HF_TOKEN."
        )
    if isinstance(error, (RepositoryNotFoundError, DisabledRepoError)) or status in (401, 404):
        if isinstance(error, RemoteEntryNotFoundError):
            return errors.WeightsNotFound(
                f"{repository} lists a file that {endpoint} does not have; try again."
            )
        return errors.WeightsNotFound(
            f"{endpoint} has no repository {repository}, or it is private; "
            "check the name, or give a token that may read it in HF_TOKEN."
        )
    if isinstance(error, OfflineModeIsEnabled):
        return errors.Offline(
            f"{repository} is not in the cache and HF_HUB_OFFLINE forbids to fetch it."
        )
    if status:
        return errors.NoNetwork(
            f"{endpoint} answered {status} when asked for {repository}; try later."
        )
    return errors.NoNetwork(
        f"{endpoint} could not be reached: {_error_summary(error)}; check the connection, or name "
        "weights that are on this machine."
    )


def _error_summary(error: Exception) -> str:
    first = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    return _ERRNO.sub("", first)
