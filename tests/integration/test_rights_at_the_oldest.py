"""The oldest server has no grants: the limits of its users are reported all the same."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from spark_ext.cli.main import invoke
from tests.services.old_clickhouse import OldPair


def checked(pair: OldPair, user: str, root: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Run `check` as a user; return the exit code and the report."""
    out, err = io.StringIO(), io.StringIO()
    source = pair.url(1).replace("//", f"//{user}@")
    places = ["--source", source, "--allow-insecure", "--warehouse", str(root)]
    code = invoke(["check", "db.limited", "--json", *places, *more], out, err)
    found: dict[str, Any] = json.loads((out.getvalue() or err.getvalue()).splitlines()[0])
    return code, found


def test_a_query_that_the_oldest_server_lacks_is_reported(
    old_servers: OldPair, tmp_path: Path
) -> None:
    """No grant is missing, none can be asked; a read-only user is refused."""
    old_servers.make_room(1, "limited")
    old_servers.query(1, "CREATE TABLE db.limited (k UInt64) ENGINE = MergeTree ORDER BY k")
    old_servers.query(1, "INSERT INTO db.limited SELECT number FROM numbers(10)")

    code, found = checked(old_servers, "default", tmp_path)

    assert (code, found["works"], found["grants"]) == (0, True, [])
    server = found["server"]
    assert server["rights"].startswith("cannot be checked (this version has no GRANT)")
    assert server["user"] == "default"
    assert server["row_policies"] == "not shown to the user; no row is hidden"
    assert any("system.parts.hash_of_all_files" in lack for lack in server["lacks"])

    code, found = checked(old_servers, "reader", tmp_path)

    assert code == 3
    assert "it has readonly = 1, and a snapshot creates a staging table" in found["reasons"][0]
