"""The tables of docs/reference/procedures.md and its folder, made from what is declared.

`python -m tests.support.procedures_page` writes them into the pages; the text around them is a
person's. A new procedure gets its title by hand, on the page that it belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from spark_ext.procedures.declarations import Procedure
from spark_ext.sql.dispatch import PROCEDURES
from spark_ext.sql.statements import TYPED
from tests.support.typed_pages import REFERENCE, call

__all__ = ["INDEX", "index", "sections", "written"]

INDEX = REFERENCE / "procedures.md"
_FOLDER = REFERENCE / "procedures"
_BEGIN = "## "
_STATEMENTS = {
    "attach_partition": "detach",
    "clear_column": "update",
    "clear_index": "clear-index",
    "delete_rows": "update",
    "detach_partition": "detach",
    "drop_detached_partition": "detach",
    "drop_partition": "drop",
    "fetch_partition": "fetch",
    "forget_partition": "forget",
    "freeze": "freeze",
    "move_partition": "move",
    "optimize": "optimize",
    "replace_partition": "attach-from",
    "unfreeze": "freeze",
    "update_rows": "update",
}
"""The page of the statement that a procedure is."""
# All typed statements have the same columns.
_FIRST = min(TYPED)


def sections() -> dict[str, str]:
    """Return what its page says of each procedure below its name, but for the examples."""
    on = {name: page.name for page in _pages() for name in _on(page)}
    near = {name: "" if page == on[_FIRST] else on[_FIRST] for name, page in on.items()}
    return {
        name: "\n".join(_section(one, near.get(name, "")))
        for name, one in sorted(PROCEDURES.items())
    }


def index() -> str:
    """Return the table of all procedures."""
    on = {name: page.name for page in _pages() for name in _on(page)}
    rows = [
        f"| [`{name}`](procedures/{on.get(name)}#{name}) | {_cell(one.description)} |"
        for name, one in sorted(PROCEDURES.items())
    ]
    return "\n".join(["| procedure | what it does |", "|---|---|", *rows])


def written() -> dict[str, tuple[str, str]]:
    """Return what stands below each name: the tables, and the example."""
    found: dict[str, tuple[str, str]] = {}
    for page in _pages():
        for name, text in _on(page).items():
            assert name not in found, f"{name} is on two pages"
            found[name] = _divided(text)
    return found


def _pages() -> list[Path]:
    return sorted(_FOLDER.glob("*.md"))


def _on(page: Path) -> dict[str, str]:
    """Return what a page says below each of its titles."""
    parts = re.split(rf"^{_BEGIN}", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {name: text for part in parts for name, _, text in [part.partition("\n")]}


def _divided(text: str) -> tuple[str, str]:
    """Return the tables, with the sentences around them, and the example."""
    lines = text.strip("\n").split("\n")
    example = [line for line in lines if line.startswith("    ")]
    rest = "\n".join(line for line in lines if not line.startswith("    "))
    return re.sub(r"\n{3,}", "\n\n", rest).strip("\n"), "\n".join(line[4:] for line in example)


def _section(one: Procedure, page: str) -> Iterator[str]:
    page_of_statement = _STATEMENTS.get(one.name)
    link = f" [Statement](../statements/{page_of_statement}.md)" if page_of_statement else ""
    yield f"{one.description}{link}"
    if one.parameters:
        yield from ("", "| parameter | type | default | |", "|---|---|---|---|")
    for parameter in one.parameters:
        default = "required" if parameter.default is None else f"`{parameter.default}`"
        yield f"| `{parameter.name}` | {parameter.type} | {default} | {_cell(parameter.comment)} |"
    if one.name in TYPED and one.name != _FIRST:
        yield from ("", f"The result has the columns of [{_FIRST}]({page}#{_FIRST}).")
        return
    yield from ("", "| column of the result | type | |", "|---|---|---|")
    for column in one.columns:
        yield f"| `{column.name}` | {column.type} | {_cell(column.comment)} |"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _page(page: Path) -> str:
    before = page.read_text(encoding="utf-8").partition(f"\n{_BEGIN}")[0]
    examples = {name: example for name, (_, example) in written().items()} | {
        name: call(typed, typed.examples[0]) for name, typed in TYPED.items()
    }
    every = sections()
    parts = [before]
    for name in _on(page):
        shown = "\n".join(f"    {line}" for line in examples.get(name, "").splitlines())
        description, _, tables = every[name].partition("\n")
        parts.append(f"{_BEGIN}{name}\n\n{description}\n\n{shown}\n{tables}")
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


if __name__ == "__main__":
    for one in _pages():
        one.write_text(_page(one), encoding="utf-8")
    text = INDEX.read_text(encoding="utf-8")
    (table,) = re.findall(r"(?m)(?:^\|.*\n)+", text)
    INDEX.write_text(text.replace(table, index() + "\n"), encoding="utf-8")
