"""The model by hand: `python -m tests.model [name ...]` asks TLC every configuration, or these.

Prints one line for each, and the trace where the result is not the one that was expected;
`--trace` prints it always. `--test` asks those that `make test` asks. `--page` writes what was
found into the page instead of comparing it with the page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.model.checker import CannotCheckError, Finding, check
from tests.model.configurations import Configuration, read_configurations
from tests.model.results import PAGE, difference, read_results, result_of, with_results

__all__: list[str] = []


def main(words: Sequence[str] | None = None) -> int:
    """Do what the words ask for, by default those of the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.model")
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--trace", action="store_true", help="print the run that was found, always")
    parser.add_argument("--test", action="store_true", help="only those that `make test` asks")
    parser.add_argument("--page", action="store_true", help=f"write what is found into {PAGE.name}")
    arguments = parser.parse_args(words)
    everything = {c.name: c for c in read_configurations()}
    if unknown := [name for name in arguments.names if name not in everything]:
        parser.error(f"there is no configuration {', '.join(unknown)}")
    asked = [everything[name] for name in arguments.names or everything]
    if arguments.test:
        asked = [c for c in asked if c.in_test]
    wrong = [c for c in asked if not _ask(c, trace=arguments.trace, page=arguments.page)]
    sys.stdout.write(f"{len(asked) - len(wrong)} passed, {len(wrong)} failed\n")
    return 1 if wrong else 0


def _ask(configuration: Configuration, *, trace: bool, page: bool) -> bool:
    try:
        finding = check(configuration)
    except CannotCheckError as error:
        sys.stdout.write(f"FAIL  {error}\n")
        sys.stdout.flush()
        return False
    if page and finding.found == configuration.finds:
        _write(configuration, finding)
    wrong = difference(finding, configuration, PAGE)
    sys.stdout.write(
        f"{'FAIL' if wrong else 'pass'}  {configuration.name:22} {finding.found:14} "
        f"{finding.states:>9} states  depth {finding.depth:>2}  {finding.seconds:6.1f} s  "
        f"{configuration.shows}\n"
    )
    if wrong:
        sys.stdout.write(f"      {wrong}\n")
    if trace or finding.found != configuration.finds:
        sys.stdout.write(finding.trace)
    sys.stdout.flush()
    return not wrong


def _write(configuration: Configuration, finding: Finding) -> None:
    page = PAGE.read_text(encoding="utf-8")
    results = read_results(page) | {configuration.name: result_of(finding, configuration)}
    PAGE.write_text(with_results(page, read_configurations(), results), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
