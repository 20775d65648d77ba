"""What only Linux has is used where there is another way, or by what only Linux has to run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.repository.source_files import FOLDERS, ROOT, SourceFile, source_files

# What a file uses of Linux' own, and why it may.
_ALLOWED = {
    "catalog/processes.py": ({"/proc"}, "else ps"),
    "catalog/ledgers/sqlite.py": ({"/proc"}, "else mount"),
    "spark_ext/engine/session.py": ({"sched_"}, "else the processors of the machine"),
    "tests/support/processes.py": ({"/proc"}, "else the nearest that psutil or getrusage says"),
    "tests/support/tied_processes.py": ({"setpriv"}, "else a watcher"),
    "tests/support/test_tied_processes.py": ({"setpriv"}, "shows both ways"),
    "tests/support/light_machine.py": (
        {"/dev/shm"},  # noqa: S108
        "else the usual directory for temporary files",
    ),
    "tests/bench/__main__.py": ({"/proc"}, "says that the benchmark is Linux' alone"),
    "tests/bench/cold_start.py": ({"prctl"}, "says that the benchmark is Linux' alone"),
    "tests/bench/transfer.py": ({"sched_"}, "else all processors; the benchmark is Linux' alone"),
    "tests/spark_ext/engine/test_class_archive.py": ({"prctl"}, "skipped elsewhere: orphans"),
    "tests/spark_ext/test_in_turn.py": ({"/proc"}, "nightly: names of threads"),
    "tests/integration/test_interface_cluster.py": (
        {"unshare", "setpriv"},
        "soak: a disk is hidden",
    ),
    "tests/services/packets/networks.py": ({"/proc", "unshare", "setpriv"}, "soak: networks"),
    "tests/services/clickhouse_http/engine.py": ({"F_SETPIPE_SZ"}, "else a pipe of usual size"),
    "tests/services/old_clickhouse.py": ({"LD_LIBRARY_PATH"}, "nightly: Debian's packages"),
    "tests/services/debian_packages.py": ({"apt-get"}, "nightly: Debian's packages"),
}
_OF_LINUX = re.compile(
    r"/proc\b|/dev/shm\b|\bunshare\b|\bsetpriv\b|\bpdeathsig\b|\bprctl\b|\bsched_|\bposix_f|\bepoll"
    r"|\binotify|\bmemfd_|\brenameat2\b|\bO_TMPFILE\b|\bO_PATH\b|\bF_SETPIPE_SZ\b|\bSIGRTM|\bsplice\b"
    r"|\breflink|\bcopy_file_range\b|\beventfd\b|\bpipe2\b|\bpidfd_|\bsetns\b|\bgetrandom\b"
    r"|\bLD_LIBRARY_PATH\b|\bLD_PRELOAD\b|\bapt-get\b|\b127\.(?!0\.0\.[01]\b)\d+\.\d+\.\d+\b"
)
# Names of these that a docstring or a value for a comparison has, and no program uses.
_MENTIONED = {"tests/catalog/ledgers/keeper/test_address.py": {"127.8.8.8"}}
_WORDS = {"pdeathsig": "setpriv"}


def uses(file: SourceFile) -> set[str]:
    """Return what of Linux a file has in its code, without comments and docstrings."""
    if not _OF_LINUX.search(file.text):
        return set()
    tree = file.tree
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documents:
                found |= set(_OF_LINUX.findall(text))
            case ast.Attribute(attr=name) | ast.Name(id=name):
                found |= set(_OF_LINUX.findall(name))
            case _:
                pass
    return {_WORDS.get(one, one) for one in found} - _MENTIONED.get(file.path, set())


def test_what_only_linux_has_is_used_where_the_list_says() -> None:
    """Harm prevented: `make check` fails on macOS, where nobody runs it before a release."""
    files = [
        file
        for file in source_files(*FOLDERS)
        if file.path != Path(__file__).relative_to(ROOT).as_posix()
    ]
    found = {file.path: used for file in files if (used := uses(file))}

    assert found == {path: used for path, (used, _) in _ALLOWED.items()}


def test_a_test_listed_for_a_later_command_belongs_to_it() -> None:
    """Harm prevented: a reason of the list that has become untrue."""
    texts = {file.path: file.text for file in source_files(*FOLDERS)}
    later = {
        path: kind
        for path, (_, reason) in _ALLOWED.items()
        if (kind := reason.partition(":")[0]) in ("nightly", "soak")
        and path.rpartition("/")[2].startswith("test_")
    }

    assert later != {}
    assert [path for path, kind in later.items() if f"mark.{kind}\n" not in texts[path]] == []


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ('Path(f"/proc/{pid}/stat")', {"/proc"}),
        ('run(["setpriv", "--pdeathsig", "KILL"])', {"setpriv"}),
        ("os.sched_getaffinity(0)", {"sched_"}),
        ('connect("127.0.0.2")', {"127.0.0.2"}),
        ('connect("127.0.0.1")', set()),
        ('"""It reads /proc."""  # and /proc again', set()),
        ('a = "docs/process"', set()),
    ],
)
def test_what_only_linux_has_is_seen(text: str, used: set[str]) -> None:
    assert uses(SourceFile("tests/x.py", text)) == used
