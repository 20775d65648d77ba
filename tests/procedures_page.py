"""The tables of docs/reference/procedures.md, made from what is declared.

`python -m tests.procedures_page` writes them into the page; the text around them is a person's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from spark_ext.procedures.declared import Procedure
from spark_ext.procedures.registry import PROCEDURES
from spark_ext.sql.typed import TYPED
from tests.repository.source_files import ROOT
from tests.typed_pages import call

__all__ = ["PAGE", "sections", "written"]

PAGE = ROOT / "docs" / "reference" / "procedures.md"
_BEGIN = "## "
# All typed statements have the same columns.
_FIRST = min(TYPED)


def sections() -> dict[str, str]:
    """Return what the page says of each procedure below its name, but for the examples."""
    return {name: "\n".join(_section(one)) for name, one in sorted(PROCEDURES.items())}


def written() -> dict[str, tuple[str, str]]:
    """Return what stands below each name: the tables, and the example."""
    found = {}
    for part in re.split(rf"^{_BEGIN}", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, _, text = part.partition("\n")
        example, tables = _divided(text)
        found[name] = (tables, example)
    return found


def _divided(text: str) -> tuple[str, str]:
    lines = text.strip("\n").split("\n")
    example = [line for line in lines if line.startswith("    ")]
    said = "\n".join(line for line in lines if not line.startswith("    "))
    return "\n".join(line[4:] for line in example), re.sub(r"\n{3,}", "\n\n", said).strip("\n")


def _section(one: Procedure) -> Iterator[str]:
    yield one.description
    if one.parameters:
        yield from ("", "| argument | type | default | |", "|---|---|---|---|")
    for parameter in one.parameters:
        default = "required" if parameter.default is None else f"`{parameter.default}`"
        yield f"| `{parameter.name}` | {parameter.type} | {default} | {_cell(parameter.comment)} |"
    if one.name in TYPED and one.name != _FIRST:
        yield from ("", f"It answers as [{_FIRST}](#{_FIRST}) does.")
        return
    yield from ("", "| answer | type | |", "|---|---|---|")
    for column in one.columns:
        yield f"| `{column.name}` | {column.type} | {_cell(column.comment)} |"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _page() -> str:
    before = PAGE.read_text(encoding="utf-8").partition(f"\n{_BEGIN}")[0]
    examples = {name: example for name, (_, example) in written().items()} | {
        name: call(typed, typed.examples[0]) for name, typed in TYPED.items()
    }
    parts = [before]
    for name, text in sections().items():
        shown = "\n".join(f"    {line}" for line in examples.get(name, "").splitlines())
        description, _, tables = text.partition("\n")
        parts.append(f"{_BEGIN}{name}\n\n{description}\n\n{shown}\n{tables}")
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(_page(), encoding="utf-8")
