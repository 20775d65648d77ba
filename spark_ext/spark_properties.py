"""Spark's files of settings (`spark-defaults.conf`): read, and written for Spark to read the same.

They are Java's property files (java.util.Properties, `load`), of which Spark takes the names that
begin with `spark.`, and values without the blanks around them. One that is written is readable by
its owner only: settings may be secret, and a command line is read by everybody on the host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tableformat.errors import UsageError

__all__ = ["parse_properties", "read_defaults", "render_properties", "write_properties"]

_OURS: Final = "spark."
_BLANKS: Final = " \t\f"
_LINES: Final = re.compile(r"\r\n|\r|\n")
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*")
_BETWEEN: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPED: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN: Final = {text: "\\" + letter for letter, text in _CONTROLS.items()}
_OF_NAMES: Final = frozenset("\\=:#! ")
_OF_VALUES: Final = frozenset("\\ ")


def read_defaults(directory: Path) -> dict[str, str]:
    """Return the settings of a configuration directory of Spark's; none where it has no such file.

    Args:
        directory: `SPARK_CONF_DIR`, or `conf` below `SPARK_HOME`.

    Raises:
        UsageError: the file cannot be read.
    """
    file = directory / "spark-defaults.conf"
    try:
        text = file.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return {}
    except OSError as error:
        message = f"Cannot read Spark's settings {file}: {error.strerror}. Check its rights."
        raise UsageError(message) from error
    found = parse_properties(text).items()
    return {name: value.strip() for name, value in found if name.startswith(_OURS)}


def write_properties(file: Path, settings: Mapping[str, str]) -> None:
    """Write a file that only its owner can open.

    Args:
        file: must not be there.
        settings: by name.

    Raises:
        OSError: it cannot be made.
    """
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as opened:
        opened.write(render_properties(settings))


def parse_properties(text: str) -> dict[str, str]:
    """Return what stands in a property file; of a name that stands there twice, the last."""
    found = {}
    for line in _logical_lines(text):
        name = _KEY.match(line)
        end = name.end() if name else 0
        between = _BETWEEN.match(line, end)
        found[_unescaped(line[:end])] = _unescaped(line[between.end() if between else end :])
    return found


def render_properties(settings: Mapping[str, str]) -> str:
    """Return settings as the text of a property file, in order."""
    return "".join(
        f"{_escaped(name, _OF_NAMES)}={_escaped(value, _OF_VALUES)}\n"
        for name, value in settings.items()
    )


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines that say something, each joined with those that continue it."""
    held = ""
    for natural in _LINES.split(text):
        line = natural.lstrip(_BLANKS)
        if not held and (not line or line[0] in "#!"):
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        held += line.removesuffix("\\") if goes_on else line
        if not goes_on:
            yield held
            held = ""
    if held:
        yield held


def _unescaped(text: str) -> str:
    def meant(escaped: re.Match[str]) -> str:
        letters = escaped[1]
        if len(letters) > 1:
            return chr(int(letters[1:], 16))
        return _CONTROLS.get(letters, letters)

    # Java's text is UTF-16, in which a character may be two escapes.
    said = _ESCAPED.sub(meant, text)
    return said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escaped(text: str, marked: frozenset[str]) -> str:
    return "".join(_WRITTEN.get(c, f"\\{c}" if c in marked else c) for c in text)
