"""Makes mutants of a function: the same module with one small mistake in that function.

A mutant replaces the text of one node and leaves all other text as it is, so that its description
names a line of the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Mutant", "mutants_of"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one mistake: its line, the text that it replaces, and what stands around it."""

    line: int
    before: str
    after: str
    head: str
    tail: str

    @property
    def source(self) -> str:
        """The module with the mistake."""
        return self.head + self.after + self.tail

    def marked(self, path: str) -> str:
        """Return the module with the mistake, which makes an empty file when the mistake runs.

        Args:
            path: of the file. Any process can make it.
        """
        mark = f"open({path!r}, 'a').close()"
        if self.after == "pass":
            return self.head + mark + self.tail
        if self.after == "return None":
            return f"{self.head}return {mark}{self.tail}"
        return f"{self.head}({mark} or {self.after}){self.tail}"

    def __str__(self) -> str:
        return f"line {self.line}: {_short(self.before)} -> {_short(self.after)}"


_OPPOSITES: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OTHER_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
_MOST_SHOWN: Final = 60


def mutants_of(source: str, function: str) -> list[Mutant]:
    """Return all mutants of a function, in the order of its lines.

    Args:
        source: the text of its module.
        function: its qualified name, e.g. `Ledger.read`.

    Raises:
        LookupError: the module has no such function.
    """
    found = _function(ast.parse(source), function.split("."))
    if found is None:
        message = f"no function {function}"
        raise LookupError(message)
    made = []
    for node, after in _changes(found):
        before = ast.get_source_segment(source, node) or ""
        one = Mutant(node.lineno, before, after, *_around(source, node))
        if one.source != source and _compiles(one.source) and _compiles(one.marked("")):
            made.append(one)
    return sorted(made, key=lambda one: (one.line, one.after))


def _function(tree: ast.AST, names: list[str]) -> ast.AST | None:
    """Return the definition of a qualified name; `<locals>` stands between nested functions."""
    names = [name for name in names if name != "<locals>"]
    for name in names:
        inner = [
            node
            for node in ast.iter_child_nodes(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == name
        ]
        if not inner:
            return None
        tree = inner[-1]
    return tree


def _changes(function: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Return nodes of a function's body, each with the text that takes its place."""
    body = getattr(function, "body", [])
    waiting: list[ast.AST] = [node for node in body if not _is_docstring(node)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.expr | ast.stmt):
            yield from ((node, text) for text in _mistakes(node))
        if not isinstance(node, ast.JoinedStr):
            waiting += [
                child
                for name, child in _children(node)
                if name not in ("annotation", "returns", "decorator_list")
                and not _is_docstring(child)
            ]


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield name, child


def _mistakes(node: ast.expr | ast.stmt) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[of], left=left, comparators=comparators) if type(of) in _OPPOSITES:
            opposite = _OPPOSITES[type(of)]()
            yield f"({ast.unparse(ast.Compare(left, [opposite], comparators))})"
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OTHER_OPERATORS:
            yield f"({ast.unparse(ast.BinOp(left, _OTHER_OPERATORS[type(op)](), right))})"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value)):
            yield str(value + 1)
        case ast.Return(value=ast.expr() as value) if not _is_false(value):
            yield "return None"
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield "pass"
        case _:
            pass


def _is_false(value: ast.expr) -> bool:
    """Whether a returned value counts as false as None does, so that few callers see the other."""
    return ast.unparse(value) in ("None", "False", "0", "''", "()", "[]", "{}")


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _around(source: str, node: ast.expr | ast.stmt) -> tuple[str, str]:
    """Return the text of a module before a node and after it."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    # Columns count bytes.
    head = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    tail = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return head.decode(), tail.decode()


def _compiles(source: str) -> bool:
    try:
        compile(source, "<mutant>", "exec")
    except SyntaxError:
        return False
    return True


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_SHOWN else f"{line[: _MOST_SHOWN - 1]}…"
