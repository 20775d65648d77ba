"""docs/reference/access.md says what each statement asks for, in the words of the code."""

from __future__ import annotations

import re

from spark_ext.access.check import POLICY
from tableformat.access import REQUIRED, Act, Of, Privilege, Required, includes, parse_policy
from tests.repository.source_files import ROOT

PAGE = (ROOT / "docs" / "reference" / "access.md").read_text(encoding="utf-8")


def shown(required: Required) -> str:
    privilege, on = required
    return f"`{privilege}` on {on.value if isinstance(on, Of) else f'`{on}`'}"


def table(header: str) -> list[tuple[str, str]]:
    """Return the rows of the table with a header of two columns."""
    _, _, rest = PAGE.partition(f"{header}\n|---|---|\n")
    rows = rest.split("\n\n", 1)[0].splitlines()
    return [(row.split(" | ")[0].strip("| "), row.split(" | ")[1].strip("| ")) for row in rows]


def test_the_page_has_what_every_statement_and_procedure_asks_for() -> None:
    # A bar inside a table's cell stands behind a backslash.
    assert [
        (name.replace("\\|", "|"), asks) for name, asks in table("| statement | asks for |")
    ] == [(f"`{act}`", ", ".join(map(shown, required))) for act, required in REQUIRED.items()]


def test_every_statement_asks_for_something() -> None:
    """Harm prevented: a statement that everybody may give."""
    assert REQUIRED.keys() == set(Act)
    assert [act for act, required in REQUIRED.items() if not required] == []


def test_the_page_has_what_privileges_include() -> None:
    assert dict(table("| privilege | includes |")) == {
        f"`{one}`": ", ".join(f"`{p}`" for p in Privilege if p is not one and includes(one, p))
        or "everything"
        for one in Privilege
        if one is not Privilege.ALL and any(p is not one and includes(one, p) for p in Privilege)
    }
    assert {p for p in Privilege if includes(Privilege.ALL, p)} == set(Privilege)
    assert [f"`{p}`" for p in Privilege if f"`{p}`" not in PAGE] == []


def test_the_policy_of_the_page_is_one() -> None:
    (example,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)

    policy = parse_policy(example)

    assert policy.roles
    assert policy.grants
    assert POLICY in PAGE
