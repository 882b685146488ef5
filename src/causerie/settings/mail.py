"""Settings of the server that takes letters to people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from causerie.settings.certificates import wrong_certificates
from causerie.settings.problems import Broken
from causerie.settings.values import PLACES, KeyPlace, Text


class Mail(Struct, frozen=True, kw_only=True):
    """The SMTP server for letters: to people who sign up, and about alerts."""

    host: Annotated[Text | None, Meta(description="Its name. Unset: no mail is sent.")] = None
    port: Annotated[int, Meta(ge=1, le=65535, description="Its port.")] = 587
    tls: Annotated[
        Literal["starttls", "implicit", "off"],
        Meta(
            description="`starttls` on a plain connection (port 587), `implicit` from the "
            "beginning (port 465), or `off`, for a server on the same machine."
        ),
    ] = "starttls"
    sender: Annotated[
        Text | None, Meta(description="The address that mail comes from. `host` needs it.")
    ] = None
    user: Annotated[Text | None, Meta(description="The name to authenticate with, if any.")] = None
    password: Annotated[
        KeyPlace | None, Meta(description="Where the password of `user` is found.")
    ] = None
    ca_file: Annotated[
        Text | None,
        Meta(description="Certificates to trust (PEM). Unset: those that the system trusts."),
    ] = None


def mail_rules(mail: Mail, address: str | None, *, sign_up: bool) -> Iterator[Broken]:
    """Everything that is wrong with it; the others are settings of ``console``."""
    if (wrong := wrong_certificates(mail.ca_file)) is not None:
        yield Broken(("mail", "ca_file"), wrong)
    if mail.host is not None and mail.sender is None:
        yield Broken(("mail", "sender"), "is missing; it is the address that mail comes from")
    if mail.host is not None and sign_up and address is None:
        yield Broken(("mail", "host"), "needs `console.address`, which links in mail begin with")
    if (mail.user is None) != (mail.password is None):
        yield Broken(("mail", "user"), "and `password` go together; set both or none")
    if mail.user is not None and mail.tls == "off" and mail.host not in ("localhost", "127.0.0.1"):
        yield Broken(("mail", "tls"), "is off, so the password would be readable on the way")
    secret = mail.password
    if secret is not None:
        places = [name for name in ("env", "file", "command") if getattr(secret, name) is not None]
        if len(places) != 1:
            found = " and ".join(f"`{each}`" for each in places) or "nothing"
            at = ("mail", "password")
            yield Broken(at, f"has {found}; it takes {PLACES}", relies_on=(at,))
