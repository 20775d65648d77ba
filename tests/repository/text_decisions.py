"""Finds decisions that the product takes by reading its own texts: messages, statements, errors.

A message is for people, and changes when it gets better. The value next to it decides: the
kind of a statement, the cause of an outcome, the advice of an error. `REMAINING` lists the places
that may read a text, with the reason of each.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tests.repository.source_files import source_files

__all__ = ["PRODUCT", "REMAINING", "TWICE", "TextDecision", "in_tree", "text_decisions"]

PRODUCT: Final = ("tableformat", "catalog", "spark_ext", "conformance")

_TEXTS: Final = frozenset({"message", "last_error", "statement", "change", "changed_by", "why"})
"""What attributes, parameters and variables with texts for people are called."""
_READ_BY: Final = frozenset(
    (
        *("startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition"),
        *("split", "rsplit", "splitlines", "find", "rfind", "index", "rindex", "count", "replace"),
    )
)
"""Methods of a text that tell one from another, or take one apart."""
_PATTERNS: Final = frozenset(
    {"match", "search", "fullmatch", "findall", "finditer", "sub", "subn", "split"}
)


_Places = Mapping[tuple[str, str], str]
"""Files and functions, with the reason why each may read a text."""
# `str(error)` is the text of a library's error, where that is caught.
_OF_OTHERS: Final[_Places] = {
    (
        "catalog/clickhouse/table_description.py",
        "written_table",
    ): "ClickHouse's definition of a view",
    ("catalog/clickhouse/parts.py", "_first_line"): "ClickHouse's text is cut to a line",
    ("catalog/clickhouse/server/rows.py", "_unreadable"): "chDB's text begins with its name",
    ("catalog/clickhouse/server/settings.py", "_unreadable"): "the XML parser's place",
    ("catalog/clickhouse/session.py", "_create"): "ClickHouse's definition of a table",
    ("catalog/iceberg/table.py", "first_line"): "a library's text is cut to a line",
    ("catalog/sources.py", "check_pass_on"): "the user's statement is cut to a line",
    ("catalog/storages/gs/google_login.py", "__call__"): "a library's text is cut to a line",
    ("catalog/storages/over_http/requests.py", "error_text"): "a library's text is cut to a line",
    ("catalog/storages/s3/requests.py", "error_text"): "a library's text is cut to a line",
    ("catalog/storages/s3/requests.py", "_other_advice"): "OpenSSL has no code for it",
    ("spark_ext/cli/commands/config.py", "_content"): "the TOML parser's place",
    ("spark_ext/engine/jobs.py", "spark_reason"): "Spark's text is cut to a line",
}
_OF_EARLIER_RELEASES: Final[_Places] = {
    ("tableformat/ledger_text.py", "_kind_before"): "rows up to format 11 have the text alone",
}
_LOOKS: Final[_Places] = {
    ("catalog/clickhouse/session.py", "_renamed"): "the stand-in's name is replaced",
    ("spark_ext/actions/export.py", "_next"): "a note has the reason alone",
    ("spark_ext/actions/exports.py", "statement"): "an error is cut to a line",
    ("spark_ext/cli/commands/exports.py", "_shown_error"): "an error is cut to a line",
    ("spark_ext/cli/exports_screen.py", "_why"): "an error is cut to a line",
    ("spark_ext/cli/output.py", "finished"): "a word does not stand twice in a line",
    ("spark_ext/cli/commands/statements.py", "_forecast"): "a sentence has no colon before it",
    ("tableformat/errors.py", "reason_of"): "the reason comes first in a list",
    ("tableformat/errors.py", "reason_first"): "the reason comes first in a list",
    ("tableformat/export/watermark.py", "why_not"): "an error is cut to a line",
}
_WHOLE: Final[_Places] = {
    ("tableformat/operations/move.py", "_begun"): "the same statement, given again, is the same",
}
REMAINING: Final[Mapping[str, _Places]] = {
    "texts of others that are read": _OF_OTHERS,
    "texts of earlier releases that are read": _OF_EARLIER_RELEASES,
    "texts that are cut or joined for a line": _LOOKS,
    "texts that are compared as a whole": _WHOLE,
}
"""The places that may read a text once, by the kind of the text or of its use."""
TWICE: Final = frozenset(
    {
        ("catalog/clickhouse/session.py", "_create"),
        ("spark_ext/cli/output.py", "finished"),
    }
)
"""Those of them that read two."""


class TextDecision(NamedTuple):
    """Where a text is read: the file, the function, and the expression."""

    path: str
    function: str
    expression: str


def text_decisions() -> Iterator[TextDecision]:
    """Yield every place of the product that reads a text of its own."""
    for file in source_files(*PRODUCT):
        yield from in_tree(file.path, file.tree)


def in_tree(path: str, tree: ast.Module) -> Iterator[TextDecision]:
    """Yield the places of one module."""
    yield from _within(path, "", tree, frozenset())


def _within(
    path: str, function: str, node: ast.AST, errors: frozenset[str]
) -> Iterator[TextDecision]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node.name
    if isinstance(node, ast.ExceptHandler) and node.name:
        errors |= {node.name}
    if _reads(node, errors):
        yield TextDecision(path, function, ast.unparse(node))
    for child in ast.iter_child_nodes(node):
        yield from _within(path, function, child, errors)


def _reads(node: ast.AST, errors: frozenset[str]) -> bool:
    match node:
        case ast.Compare(left, ops, others):
            pairs = zip(ops, (left, *others), others, strict=False)
            return any(_compares(op, one, other, errors) for op, one, other in pairs)
        case ast.Call(ast.Attribute(of, name), args):
            taken_apart = name in _READ_BY and _is_text(of, errors)
            matched = name in _PATTERNS and any(_is_text(one, errors) for one in args)
            return taken_apart or matched
        case ast.Assign(targets):
            return any(isinstance(t, ast.Attribute) and t.attr == "message" for t in targets) and (
                not any(_is_own(t) for t in targets)
            )
        case ast.Match(subject, cases):
            return _is_text(subject, errors) and any(_names_text(one.pattern) for one in cases)
        case _:
            return False


def _names_text(pattern: ast.pattern) -> bool:
    """Whether a pattern matches a text that is written there."""
    return any(
        isinstance(node, ast.MatchValue) and _is_literal(node.value) for node in ast.walk(pattern)
    )


def _compares(op: ast.cmpop, one: ast.expr, other: ast.expr, errors: frozenset[str]) -> bool:
    if not isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn):
        return False
    for text, with_what in ((one, other), (other, one)):
        # Whether there is a text at all may be asked.
        is_empty = isinstance(with_what, ast.Constant) and with_what.value in ("", None)
        if _is_text(text, errors) and not is_empty and _is_literal(with_what):
            return True
    return False


def _is_literal(node: ast.expr) -> bool:
    """Whether an expression is a text of the code, or is made of such: a constant by its name."""
    match node:
        case ast.Constant(value):
            return isinstance(value, str)
        case ast.JoinedStr():
            return True
        case ast.Tuple(members) | ast.List(members) | ast.Set(members):
            return any(_is_literal(one) for one in members)
        case ast.Name(name) | ast.Attribute(_, name):
            return name.strip("_").isupper()
        case ast.Call(ast.Name("str"), [_]):
            return True
        case _:
            return False


def _is_text(node: ast.expr, errors: frozenset[str]) -> bool:
    match node:
        case ast.Attribute(_, name) | ast.Name(name):
            return name.strip("_") in _TEXTS
        case ast.Call(ast.Name("str"), [ast.Name(name)]):
            return name in errors or name in {"error", "statement"}
        case ast.Call(ast.Attribute(of, "strip" | "rstrip" | "lstrip" | "lower" | "upper"), _):
            return _is_text(of, errors)
        case _:
            return False


def _is_own(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )
