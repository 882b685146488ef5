"""Letters to people, with the name of the service, in plain text and in HTML.

Only services with a mail server and a public address send them: a link that began with the host
that a visitor names would lead its reader there.
"""

from __future__ import annotations

from collections.abc import Sequence

from causerie.hosted.accounts.keys import NewLink
from causerie.hosted.console.request_context import RequestContext
from causerie.observe.mail import Letter

IGNORE = "If it was not you, ignore this letter; nothing has changed."


def send_letter(
    context: RequestContext,
    to: str,
    subject: str,
    lines: Sequence[str],
    button: tuple[str, str] | None = None,
) -> bool:
    """Queue a letter; return false if the service sends none.

    The address of ``button``, its title and address, follows the first line of the text.
    """
    outbox, name = context.services.outbox, context.services.site.brand.name
    if outbox is None:
        return False
    first, *others = lines
    told = [first, *([f"    {button[1]}"] if button else []), *others]
    page = context.services.templates.get_template("letter.html")
    html = page.render(subject=subject, lines=lines, button=button, base=context.base)
    outbox.send(Letter(to, subject, "\n\n".join(told) + "\n", html, name))
    return True


def invite_by_mail(context: RequestContext, made: NewLink, address: str, offered: str) -> bool:
    """Send an invitation to what is ``offered``, if it is for one address."""
    if not made.link.email:
        return False
    return send_letter(
        context,
        made.link.email,
        f"{context.me.name} invites you to {offered}",
        [
            f"{context.me.name} ({context.me.email}) invites you to {offered} at {context.base}. "
            "This link works once, within seven days:",
            "If you do not expect it, ignore this letter.",
        ],
        ("Accept the invitation", address),
    )
