"""The model by hand: `python -m tests.model [name ...]` asks TLC every configuration, or these.

Prints one line for each, and the trace where the answer is not the one that was expected;
`--trace` prints it always. `--test` asks those that `make test` asks.
"""

from __future__ import annotations

import argparse
import sys

from tests.model.checker import CannotCheckError, check
from tests.model.configurations import Configuration, read_configurations

__all__: list[str] = []


def main() -> int:
    """Do what was asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.model")
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--test", action="store_true")
    arguments = parser.parse_args()
    everything = {c.name: c for c in read_configurations()}
    if unknown := [name for name in arguments.names if name not in everything]:
        parser.error(f"there is no configuration {', '.join(unknown)}")
    asked = [everything[name] for name in arguments.names or everything]
    if arguments.test:
        asked = [c for c in asked if c.in_test]
    wrong = [c.name for c in asked if not _ask(c, trace=arguments.trace)]
    sys.stdout.write(f"{len(asked) - len(wrong)} passed, {len(wrong)} failed\n")
    return 1 if wrong else 0


def _ask(configuration: Configuration, *, trace: bool) -> bool:
    try:
        found = check(configuration)
    except CannotCheckError as error:
        sys.stdout.write(f"FAIL  {error}\n")
        return False
    right = found.found == configuration.finds
    sys.stdout.write(
        f"{'pass' if right else 'FAIL'}  {configuration.name:22} {found.found:14} "
        f"{found.states:>9} states  depth {found.depth:>2}  {found.seconds:6.1f} s  "
        f"{configuration.shows}\n"
    )
    if not right:
        sys.stdout.write(f"      expected: {configuration.finds}\n")
    if trace or not right:
        sys.stdout.write(found.trace)
    sys.stdout.flush()
    return right


if __name__ == "__main__":
    sys.exit(main())
