"""Turns the address of a JDBC catalog into SQLAlchemy's: SQLite and PostgreSQL.

    jdbc:sqlite:/srv/lake.db                            sqlite:////srv/lake.db
    jdbc:postgresql://db.example/iceberg?ssl=true       postgresql+psycopg2://db.example/iceberg?sslmode=verify-full

User, password and options are also given beside the address (`jdbc.user`, `jdbc.sslmode`, ...); as
in Java, what stands in the address wins. An option that PostgreSQL's own library has not, or has
with another meaning, is refused: it may say where the tables are. Nothing here shows a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote, unquote_plus

from sqlalchemy.engine import URL

from tableformat.errors import UnsupportedError

__all__ = ["sqlalchemy_uri"]

_SQLITE: Final = "jdbc:sqlite:"
_POSTGRESQL: Final = "jdbc:postgresql:"
_ADDRESS: Final = re.compile(
    r"//(?P<host>\[[0-9A-Fa-f:.]+\]|[^:/,?@\[\]]*)(?::(?P<port>[0-9]{1,5}))?/(?P<database>[^/?#]*)"
)
_SAME: Final = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "gssencmode": "gssencmode",
    "applicationname": "application_name",
    "connecttimeout": "connect_timeout",
}
"""Options of the JDBC driver that PostgreSQL's own library has too, by its name for them."""
_OF_JAVA_ONLY: Final = frozenset(
    (
        "autosave",
        "defaultrowfetchsize",
        "logintimeout",
        "preparethreshold",
        "rewritebatchedinserts",
        "sockettimeout",
        "tcpkeepalive",
    )
)
"""Options that change how the driver works, not where it connects nor what it does there."""
_OF_FILES: Final = frozenset(("busy_timeout", "cache_size", "journal_mode", "synchronous"))

_KNOWN: Final = (
    "user, password, ssl, currentSchema, sslMode, sslRootCert, gssEncMode, ApplicationName"
)

Refuse = Callable[[str, str], UnsupportedError]
"""Makes the error for a setting and why it is refused."""


def sqlalchemy_uri(uri: str, beside: Mapping[str, str], refuse: Refuse) -> str:
    """Return SQLAlchemy's address of the same database; it may hold a password.

    Args:
        uri: as JDBC has it.
        beside: the driver's properties that are given beside it, without `jdbc.`.
        refuse: makes the error for `uri`, or for `jdbc.<property>`.

    Raises:
        UnsupportedError: another database, or an option without equal.
    """
    if uri.startswith(_SQLITE):
        return _of_file(uri.removeprefix(_SQLITE), beside, refuse)
    if uri.startswith(_POSTGRESQL):
        return _of_server(uri.removeprefix(_POSTGRESQL), beside, refuse)
    why = "is of another database than SQLite (jdbc:sqlite:) and PostgreSQL (jdbc:postgresql:)"
    raise refuse("uri", why)


def _of_file(rest: str, beside: Mapping[str, str], refuse: Refuse) -> str:
    path, _, query = rest.partition("?")
    given = {name.lower(): "jdbc." + name for name in beside} | dict.fromkeys(
        _options(query), "uri"
    )
    for option, setting in given.items():
        # A file has no users.
        if option not in _OF_FILES | {"user", "password"}:
            raise refuse(setting, f"has another option than {', '.join(sorted(_OF_FILES))}")
    if not path.startswith("/"):
        why = (
            "names no file by its whole path, so that another process would find another one; "
            "write jdbc:sqlite:/PATH"
        )
        raise refuse("uri", why)
    return URL.create("sqlite", database=path).render_as_string(hide_password=False)


def _of_server(rest: str, beside: Mapping[str, str], refuse: Refuse) -> str:
    address, _, query = rest.partition("?")
    place = _ADDRESS.fullmatch(address)
    if place is None:
        raise refuse("uri", "is not jdbc:postgresql://HOST[:PORT]/DATABASE with one host")
    given = {name.lower(): ("jdbc." + name, text) for name, text in beside.items()}
    given |= {name: ("uri", text) for name, text in _options(query).items()}
    user, password = (given.pop(name, ("", ""))[1] for name in ("user", "password"))
    return URL.create(
        "postgresql+psycopg2",
        username=user or None,
        password=password or None,
        host=place["host"].strip("[]") or "localhost",
        port=int(place["port"]) if place["port"] else None,
        # The driver takes the user's name, as the library does.
        database=unquote(place["database"]) or None,
        query=_translated(given, refuse),
    ).render_as_string(hide_password=False)


def _translated(given: Mapping[str, tuple[str, str]], refuse: Refuse) -> dict[str, str]:
    """Return the options of PostgreSQL's library for those of the driver."""
    options = dict[str, str]()
    for name, (setting, text) in given.items():
        match name:
            case "ssl" if text.lower() in ("", "true"):
                options.setdefault("sslmode", "verify-full")
            case "ssl":
                continue
            case "currentschema" if re.fullmatch(r"[A-Za-z0-9_]+(,[A-Za-z0-9_]+)*", text):
                options["options"] = f"-csearch_path={text}"
            case _ if name in _SAME:
                options[_SAME[name]] = text
            case _ if name in _OF_JAVA_ONLY:
                continue
            case _:
                raise refuse(setting, f"has an option without equal; there are {_KNOWN}")
    return options


def _options(query: str) -> dict[str, str]:
    """Read `name=value&...`, names in lower case."""
    pairs = (option.partition("=") for option in query.split("&") if option)
    return {unquote_plus(name).lower(): unquote_plus(value) for name, _, value in pairs}
