"""Compares docs/reference/errors/*.md with the messages of the command line.

A section of these pages is one message: its title says what is wrong, the quotation is the message
up to its remedy, and the next line has the remedy and the exit code. More text may follow.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path

from spark_ext.cli.output import TextOutput
from tableformat.export.outcome import Outcome, Status
from tests.repository.source_files import ROOT
from tests.wrong.places import Places

__all__ = ["PAGES", "Refusal", "refusal_in", "refusal_of", "rows"]

PAGES = ROOT / "docs" / "reference" / "errors"
_SECTION = re.compile(
    r"(?P<title>.+)\n\n> (?P<message>.+)\n\n(?:\*\*Remedy:\*\* (?P<remedy>.+) )?"
    r"\*Exit (?P<exit>\d+)(?:, ClickHouse (?P<code>[\d ]+))?\.\*\n"
)
_PLACES = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"store/[0-9a-f]{3}/"), "store/"),
    (re.compile(r"(?<=`)[0-9a-f]{8}_\d+_\w+_[0-9a-f]{8}_\d+(?=`)"), "STAGED"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "HASH"),
    (re.compile(r"\b\d{15,}\b"), "NUMBER"),
    (re.compile(r"\(\d+\) since [0-9-]+ [0-9:]+"), "(PID) since TIME"),
    (re.compile(r"archived since [0-9-]+ [0-9:]+ UTC"), "archived since TIME"),
    (re.compile(r"host \S+: no such"), "host HOST: no such"),
    (re.compile(r"for \d+ s\b"), "for SECONDS s"),
    (re.compile(r"port=\d+"), "port=PORT"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"on port \d+"), "on port PORT"),
    (re.compile(r"NUMBER-0-0-[0-9a-f]{12}"), "NUMBER-0-0-ATTEMPT"),
    (re.compile(r"/[0-9a-z]{26}-NUMBER"), "/KEY-NUMBER"),
)


@dataclass(frozen=True)
class Refusal:
    """The refusal of a run: the text, the exit code, ClickHouse's code."""

    printed: str
    exit: str
    code: str


def rows() -> dict[str, Refusal]:
    """Return the messages of the pages by the titles of their sections."""
    found = {}
    for page in sorted(PAGES.glob("*.md")):
        for text in re.split(r"^### ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            section = _SECTION.match(text)
            assert section, f"{page.name}: {text}"
            assert section["title"] not in found, section["title"]
            message = " ".join(filter(None, (section["message"], section["remedy"])))
            found[section["title"]] = Refusal(
                message.replace("<br>", "\n"), section["exit"], section["code"] or ""
            )
    return found


def refusal_of(places: Places, words: tuple[str, ...]) -> Refusal:
    """Run a command for programs, and return what it says to people."""
    return refusal_in(places.run(*words, "--json"), places.root)


def refusal_in(ran: tuple[int, str, str], root: Path) -> Refusal:
    """Return what a command says to people, from what it printed for programs.

    Args:
        ran: its exit code, and both outputs.
        root: the directory that the pages name `DIR`.
    """
    code, out, err = ran
    printed, codes = [], []
    for line in out.splitlines():
        outcome = json.loads(line)
        if "summary" in outcome:
            continue
        if outcome.get("status") not in ("committed", "already_exported"):
            text = io.StringIO()
            outcome["status"] = Status(outcome["status"])
            TextOutput(text, text).finished(Outcome(**outcome))
            printed.append(text.getvalue().strip())
            codes.append(outcome["code"])
    # Click ends the line on which a terminal shows ^C.
    for line in filter(None, err.splitlines()):
        last = json.loads(line)
        assert last["next"] is None or last["next"].startswith("mergeberg ")
        if "error" in last:
            printed.append(last["error"])
            codes.append(last["code"])
    assert "Traceback" not in out + err
    shown = "\n".join(printed).replace(str(root), "DIR")
    for pattern, name in _PLACES:
        shown = pattern.sub(name, shown)
    return Refusal(shown, str(code), " ".join(sorted({str(c) for c in codes if c})))
