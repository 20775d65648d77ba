"""What the model checker is asked: docs/spec/model/*.toml, read and written as TLC's own form."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["FOLDER", "OK", "Configuration", "modules", "read_configurations"]

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "spec" / "model"
OK: Final = "ok"

_DIGITS: Final = 8
_OTHERS: Final = re.compile(r"^EXTENDS (.*)$|\bINSTANCE (\w+)", re.MULTILINE)
_KNOWN: Final = {"shows", "finds", "test", "only", "also", "ends", "set"}


@dataclass(frozen=True, slots=True)
class Configuration:
    """One question: a module, the values of its constants, what is checked and what is found.

    `finds` is `OK`, or the one invariant that must be violated. `ends` asks that every behaviour
    ends, too. `in_test`: also asked by `make test`. `behaviours` is the formula of all runs.
    """

    name: str
    module: str
    shows: str
    finds: str
    constants: Mapping[str, Any]
    invariants: tuple[str, ...]
    ends: bool
    in_test: bool
    behaviours: str = "Spec"

    def digest(self) -> str:
        """Return a short digest of all that TLC reads of it: what it finds is found in this."""
        read = [self.text(), *(_module(name) for name in sorted(modules(self.module)))]
        return hashlib.sha256("\0".join(read).encode()).hexdigest()[:_DIGITS]

    def text(self) -> str:
        """Return the configuration as TLC reads it."""
        lines = [f"SPECIFICATION {'Fair' if self.ends else self.behaviours}"]
        lines += [f"INVARIANT {invariant}" for invariant in self.invariants]
        lines += ["PROPERTY Ends"] if self.ends else []
        lines.append("CONSTANTS")
        # The one constant whose value is an operator of the module.
        lines += [
            f"  Jobs <- {value}" if name == "Jobs" else f"  {name} = {_written(value)}"
            for name, value in self.constants.items()
        ]
        return "\n".join((*lines, ""))


def read_configurations(folder: Path = FOLDER) -> tuple[Configuration, ...]:
    """Return all configurations, module by module, in the order of the files.

    Raises:
        ValueError: a configuration names a constant or a member that is not there.
    """
    return tuple(c for file in sorted(folder.glob("*.toml")) for c in _read(file))


def _read(file: Path) -> Iterator[Configuration]:
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    for name, one in document["configurations"].items():
        changed = one.get("set", {})
        if unknown := [*(set(one) - _KNOWN), *(set(changed) - set(document["constants"]))]:
            message = f"Cannot read {name} of {file.name}: it has no {', '.join(sorted(unknown))}."
            raise ValueError(message)
        finds = one["finds"]
        usual = document["invariants"]["always"] if finds == OK else [finds]
        yield Configuration(
            name=name,
            module=file.stem,
            shows=one["shows"],
            finds=finds,
            constants={**document["constants"], **changed},
            invariants=(*one.get("only", usual), *one.get("also", ())),
            ends=one.get("ends", False),
            in_test=one.get("test", False),
            behaviours=document.get("specification", "Spec"),
        )


def _written(value: object) -> str:
    """Return a value in TLA+."""
    match value:
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case str():
            return f'"{value}"'
        case list():
            return f"{{{', '.join(map(_written, value))}}}"
        case _:
            message = f"Cannot write {value!r} in TLA+: only booleans, numbers, texts and sets."
            raise ValueError(message)


def _module(name: str) -> str:
    return (FOLDER / f"{name}.tla").read_text(encoding="utf-8")


def modules(name: str) -> set[str]:
    """Return the name of a module and of all of ours that it is made of."""
    found = {name}
    for extended, instance in _OTHERS.findall(_module(name)):
        for other in (extended or instance).replace(",", " ").split():
            if (FOLDER / f"{other}.tla").exists():
                found |= modules(other)
    return found
