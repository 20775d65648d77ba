"""docs/reference/table-settings.md says of each setting of a table what becomes of it."""

from __future__ import annotations

from tableformat.mergetree.table_settings import SETTINGS, SettingUse
from tests.repository.source_files import ROOT

PAGE = ROOT / "docs" / "reference" / "table-settings.md"
HEAD = "| settings | in a staging table | in a table over its files | why |\n|---|---|---|---|\n"


def row(use: SettingUse) -> str:
    """Return the row of the page for a kind of settings."""
    names = ", ".join(f"`{name}`" for name in sorted(SETTINGS) if SETTINGS[name] is use)
    staging, tasks = ("yes" if given else "no" for given in (use.staging, use.tasks))
    return f"| {names} | {staging} | {tasks} | {use.why} |"


def test_the_page_has_every_setting() -> None:
    """Who changes a setting can see what an export makes of it."""
    table = PAGE.read_text(encoding="utf-8").partition(HEAD)[2].partition("\n\n")[0]

    assert table.splitlines() == [row(use) for use in SettingUse]
