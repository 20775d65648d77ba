"""Code that pages and docstrings cite is there: files, and functions as `module.function`."""

from __future__ import annotations

import pytest

from tests.repository.references import EVERY, dangling, is_there


@pytest.mark.parametrize(
    ("dotted", "found"),
    [
        ("commit.first_snapshot", True),
        ("tableformat.export.commit", True),
        ("cleanup.Cleaning.clean", True),
        ("committer.Leaving.paths", True),
        ("giving_up.kill", False),
        ("commit.no_such_function", False),
    ],
)
def test_a_cited_function_is_looked_up_in_its_module(dotted: str, *, found: bool) -> None:
    assert is_there(dotted) == found


def test_files_that_pages_cite_are_in_the_repository() -> None:
    """Harm prevented: after a move, a page sends its reader to a file that is gone."""
    cited = [*EVERY["files in pages"]()]

    assert len(cited) > 50
    assert dangling(cited) == []


def test_a_page_of_the_specification_cites_files_by_their_whole_path() -> None:
    """Harm prevented: `snapshot.py` may be any of three files."""
    cited = [*EVERY["files in the specification"]()]

    assert len(cited) > 10
    assert dangling(cited) == []


def test_functions_that_the_specification_cites_are_in_the_code() -> None:
    cited = [*EVERY["functions in the specification"]()]

    assert len(cited) > 20
    assert dangling(cited) == []


def test_files_that_docstrings_cite_are_in_the_repository() -> None:
    cited = [*EVERY["files in docstrings"]()]

    assert len(cited) > 100
    assert dangling(cited) == []


def test_pages_that_docstrings_cite_are_in_the_repository() -> None:
    cited = [*EVERY["pages in docstrings"]()]

    assert len(cited) > 20
    assert dangling(cited) == []


def test_functions_that_docstrings_of_the_product_cite_are_in_the_code() -> None:
    cited = [*EVERY["functions in docstrings"]()]

    assert len(cited) > 20
    assert dangling(cited) == []
