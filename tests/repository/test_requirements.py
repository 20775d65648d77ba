"""No requirement is forgotten: each has an owner, and what is listed as proved has its test."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from conformance.requirements import OWNERS, Planned, load_requirements
from tableformat.errors import InternalError
from tests.repository.source_files import ROOT

ENTRY = '[[requirement]]\nid = "N-01"\ntitle = "t"\nreading = "r"\n'


def test_every_requirement_of_the_documents_is_there_once() -> None:
    requirements = load_requirements().all

    kinds = Counter(item.id.partition(".")[0].partition("-")[0] for item in requirements)
    assert kinds == {"RQ": 91, "N": 46, "P": 78, "X": 5}
    assert len({item.id for item in requirements}) == 220


def test_every_requirement_says_how_it_is_read() -> None:
    unread = [
        item.id for item in load_requirements().all if not item.reading.endswith((".", "?", "…."))
    ]

    assert unread == []


def test_a_done_part_of_the_work_has_nothing_planned() -> None:
    requirements = load_requirements()
    planned = [
        (item.id, owner)
        for item in requirements.all
        for owner, share in item.owners
        if owner in requirements.done and share == Planned()
    ]

    assert planned == []


@pytest.mark.representative
def test_every_named_test_exists() -> None:
    named = load_requirements().named_tests()

    assert sorted(test for test in named if not exists(test)) == []


@pytest.mark.representative
def test_no_named_test_is_left_to_make_soak() -> None:
    """Harm prevented: a whole run that ends with what did not run, and could have begun with it."""
    named = load_requirements().named_tests()

    assert sorted(test for test in named if is_left_to_soak(test)) == []


def is_left_to_soak(test: str) -> bool:
    """Tell whether `path::name`, a case of it, or all of its file is marked `soak`.

    The mark may be at the test, or in what its decorators and fixtures name in the same file. A
    mark of another file is found at the end of a whole run.
    """
    path, name = test.split("::")[:2]
    defined: dict[str, list[ast.stmt]] = {}
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        for of in _names_of(node):
            defined.setdefault(of, []).append(node)
    names, seen = [name, "pytestmark"], set[str]()
    while names:
        if (one := names.pop()) in seen:
            continue
        seen.add(one)
        for node in defined.get(one, ()):
            parts: list[ast.AST] = [node]
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and (
                one == name or "fixture" in "".join(map(ast.unparse, node.decorator_list))
            ):
                # What they do marks no test.
                parts = [*node.decorator_list]
                if isinstance(node, ast.FunctionDef):
                    arguments = node.args
                    names += [a.arg for a in (*arguments.args, *arguments.kwonlyargs)]
            if any("mark.soak" in ast.unparse(part) for part in parts):
                return True
            names += [n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)]
    return False


def _names_of(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a file defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [ast.unparse(target) for target in targets]
        case ast.AnnAssign(target=target):
            return [ast.unparse(target)]
        case _:
            return []


@pytest.mark.parametrize(
    ("path", "name", "left"),
    [
        ("repository/test_requirements.py", "test_every_named_test_exists", False),
        ("tableformat/operations/test_histories.py", "test_two_at_once_have_a_serial_order", False),
        ("spark_ext/sql/test_secrets_of_sessions.py", "test_what_the_user_shows_is_found", True),
        ("integration/test_beside_trino.py", "altered", True),
        ("faults/test_server_trouble_in_snapshot.py", "test_a_lost_response_to_the_clone", False),
    ],
)  # fmt: skip
def test_requirements_left_to_soak_are_reported(path: str, name: str, left: bool) -> None:  # noqa: FBT001 - expected value
    assert is_left_to_soak(f"tests/{path}::{name}") is left


@pytest.mark.parametrize(
    ("how", "test"),
    [
        (
            "there",
            "spark_ext/procedures/test_optimizing.py::test_files_become_one_in_the_order_of_the_source",
        ),
        (
            "name",
            "faults/test_statements_and_lies.py::test_a_lie_about_any_commit_and_the_same_statement_again",
        ),
        (
            "call",
            "tableformat/operations/test_columns_meanwhile.py::test_what_does_not_hang_on_the_columns_is_done",
        ),
        (
            "fixture",
            "faults/test_server_trouble_in_snapshot.py::test_a_server_that_restarts_while_it_freezes",
        ),
    ],
)
def test_cases_left_to_soak_are_reported_wherever_they_are_written(how: str, test: str) -> None:
    assert is_left_to_soak(f"tests/{test}"), how


def exists(test: str) -> bool:
    """Tell whether `path::name` or `path::Class::name` is a test function of that file."""
    path, *names = test.split("::")
    file = ROOT / path
    if not names or not names[-1].startswith("test_") or not file.is_file():
        return False
    body: list[ast.stmt] = ast.parse(file.read_text(encoding="utf-8")).body
    for name in names:
        found = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        ]
        if not found:
            return False
        body = found[0].body
    return True


@pytest.mark.parametrize(
    ("test", "there"),
    [
        ("tests/repository/test_requirements.py::test_every_named_test_exists", True),
        ("tests/repository/test_requirements.py::test_of_another_name", False),
        ("tests/repository/test_requirements.py::exists", False),
        ("tests/repository/test_requirements.py", False),
        ("tests/repository/test_nothing.py::test_every_named_test_exists", False),
    ],
)
def test_a_named_test_is_looked_up(test: str, there: bool) -> None:  # noqa: FBT001 - expected value
    assert exists(test) is there


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("done = []\n" + ENTRY, "N-01 has no owner"),
        ("done = []\n" + ENTRY + 'owners.Z = "planned"', "N-01 has an unknown owner"),
        ("done = []\n" + ENTRY + 'owners.A = "done"', "N-01 has the share 'done'"),
        ("done = []\n" + ENTRY + "owners.A = {test = []}", "N-01 has the share"),
        ("done = []\n" + ENTRY + 'owners.A = {deviation = ""}', "N-01 has the share"),
        ("done = []\n" + 2 * (ENTRY + 'owners.A = "planned"\n'), "more than once"),
        ("done = ['Z']\n" + ENTRY + 'owners.A = "planned"', "done = .* unknown owner"),
        (ENTRY + 'owners.A = "planned"', "done is not a list"),
        ("done = []\n", "requirement is not a list"),
        ("done = []\nrequirement = [1]", "1 is not a table"),
    ],
)
def test_a_list_that_does_not_fit_is_refused(text: str, message: str) -> None:
    """A list that is read half is a list that proves half."""
    with pytest.raises(InternalError, match=message):
        load_requirements(text)


def test_the_owners_are_the_parts_of_the_work() -> None:
    owners = {owner for item in load_requirements().all for owner, _ in item.owners}

    assert owners == set(OWNERS)
