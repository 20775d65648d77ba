"""The table of docs/spec/model/results.md: what each configuration shows, and what TLC found.

`python -m tests.model --page` writes it. With one worker TLC walks through the states in the same
order each time, so states and depth are compared; seconds are not. Each row names a digest of what
was asked, so that a model that was changed since has no result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.model.checker import Finding
from tests.model.configurations import FOLDER, Configuration

__all__ = ["PAGE", "Result", "difference", "read_results", "result_of", "table", "with_results"]

PAGE: Final = FOLDER / "results.md"
_BEGIN: Final = "<!-- results: begin, written by `python -m tests.model --page` -->\n"
_END: Final = "<!-- results: end -->\n"
_HEAD: Final = (
    "| configuration | shows | finds | states | depth | seconds | of |\n"
    "|---|---|---|--:|--:|--:|---|\n"
)
_ROW: Final = re.compile(
    r"^\| `([\w-]+)` \| .* \| (\w+) \| ([\d,]+) \| (\d+) \| ([\d.]+) \| `(\w+)` \|$", re.MULTILINE
)
# Below this a tenth of a second is worth telling.
_FEW_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class Result:
    """What TLC found, and how far it went; `seconds` of one processor, rounded as shown.

    `of` is the digest of the configuration that was asked.
    """

    found: str
    states: int
    depth: int
    seconds: float
    of: str

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.found} after {self.states:,} states, depth {self.depth}"


def result_of(finding: Finding, configuration: Configuration) -> Result:
    """Return the result of a configuration as the page shows it."""
    digits = 1 if finding.seconds < _FEW_SECONDS else None
    return Result(
        finding.found,
        finding.states,
        finding.depth,
        round(finding.seconds, digits),
        configuration.digest(),
    )


def table(configurations: Iterable[Configuration], results: Mapping[str, Result]) -> str:
    """Return the table of the configurations that have a result, in their order."""
    rows = [
        f"| `{c.name}` | {c.shows} | {r.found} | {r.states:,} | {r.depth} | {r.seconds:g}"
        f" | `{r.of}` |\n"
        for c in configurations
        if (r := results.get(c.name)) is not None
    ]
    return "".join((_HEAD, *rows))


def read_results(page: str) -> dict[str, Result]:
    """Return what a page tells of each configuration."""
    return {
        name: Result(found, int(states.replace(",", "")), int(depth), float(seconds), of)
        for name, found, states, depth, seconds, of in _ROW.findall(page)
    }


def with_results(
    page: str, configurations: Iterable[Configuration], results: Mapping[str, Result]
) -> str:
    """Return the page with another table in its place.

    Raises:
        ValueError: the page does not say where the table is.
    """
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        message = f"Cannot write the table of results: the page lacks {_BEGIN}or {_END}"
        raise ValueError(message)
    return "".join((before, begin, table(configurations, results), end, after))


def difference(finding: Finding, configuration: Configuration, page: Path) -> str:
    """Say in what a result differs from what is expected and from the page; '' when in nothing."""
    found = result_of(finding, configuration)
    if found.found != configuration.finds:
        return f"expected {configuration.finds}, found {found}"
    recorded = read_results(page.read_text(encoding="utf-8")).get(configuration.name)
    if recorded is None or recorded != replace(found, seconds=recorded.seconds):
        return (
            f"{page.name} tells {recorded}, found {found}; `python -m tests.model --page` writes it"
        )
    return ""
