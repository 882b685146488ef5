"""One attempt to send a letter, with the reason in words where it failed."""

from __future__ import annotations

import smtplib
import ssl
from dataclasses import dataclass

from causerie.mail.outbox import Letter, MailServer, send_now

_FOR_GOOD = 500


@dataclass(frozen=True, slots=True)
class LetterRefusal:
    """Why a letter was not sent, for operators: the server's words may name addresses.

    ``final``: the server refuses this address for good.
    """

    words: str
    final: bool = False


def attempt(server: MailServer, letter: Letter) -> LetterRefusal | None:
    """Hand a letter to the server, once; blocks. ``None``: the server took it."""
    try:
        send_now(server, letter)
    except smtplib.SMTPRecipientsRefused as failure:
        code, said = next(iter(failure.recipients.values()))
        words = f"the server refuses the address: {_said(code, said)}"
        return LetterRefusal(words, final=code >= _FOR_GOOD)
    except (OSError, smtplib.SMTPException, ValueError) as failure:
        return LetterRefusal(_reason(failure))
    return None


def _reason(failure: Exception) -> str:
    match failure:
        case smtplib.SMTPAuthenticationError():
            return f"user or password are wrong: {_said(failure.smtp_code, failure.smtp_error)}"
        case smtplib.SMTPNotSupportedError():
            return "the server offers no STARTTLS, or does not let anybody authenticate"
        case smtplib.SMTPResponseException():
            return f"the server refuses: {_said(failure.smtp_code, failure.smtp_error)}"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {failure.verify_message}"
        case ssl.SSLError():
            return "TLS failed; `mail.tls` and the port may not go together"
        case TimeoutError():
            return "no answer in time"
        case smtplib.SMTPServerDisconnected():
            return "the server has closed the connection"
        case OSError(strerror=str(words)):
            return words.lower()
        case _:
            return str(failure) or type(failure).__name__


def _said(code: int, words: bytes | str) -> str:
    text = words.decode("utf-8", "replace") if isinstance(words, bytes) else words
    return f"{code} {' '.join(text.split())[:200]}"
