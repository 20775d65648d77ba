"""Opens the Iceberg catalog of a Spark session for PyIceberg, from `spark.sql.catalog.<name>`.

- `spark_setting_table` declares the translation of each setting; this module handles the
  settings that need more than a new name.
- A setting is refused by name, never ignored, if PyIceberg would write to another place than
  Spark, or in another way. Values may be secrets, so no message shows one.
- The catalog keeps its name, because a catalog in a database stores it in every row.
- `sqlalchemy_uri` translates a JDBC address of SQLite or PostgreSQL:

    jdbc:sqlite:/srv/lake.db             sqlite:////srv/lake.db
    jdbc:postgresql://db/ice?ssl=true    postgresql+psycopg2://db/ice?sslmode=verify-full

User, password and options may also be set outside the address (`jdbc.user`, `jdbc.sslmode`,
...); as in Java, the address wins. An option that libpq lacks, or has with another meaning, is
refused.

See docs/reference/spark-catalogs.md.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, unquote_plus

from sqlalchemy.engine import URL

from catalog.iceberg.spark_setting_table import (
    GLUE,
    HIVE,
    REST,
    SQL,
    Treatment,
    find_setting,
    refusal,
)
from tableformat.errors import UnsupportedError

__all__ = [
    "CATALOG",
    "DEFAULT_FS",
    "HADOOP",
    "iceberg_catalogs",
    "other_catalogs",
    "pyiceberg_properties",
    "sqlalchemy_uri",
]

_SQLITE: Final = "jdbc:sqlite:"
_POSTGRESQL: Final = "jdbc:postgresql:"
_ADDRESS: Final = re.compile(
    r"//(?P<host>\[[0-9A-Fa-f:.]+\]|[^:/,?@\[\]]*)(?::(?P<port>[0-9]{1,5}))?/(?P<database>[^/?#]*)"
)
_LIBPQ_NAMES: Final = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "gssencmode": "gssencmode",
    "applicationname": "application_name",
    "connecttimeout": "connect_timeout",
}
"""Options of the JDBC driver that libpq has, too, with libpq's names."""
_DRIVER_ONLY: Final = frozenset(
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
"""Options that change how the driver works, but not where it connects or what it does there."""
_SQLITE_OPTIONS: Final = frozenset(("busy_timeout", "cache_size", "journal_mode", "synchronous"))

_KNOWN: Final = (
    "user, password, ssl, currentSchema, sslMode, sslRootCert, gssEncMode, ApplicationName"
)

Refuse = Callable[[str, str], UnsupportedError]
"""Returns the error for a setting and the reason."""


def sqlalchemy_uri(uri: str, driver_properties: Mapping[str, str], refuse: Refuse) -> str:
    """Return SQLAlchemy's address of the same database; it may have a password.

    Args:
        uri: the JDBC address.
        driver_properties: the driver's properties outside the address, without `jdbc.`.
        refuse: returns the error for `uri`, or for `jdbc.<property>`.

    Raises:
        UnsupportedError: another database, or an option without equivalent.
    """
    if uri.startswith(_SQLITE):
        return _of_file(uri.removeprefix(_SQLITE), driver_properties, refuse)
    if uri.startswith(_POSTGRESQL):
        return _of_server(uri.removeprefix(_POSTGRESQL), driver_properties, refuse)
    why = "is of another database than SQLite (jdbc:sqlite:) and PostgreSQL (jdbc:postgresql:)"
    raise refuse("uri", why)


def _of_file(rest: str, driver_properties: Mapping[str, str], refuse: Refuse) -> str:
    path, _, query = rest.partition("?")
    given = {name.lower(): "jdbc." + name for name in driver_properties} | dict.fromkeys(
        _options(query), "uri"
    )
    for option, setting in given.items():
        # A file has no users.
        if option not in _SQLITE_OPTIONS | {"user", "password"}:
            raise refuse(setting, f"has another option than {', '.join(sorted(_SQLITE_OPTIONS))}")
    if not path.startswith("/"):
        why = (
            "names no file by its whole path, so that another process would find another one; "
            "write jdbc:sqlite:/PATH"
        )
        raise refuse("uri", why)
    return URL.create("sqlite", database=path).render_as_string(hide_password=False)


def _of_server(rest: str, driver_properties: Mapping[str, str], refuse: Refuse) -> str:
    address, _, query = rest.partition("?")
    place = _ADDRESS.fullmatch(address)
    if place is None:
        raise refuse("uri", "is not jdbc:postgresql://HOST[:PORT]/DATABASE with one host")
    given = {name.lower(): ("jdbc." + name, text) for name, text in driver_properties.items()}
    given |= {name: ("uri", text) for name, text in _options(query).items()}
    user, password = (given.pop(name, ("", ""))[1] for name in ("user", "password"))
    return URL.create(
        "postgresql+psycopg2",
        username=user or None,
        password=password or None,
        host=place["host"].strip("[]") or "localhost",
        port=int(place["port"]) if place["port"] else None,
        # Without a database the driver uses the user's name, as libpq does.
        database=unquote(place["database"]) or None,
        query=_options_of_libpq(given, refuse),
    ).render_as_string(hide_password=False)


def _options_of_libpq(given: Mapping[str, tuple[str, str]], refuse: Refuse) -> dict[str, str]:
    """Return libpq's options for those of the driver."""
    options = dict[str, str]()
    for name, (setting, text) in given.items():
        match name:
            case "ssl" if text.lower() in ("", "true"):
                options.setdefault("sslmode", "verify-full")
            case "ssl":
                continue
            case "currentschema" if re.fullmatch(r"[A-Za-z0-9_]+(,[A-Za-z0-9_]+)*", text):
                options["options"] = f"-csearch_path={text}"
            case _ if name in _LIBPQ_NAMES:
                options[_LIBPQ_NAMES[name]] = text
            case _ if name in _DRIVER_ONLY:
                continue
            case _:
                raise refuse(setting, f"has an option without an equivalent; there are {_KNOWN}")
    return options


def _options(query: str) -> dict[str, str]:
    """Parse `name=value&...`, with names in lower case."""
    pairs = (option.partition("=") for option in query.split("&") if option)
    return {unquote_plus(name).lower(): unquote_plus(value) for name, _, value in pairs}


HADOOP: Final = "spark.hadoop."
"""The prefix of settings that Spark passes to Hadoop."""

DEFAULT_FS: Final = f"{HADOOP}fs.defaultFS"
"""The file system of a path without a scheme, in Hadoop's configuration."""

CATALOG: Final = "spark.sql.catalog."
"""The prefix of catalog settings."""

_CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"
_SESSION_CLASS: Final = "org.apache.iceberg.spark.SparkSessionCatalog"
_SESSION_CATALOG: Final = "spark_catalog"
_ICEBERG: Final = "org.apache.iceberg."
_KINDS: Final = {"rest": REST, "jdbc": SQL, "hive": HIVE, "glue": GLUE}
_CLASSES: Final = {
    f"{_ICEBERG}rest.RESTCatalog": REST,
    f"{_ICEBERG}jdbc.JdbcCatalog": SQL,
    f"{_ICEBERG}hive.HiveCatalog": HIVE,
    f"{_ICEBERG}aws.glue.GlueCatalog": GLUE,
}
_HADOOP_IO: Final = f"{_ICEBERG}hadoop.HadoopFileIO"
_FILE_IOS: Final = (
    _HADOOP_IO,
    f"{_ICEBERG}aws.s3.S3FileIO",
    f"{_ICEBERG}gcp.gcs.GCSFileIO",
    f"{_ICEBERG}azure.adlsv2.ADLSFileIO",
    f"{_ICEBERG}io.ResolvingFileIO",
)
_METASTORE: Final = "spark.hadoop.hive.metastore.uris"
_HIVE_LOCKS: Final = "spark.hadoop.iceberg.engine.hive.lock-enabled"
_TOKENS: Final = "v1/oauth/tokens"
_S3: Final = ("s3://", "s3a://", "s3n://")
_GS: Final = ("gs://",)
_ABFS: Final = ("abfs://", "abfss://")
_HADOOP_SCHEMES: Final = (
    (_S3, ("spark.hadoop.fs.s3",), f"{_ICEBERG}aws.s3.S3FileIO, and s3.endpoint"),
    (
        _GS,
        (
            "spark.hadoop.google.cloud.auth",
            "spark.hadoop.fs.gs.auth",
            "spark.hadoop.fs.gs.storage.root",
        ),
        f"{_ICEBERG}gcp.gcs.GCSFileIO, and gcs.oauth2.token",
    ),
    (
        _ABFS,
        ("spark.hadoop.fs.azure",),
        f"{_ICEBERG}azure.adlsv2.ADLSFileIO, and adls.auth.shared-key.account.key",
    ),
)
"""Schemes, the Hadoop settings that reach them, and the equivalent settings of Iceberg."""


def iceberg_catalogs(conf: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of a session's Iceberg catalogs, sorted."""
    return tuple(sorted(name for name, made_by in _catalogs(conf).items() if made_by == _CLASS))


def other_catalogs(conf: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of a session's catalogs without lake tables, sorted."""
    others = (name for name, made_by in _catalogs(conf).items() if made_by != _CLASS)
    return tuple(sorted({_SESSION_CATALOG, *others} - {*iceberg_catalogs(conf)}))


def _catalogs(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the catalogs' classes by name."""
    given = ((n.removeprefix(CATALOG), text) for n, text in conf.items() if n.startswith(CATALOG))
    return {name: made_by for name, made_by in given if "." not in name}


def pyiceberg_properties(name: str, conf: Mapping[str, str]) -> Mapping[str, Any]:
    """Return PyIceberg's properties of a Spark session's catalog; they may have secrets.

    Args:
        name: of the catalog, in Spark and in PyIceberg.
        conf: the settings of the session.

    Returns:
        The properties; empty if the session has no catalog of that name.

    Raises:
        UnsupportedError: it is no Iceberg catalog, or PyIceberg lacks its type, or a setting
            cannot be translated.
    """
    made_by = conf.get(CATALOG + name)
    if made_by is None:
        return {}
    if made_by == _SESSION_CLASS:
        why = (
            "is a SparkSessionCatalog, in which other tables than Iceberg's are too; add the same "
            f"catalog under another name, as {_CLASS}"
        )
        raise refusal(name, "", why)
    if made_by != _CLASS:
        raise refusal(name, "", f"is not {_CLASS}")
    given = _given(name, conf)
    catalog = _SparkCatalog(name, _kind(name, given), given, conf)
    return _translated(catalog)


@dataclass(frozen=True, slots=True)
class _SparkCatalog:
    """A Spark catalog: its kind, and its own settings by lower-case name."""

    name: str
    kind: str
    given: Mapping[str, str] = field(repr=False)
    conf: Mapping[str, str] = field(repr=False)

    def text(self, setting: str) -> str:
        """Return the value of a setting, '' if it is not set."""
        return self.given.get(setting, "")

    def refuse(self, setting: str, why: str) -> UnsupportedError:
        """Return the refusal of a setting."""
        return refusal(self.name, setting, why)


def _given(name: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return a catalog's settings; Iceberg ignores case in their names."""
    prefix, given = f"{CATALOG}{name}.", dict[str, str]()
    for whole, text in conf.items():
        if not whole.startswith(prefix):
            continue
        setting = whole.removeprefix(prefix).lower()
        if given.setdefault(setting, text) != text:
            raise refusal(name, setting, "is given twice, in capitals and not, and differs")
        if text != text.strip() or any(unicodedata.category(c) == "Cc" for c in text):
            raise refusal(name, setting, "begins or ends with a blank, or has a control character")
    return given


def _kind(name: str, given: Mapping[str, str]) -> str:
    type_, class_ = given.get("type", ""), given.get("catalog-impl", "")
    if type_ and class_:
        raise refusal(
            name, "catalog-impl", "is set in addition to type, and Iceberg allows only one of them"
        )
    if class_:
        if kind := _CLASSES.get(class_):
            return kind
        known = ", ".join(_CLASSES)
        raise refusal(name, "catalog-impl", f"is {class_!r}, and may be one of {known}")
    type_ = type_.lower() or HIVE
    if kind := _KINDS.get(type_):
        return kind
    if type_ == "hadoop":
        why = (
            "is 'hadoop': PyIceberg has no such catalog, because a rename is no safe commit on "
            "every file system. Register its tables in one of the type jdbc (register_table)"
        )
        raise refusal(name, "type", why)
    raise refusal(name, "type", f"is {type_!r}, and may be one of {', '.join(_KINDS)}")


def _translated(catalog: _SparkCatalog) -> dict[str, Any]:
    properties: dict[str, Any] = {"type": catalog.kind}
    for setting, text in catalog.given.items():
        row = find_setting(setting)
        if row is None:
            raise catalog.refuse(setting, "is no setting that mergeberg can translate")
        if row.of and row.of != catalog.kind:
            continue
        if row.treatment is Treatment.RENAMED:
            properties[row.detail] = text
        elif row.treatment is Treatment.REFUSED and text.lower() not in row.harmless:
            raise catalog.refuse(setting, f"has no equivalent in PyIceberg ({row.detail})")
    _check_files(catalog)
    if path_style := catalog.text("s3.path-style-access"):
        properties["s3.force-virtual-addressing"] = _inverted(catalog, path_style)
    if warehouse := catalog.text("warehouse"):
        properties["warehouse"] = (
            warehouse if catalog.kind == REST else _location(catalog, warehouse)
        )
    match catalog.kind:
        case "rest":
            return properties | _server(catalog)
        case "sql":
            return properties | _database(catalog)
        case "hive":
            return properties | _metastore(catalog)
        case _:
            return properties


def _check_files(catalog: _SparkCatalog) -> None:
    """Refuse settings by which Spark would read and write files otherwise than PyIceberg.

    Raises:
        UnsupportedError: a custom FileIO, or an object store through Hadoop's settings.
    """
    file_io = catalog.text("io-impl")
    if file_io and file_io not in _FILE_IOS:
        raise catalog.refuse("io-impl", f"is {file_io!r}, and may be one of {', '.join(_FILE_IOS)}")
    by_hadoop = file_io == _HADOOP_IO or (not file_io and catalog.kind in (SQL, HIVE))
    warehouse = catalog.text("warehouse")
    if not by_hadoop:
        return
    for schemes, settings, instead in _HADOOP_SCHEMES:
        applies = not warehouse or warehouse.startswith(schemes)
        if applies and any(one.startswith(settings) for one in catalog.conf):
            why = (
                f"leaves files to Hadoop, whose settings ({settings[0]}…) PyIceberg does not know; "
                f"set it to {instead} and its other settings, too"
            )
            raise catalog.refuse("io-impl", why)


def _inverted(catalog: _SparkCatalog, path_style: str) -> str:
    match path_style.lower():
        case "true":
            return "false"
        case "false":
            return "true"
        case _:
            raise catalog.refuse("s3.path-style-access", "is neither true nor false")


def _location(catalog: _SparkCatalog, warehouse: str) -> str:
    """Return a warehouse with its scheme; Hadoop adds that of its default file system."""
    scheme, colon, rest = warehouse.partition(":")
    if colon and scheme.lower() == "file" and rest.startswith("/"):
        return f"file:///{rest.lstrip('/')}"
    if "://" in warehouse:
        return warehouse
    default = catalog.conf.get(DEFAULT_FS, "")
    if not warehouse.startswith("/") or not default:
        why = (
            "is no location with a scheme, so its meaning depends on the reader; write for example "
            "file:///srv/lake"
        )
        raise catalog.refuse("warehouse", why)
    return (
        f"{default.rstrip('/')}{warehouse}"
        if "://" in default.rstrip("/")
        else f"file://{warehouse}"
    )


def _database(catalog: _SparkCatalog) -> dict[str, str]:
    driver_properties = {
        setting.removeprefix("jdbc."): text
        for setting, text in catalog.given.items()
        if (row := find_setting(setting))
        and row.treatment is Treatment.READ
        and setting.startswith("jdbc.")
    }
    version = driver_properties.pop("schema-version", "").lower()
    if version not in ("", "v0", "v1"):
        raise catalog.refuse("jdbc.schema-version", f"is {version!r}, and may be V0 or V1")
    if not catalog.text("warehouse"):
        raise catalog.refuse("warehouse", "is missing")
    properties = {"uri": sqlalchemy_uri(catalog.text("uri"), driver_properties, catalog.refuse)}
    # V0 is only Spark's default for a new database; PyIceberg keeps an existing layout.
    return properties | ({"schema_version": "v1"} if version == "v1" else {})


def _metastore(catalog: _SparkCatalog) -> dict[str, str]:
    if catalog.conf.get(_HIVE_LOCKS, "true").lower() != "true":
        why = (
            f"commits without Hive's locks ({_HIVE_LOCKS}), which PyIceberg takes: one would not "
            "see the other's"
        )
        raise catalog.refuse("type", why)
    uri = catalog.text("uri") or catalog.conf.get(_METASTORE, "")
    if not uri.startswith("thrift://"):
        why = "is no thrift://HOST:PORT; where Spark takes it from hive-site.xml, write it here too"
        raise catalog.refuse("uri", why)
    return {"uri": uri}


def _server(catalog: _SparkCatalog) -> dict[str, Any]:
    uri = catalog.text("uri")
    if not uri.lower().startswith(("https://", "http://")):
        raise catalog.refuse("uri", "is no http:// or https:// address")
    headers = {s: text for s, text in catalog.given.items() if s.startswith("header.")}
    if headers.get("header.x-iceberg-access-delegation", "") == "remote-signing":
        why = "asks the server to sign each request for a file, which PyArrow cannot do"
        raise catalog.refuse("header.x-iceberg-access-delegation", why)
    return {"uri": uri, **headers, **_authentication(catalog)}


def _authentication(catalog: _SparkCatalog) -> dict[str, Any]:
    """Return the authentication with a REST server; as in Iceberg, a token wins."""
    has_token = bool(catalog.text("token") or catalog.text("credential"))
    auth_type = catalog.text("rest.auth.type").lower() or ("oauth2" if has_token else "none")
    signed = dict[str, str]()
    if catalog.text("rest.sigv4-enabled").lower() == "true" or auth_type == "sigv4":
        signed = {"rest.sigv4-enabled": "true"}
        auth_type = catalog.text("rest.auth.sigv4.delegate-auth-type").lower() or "oauth2"
    match auth_type:
        case "oauth2" if not has_token:
            return {**signed, "auth": {"type": "noop"}}
        case "none":
            return {**signed, "auth": {"type": "noop"}}
        case "basic" if not signed:
            names = ("username", "password")
            login = {one: catalog.text(f"rest.auth.basic.{one}") for one in names}
            return {"auth": {"type": "basic", "basic": login}}
        case "oauth2":
            return signed | _token(catalog)
        case _ if signed:
            raise catalog.refuse("rest.auth.sigv4.delegate-auth-type", "may be none or oauth2")
        case _:
            raise catalog.refuse("rest.auth.type", "may be none, basic, oauth2 or sigv4")


def _token(catalog: _SparkCatalog) -> dict[str, str]:
    place = catalog.text("oauth2-server-uri") or _TOKENS
    if not place.lower().startswith(("https://", "http://")):
        place = f"{catalog.text('uri').rstrip('/')}/{place.lstrip('/')}"
    given = {name: catalog.text(name) for name in ("credential", "token") if catalog.text(name)}
    return {**given, "oauth2-server-uri": place}
