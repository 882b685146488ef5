"""Values derived from other settings: absolute paths, keys of doors that set none.

Files that settings name are relative to the folder of the configuration file.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from causerie.settings.alerts import Alerts, AlertWebhook, Mail
from causerie.settings.console import BrandingSettings, IdentityProvider, is_data
from causerie.settings.engine import Vllm
from causerie.settings.environment import expanded
from causerie.settings.provider import ProviderSettings, TlsSettings
from causerie.settings.store import SharedSettings, StoreSettings
from causerie.settings.tree import DoorSettings, ModelSettings, Settings
from causerie.settings.values import Keys, Secret

_SQLITE = "sqlite:///"


def settled(settings: Settings, folder: Path, cache: Path, data: Path) -> Settings:
    """The tree with nothing left to derive; ``cache`` and ``data`` are used where none is set."""
    weights = settings.weights
    keys = settings.server.keys
    kept = _absolute(weights.cache, folder) if weights.cache is not None else str(cache)
    return msgspec.structs.replace(
        settings,
        server=msgspec.structs.replace(settings.server, host=_bare(settings.server.host)),
        weights=msgspec.structs.replace(weights, cache=kept),
        store=_store(settings.store, folder, data),
        shared=_shared(settings.shared, folder),
        mail=_mail(settings.mail, folder),
        alerts=_alerts(settings.alerts, folder),
        branding=_branding(settings.branding, folder),
        doors=tuple(
            msgspec.structs.replace(door, keys=_door_keys(door, keys)) for door in settings.doors
        ),
        models=tuple(_model(model, folder) for model in settings.models),
        providers=tuple(_provider(provider, folder) for provider in settings.providers),
        identity_providers=tuple(
            _identity_provider(each, folder) for each in settings.identity_providers
        ),
    )


def _bare(host: str) -> str:
    """The address that stands in brackets, as those of IPv6 do in a URL."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _store(store: StoreSettings, folder: Path, data: Path) -> StoreSettings:
    place = str(data) if store.folder is None else _absolute(store.folder, folder)
    url = store.url or f"{_SQLITE}{place}/causerie.db"
    if url.startswith(_SQLITE):
        url = _SQLITE + _absolute(url.removeprefix(_SQLITE), folder)
    keys = tuple(_secret(each, folder) for each in store.secret_keys)
    return msgspec.structs.replace(store, folder=place, url=url, secret_keys=keys)


def _door_keys(door: DoorSettings, keys: Keys | None) -> Keys | None:
    """Hosted doors and routers are there for keys of accounts, whatever other doors take."""
    if door.keys is not None:
        return door.keys
    return "accounts" if door.kind in ("hosted", "router") else keys


def _model(model: ModelSettings, folder: Path) -> ModelSettings:
    options = msgspec.structs.replace(
        model.llamacpp,
        command=_command(model.llamacpp.command, folder) if model.llamacpp.command else None,
        lora=tuple(_absolute(path, folder) for path in model.llamacpp.lora),
        draft=_absolute(model.llamacpp.draft, folder) if model.llamacpp.draft else None,
    )
    return msgspec.structs.replace(
        model,
        llamacpp=options,
        vllm=_vllm(model.vllm, folder),
        ref=_absolute(model.ref, folder) if model.ref and _is_path(model) else model.ref,
        template=_absolute(model.template, folder) if model.template else None,
    )


def _vllm(vllm: Vllm, folder: Path) -> Vllm:
    return msgspec.structs.replace(
        vllm,
        command=_command(vllm.command, folder),
        key=_secret(vllm.key, folder) if vllm.key is not None else None,
        tls=_tls(vllm.tls, folder),
    )


def _command(name: str, folder: Path) -> str:
    """A program by its path; one without is for the shell's way of finding it."""
    return _absolute(name, folder) if "/" in name or name.startswith("~") else name


def _provider(provider: ProviderSettings, folder: Path) -> ProviderSettings:
    proxy = provider.proxy
    return msgspec.structs.replace(
        provider,
        tls=_tls(provider.tls, folder),
        key=_secret(provider.key, folder) if provider.key is not None else None,
        proxy=_secret(proxy, folder) if isinstance(proxy, Secret) else proxy,
    )


def _tls(tls: TlsSettings, folder: Path) -> TlsSettings:
    files = {
        name: _absolute(path, folder)
        for name in ("ca_file", "client_cert", "client_key")
        if (path := getattr(tls, name)) is not None
    }
    return msgspec.structs.replace(tls, **files)


def _identity_provider(identity_provider: IdentityProvider, folder: Path) -> IdentityProvider:
    secret, trusted = identity_provider.client_secret, identity_provider.ca_file
    return msgspec.structs.replace(
        identity_provider,
        client_secret=_secret(secret, folder) if secret is not None else None,
        ca_file=_absolute(trusted, folder) if trusted is not None else None,
    )


def _mail(mail: Mail, folder: Path) -> Mail:
    secret, trusted = mail.password, mail.ca_file
    return msgspec.structs.replace(
        mail,
        password=_secret(secret, folder) if secret is not None else None,
        ca_file=_absolute(trusted, folder) if trusted is not None else None,
    )


def _alerts(alerts: Alerts, folder: Path) -> Alerts:
    webhooks = tuple(_webhook(each, folder) for each in alerts.webhooks)
    return msgspec.structs.replace(alerts, webhooks=webhooks)


def _branding(branding: BrandingSettings, folder: Path) -> BrandingSettings:
    logos = {
        name: text if is_data(text) else _absolute(text, folder)
        for name, text in branding.logos.items()
    }
    return msgspec.structs.replace(branding, logos=logos)


def _webhook(webhook: AlertWebhook, folder: Path) -> AlertWebhook:
    secret, trusted = webhook.secret, webhook.ca_file
    return msgspec.structs.replace(
        webhook,
        secret=_secret(secret, folder) if secret is not None else None,
        ca_file=_absolute(trusted, folder) if trusted is not None else None,
    )


def _shared(shared: SharedSettings, folder: Path) -> SharedSettings:
    if shared.ca_file is None:
        return shared
    return msgspec.structs.replace(shared, ca_file=_absolute(shared.ca_file, folder))


def _secret(secret: Secret, folder: Path) -> Secret:
    if secret.file is None:
        return secret
    return msgspec.structs.replace(secret, file=_absolute(secret.file, folder))


def _is_path(model: ModelSettings) -> bool:
    ref = model.ref or ""
    file = model.engine == "vllm" or ref.endswith(".gguf")
    return ref.startswith((".", "/", "~")) or (file and ":" not in ref)


def _absolute(path: str, folder: Path) -> str:
    return str((folder / expanded(path)).absolute())
