"""Users of a server who may not do what an export does (docs/reference/errors.md)."""

from __future__ import annotations

from collections.abc import Callable

from tests.services.clickhouse_front import ClickHouseFront
from tests.support.errors_page import Refusal, refusal_of
from tests.wrong.places import Places

__all__ = ["RIGHTS"]

Case = Callable[[Places, ClickHouseFront], Refusal]

_TABLE = (
    "CREATE DATABASE db",
    "CREATE DATABASE mergeberg_staging",
    "CREATE TABLE db.events (p UInt8, k Int64) ENGINE = MergeTree PARTITION BY p ORDER BY k",
    "INSERT INTO db.events SELECT number % 2, number FROM numbers(10)",
)


def _exported(*about_the_user: str) -> Case:
    """Return a try to export as a user `exporter` whom these statements make."""

    def run(places: Places, front: ClickHouseFront) -> Refusal:
        front.commands(*_TABLE, *about_the_user)
        source = front.url.replace("//", "//exporter@")
        words = ("export", "db.events", "--all", "--to", "lake.n.rights")
        return refusal_of(places, (*words, "--source", source, "--allow-insecure"))

    return run


_GRANTED = ("CREATE USER exporter", "GRANT ALL ON *.* TO exporter")

# Each makes its user at a server that is empty.
RIGHTS: dict[str, Case] = {
    "a right is missing": _exported(
        *_GRANTED, "REVOKE SYSTEM MERGES ON mergeberg_staging.* FROM exporter"
    ),
    "several rights are missing": _exported(
        "CREATE USER exporter",
        "GRANT SELECT ON *.* TO exporter",
        "GRANT CREATE DATABASE, ALTER, CHECK, SYSTEM, DROP ON mergeberg_staging.* TO exporter",
        "REVOKE SELECT ON db.* FROM exporter",
    ),
    "the user is read-only": _exported(*_GRANTED, "ALTER USER exporter SETTINGS readonly = 2"),
    "the user is not allowed DDL": _exported(
        *_GRANTED, "ALTER USER exporter SETTINGS allow_ddl = 0"
    ),
    "a row policy hides rows from the user": _exported(
        *_GRANTED, "CREATE ROW POLICY own ON db.events FOR SELECT USING p = 1 TO exporter"
    ),
}
