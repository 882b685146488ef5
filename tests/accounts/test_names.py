"""E-mail addresses: what is kept is one mailbox, for every parser that reads it."""

from __future__ import annotations

import smtplib
from email.message import EmailMessage
from email.utils import getaddresses

import pytest
from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.tokens import tidy_email

SPECIALS = ',;<>()[]:@"\\ \t\r\n\x00\u200b\uff0c\uff20.-'
ADDRESSES = st.one_of(
    st.emails(),
    st.text(st.sampled_from("ab.@" + SPECIALS), max_size=30),
    st.tuples(
        st.emails(), st.sampled_from([*SPECIALS, ">, <", ";x:", "@x.org,"]), st.integers(0, 40)
    ).map(lambda each: each[0][: each[2]] + each[1] + each[0][each[2] :]),
    st.builds("{}@{}.org".format, st.text(max_size=8), st.text(max_size=12)),
)  # fmt: skip


@given(ADDRESSES)
def test_an_address_that_is_kept_names_one_mailbox(given_text: str) -> None:
    try:
        email = tidy_email(given_text)
    except InvalidRequest as refused:
        assert refused.param == "email"  # noqa: PT017 - most are refused
        return
    assert email.count("@") == 1
    assert not set(email) & (set(SPECIALS) - set("@.-"))
    message = EmailMessage()
    message["To"] = email
    assert [each.addr_spec for each in message["To"].addresses] == [email]
    assert getaddresses([email]) == [("", email)]
    assert smtplib.quoteaddr(email) == f"<{email}>"
    assert tidy_email(email) == email


@pytest.mark.parametrize(
    "email",
    [
        "o'neil+news@example.org",
        "a/b=c@xn--bcher-kva.example",
        "jürgen@müller.example",
        "用户@例子.公司",
    ],
)
def test_usual_addresses_are_kept(email: str) -> None:
    assert tidy_email(f" {email.upper()} ") == email


@each_of("sign", list(SPECIALS.replace(".", "").replace("-", "")))
def test_signs_with_a_meaning_are_refused(sign: str) -> None:
    for email in (f"ada{sign}eve@example.org", f"ada@example.org{sign}eve@example.org"):
        with pytest.raises(InvalidRequest):
            tidy_email(email)


@each_of(
    "email",
    ["a@b", "a@1.2.3.4", "a@[127.0.0.1]", '"a b"@c.org', "a..b@c.org", ".a@c.org", "a@-c.org",
     "a@c-.org", "a@c..org", "a@c.org.", f"{'a' * 65}@c.org", f"a@{'c' * 64}.org", "ａ@c.org",
     "a@ｃ.org", ""],
)  # fmt: skip
def test_other_forms_are_refused(email: str) -> None:
    with pytest.raises(InvalidRequest):
        tidy_email(email)
