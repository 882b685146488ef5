"""The mail server, as the settings name it."""

from __future__ import annotations

from causerie.mail.outbox import MailServer
from causerie.settings.mail import Mail


def mail_server(mail: Mail, password: str | None) -> MailServer | None:
    """Return the server for letters, if the settings name one."""
    if mail.host is None:
        return None
    return MailServer(
        mail.host, mail.port, mail.sender or "", mail.tls, mail.user, password, mail.ca_file
    )
