"""Generate ``docs/reference/rights.md`` from the table of rights."""

from __future__ import annotations

import sys

from causerie.hosted.accounts.people import RIGHTS, Extent, RoleColumn


def rights_page() -> str:
    """Return the whole page."""
    marks = {Extent.ALL: "yes", Extent.OWN: "own", Extent.NO: ""}
    lines = [
        "# Rights",
        "",
        "Written from `causerie/hosted/accounts/rights.toml`, which is what the service asks "
        "(`make docs`); the tests walk every field.",
        "",
        "A person has the rights of their role in a project. An operator of the whole service has "
        "those of operators in addition, in every project. *own* means what one made oneself. "
        "Whoever "
        "may not see a project is told that it does not exist. Nobody sees a secret again: of "
        "passwords, keys, links and sessions only digests are kept.",
        "",
        "A management key acts in its own project and cannot infer; an inference key can do "
        "nothing of this. A key of `console.operator_keys` has the rights of operators.",
        "",
        "An operator, or an operator key of the database, can be limited to some of the rights "
        "`read`, `people`, `configuration` and `usage`. Operator keys with all rights or with "
        "`people` have those of the column *operator key* in addition; they derive from nobody.",
        "",
        "Keys and links carry the person they derive from: whoever created them, also through "
        "other keys, or whom they were transferred to. The person's present role decides:",
        "",
        "- A management key may do what its column allows *and* its person may do now.",
        "- An inference key works while its person may create keys.",
        "- An invitation or password link works while its person may create such a link.",
        "- A disabled account has the rights of an outsider: its keys and links stop, and its "
        "sessions end.",
        "- Whoever leaves a project or is removed loses its keys and invitations for good; an "
        "invitation from before lets them in no more. Admins may transfer the keys.",
        "",
        "Keys and links that were created at the command line or with an operator key derive from "
        "nobody and work until they are disabled.",
        "",
        f"| action | | {' | '.join(RoleColumn)} |",
        f"|---|---|{'---|' * len(RoleColumn)}",
    ]
    for action, row in RIGHTS.items():
        cells = " | ".join(marks[row[part]] for part in RoleColumn)
        lines.append(f"| `{action}` | {action.words} | {cells} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(rights_page())
