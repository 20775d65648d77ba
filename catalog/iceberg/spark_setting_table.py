"""Declares the treatment of each setting of a Spark catalog (docs/reference/spark-catalogs.md).

The names are those of Iceberg 1.12 (`CatalogProperties`, `OAuth2Properties`, `AuthProperties`,
`HTTPClient`, `JdbcUtil`, `S3FileIOProperties`, `AwsProperties`, `HttpClientProperties`,
`GCPProperties`), and the translations those of PyIceberg 0.12 (`pyiceberg.io`,
`pyiceberg.catalog`). A setting is found by its full name, else by the longest prefix that ends with
`.*`. An unknown setting is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tableformat.errors import UnsupportedError

__all__ = [
    "GLUE",
    "HIVE",
    "REST",
    "SETTINGS",
    "SQL",
    "Setting",
    "Treatment",
    "find_setting",
    "refusal",
]

REST: Final = "rest"
SQL: Final = "sql"
HIVE: Final = "hive"
GLUE: Final = "glue"


class Treatment(Enum):
    """The treatment of a setting."""

    RENAMED = "becomes"
    READ = "read"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: the `name` after `spark.sql.catalog.<catalog>.`, and its treatment.

    `detail` is PyIceberg's property, the use of the value, or the reason. `of` is the kind of
    catalog that has the setting, '' for every kind; other kinds ignore it in Spark, too. `harmless`
    are values with which a refused setting is ignored.
    """

    name: str
    treatment: Treatment
    detail: str
    of: str = ""
    harmless: tuple[str, ...] = ()


def _renamed(name: str, becomes: str = "", of: str = "") -> Setting:
    return Setting(name, Treatment.RENAMED, becomes or name, of)


def _read(name: str, detail: str, of: str = "") -> Setting:
    return Setting(name, Treatment.READ, detail, of)


def _ignored(name: str, why: str, of: str = "") -> Setting:
    return Setting(name, Treatment.IGNORED, why, of)


def _refused(name: str, why: str, of: str = "", harmless: tuple[str, ...] = ()) -> Setting:
    return Setting(name, Treatment.REFUSED, why, of, harmless)


_CACHE: Final = "what Spark keeps in memory"
_SPEED: Final = "how fast Spark reads and writes"
_ROUTE: Final = "the way to the same bucket"
_HOW: Final = (
    "how Spark sends requests; `spark.mergeberg.connect-timeout` and `read-timeout` are ours"
)
_NEW_TABLES: Final = "tables that Spark creates; an export sets its own table properties"
_FILES: Final = "changes what is written"
_AWS: Final = "a Java class chooses the AWS credentials"
_RIGHTS: Final = "PyIceberg cannot request rights in this way"
_OTHERS_LOCK: Final = "Spark then takes locks that PyIceberg does not know"
_SIGNED: Final = "requests are signed here; let the catalog vend credentials"
_TOKENS: Final = "PyIceberg fetches a token by the same credential when it needs one"

_EVERY: Final = (
    _read("type", "the kind of catalog"),
    _read("catalog-impl", "the kind of catalog, by the name of Iceberg's class"),
    _read("uri", "`uri`; that of a database becomes SQLAlchemy's"),
    _read("warehouse", "`warehouse`; a path without scheme gets that of `fs.defaultFS`"),
    _read(
        "io-impl",
        "checked: S3FileIO, GCSFileIO, ResolvingFileIO or HadoopFileIO; PyIceberg uses the path",
    ),
    _ignored("default-namespace", "where `USE` begins"),
    _ignored("cache-enabled", _CACHE),
    _ignored("cache.*", _CACHE),
    _ignored("io.manifest.*", _CACHE),
    _ignored("metrics-reporter-impl", "where Spark reports metrics"),
    _ignored("table-default.*", _NEW_TABLES),
    _ignored("table-override.*", _NEW_TABLES),
    _ignored("view-default.*", "views"),
    _ignored("view-override.*", "views"),
    _ignored("app-id", "set by Spark"),
    _ignored("app-name", "set by Spark"),
    _ignored("user", "set by Spark"),
    _ignored("clients", _SPEED),
    _refused("unique-table-location", _FILES, harmless=("false",)),
    _refused("encryption.*", "tables that are encrypted cannot be written"),
    _ignored("kms.*", "a detail of `encryption.*`"),
    _refused("hadoop.*", "what it changes in Hadoop's configuration is unknown to PyIceberg"),
    _refused("lock-impl", _OTHERS_LOCK, of=GLUE),
    _ignored("lock.*", "a detail of `lock-impl`"),
)
_REST: Final = (
    _read("credential", "`credential`, and `oauth2-server-uri` where it is not given", REST),
    _read("token", "`token`", REST),
    _read("oauth2-server-uri", "`oauth2-server-uri`; a path begins at `uri`", REST),
    _read("header.*", "`header.*`", REST),
    _read("rest.auth.type", "`auth`: `none`, `basic`, `oauth2` or `sigv4`", REST),
    _read("rest.auth.basic.username", "`auth`", REST),
    _read("rest.auth.basic.password", "`auth`", REST),
    _read("rest.auth.sigv4.delegate-auth-type", "`auth`: `none` or `oauth2`", REST),
    _read("rest.sigv4-enabled", "`rest.sigv4-enabled`", REST),
    _renamed("rest.signing-region", of=REST),
    _renamed("rest.signing-name", of=REST),
    _renamed("scope", of=REST),
    _renamed("audience", of=REST),
    _renamed("resource", of=REST),
    _renamed("prefix", of=REST),
    _renamed("rest-page-size", of=REST),
    _renamed("namespace-separator", of=REST),
    _renamed("view-endpoints-supported", of=REST),
    _ignored("token-expires-in-ms", _TOKENS, REST),
    _ignored("token-refresh-enabled", _TOKENS, REST),
    _ignored("token-exchange-enabled", _TOKENS, REST),
    _ignored("auth.session-timeout-ms", _CACHE, REST),
    _ignored("snapshot-loading-mode", "an export always reads all snapshots", REST),
    _ignored("scan-planning-mode", "how Spark plans its scans", REST),
    _ignored("rest-scan-planning.*", "how Spark plans its scans", REST),
    _ignored("rest-metrics-reporting-enabled", "where Spark reports metrics", REST),
    _ignored("rest-table-cache.*", _CACHE, REST),
    _ignored("rest-catalog-purge", "what Spark's DROP TABLE … PURGE does", REST),
    _ignored("rest.client.max-retries", _HOW, REST),
    _ignored("rest.client.max-connections", _HOW, REST),
    _ignored("rest.client.connections-per-route", _HOW, REST),
    _ignored("rest.client.connection-timeout-ms", _HOW, REST),
    _ignored("rest.client.socket-timeout-ms", _HOW, REST),
    _ignored("rest.client.user-agent", _HOW, REST),
    _refused("rest.client.proxy.*", "PyIceberg takes a proxy from `HTTPS_PROXY` only", REST),
    _refused("rest.client.tls.*", "a Java class chooses the trusted authorities", REST),
    _refused("rest.access-key-id", "PyIceberg would use it for the files too", REST),
    _refused("rest.secret-access-key", "PyIceberg would use it for the files too", REST),
    _refused("rest.session-token", "PyIceberg would use it for the files too", REST),
    _refused("gcp.auth.*", "PyIceberg has other settings for it", REST),
)
_DATABASES: Final = (
    _read("jdbc.user", "the user in `uri`", SQL),
    _read("jdbc.password", "the password in `uri`", SQL),
    _read("jdbc.schema-version", "`schema_version`", SQL),
    _renamed("jdbc.init-catalog-tables", "init_catalog_tables", SQL),
    _ignored("jdbc.strict-mode", "an export makes the namespace that its table is in", SQL),
    _read("jdbc.*", "like an option of the address", SQL),
    _ignored("retryable_status_codes", _HOW, SQL),
    _ignored("list-all-tables", "what `SHOW TABLES` shows", HIVE),
    _ignored("client-pool-cache-keys", _CACHE, HIVE),
    _ignored("client.pool.cache.eviction-interval-ms", _CACHE, HIVE),
    _renamed("glue.id", of=GLUE),
    _renamed("glue.endpoint", of=GLUE),
    _renamed("glue.skip-archive", of=GLUE),
    _ignored("glue.skip-name-validation", "names that Spark accepts", GLUE),
    _refused("glue.lakeformation-enabled", _RIGHTS, GLUE, ("false",)),
    _refused("glue.account-id", _RIGHTS, GLUE),
    _refused("lakeformation.*", _RIGHTS, GLUE),
    _ignored("dynamodb.*", "a catalog or locks in DynamoDB"),
)
_FILES_FAR_AWAY: Final = (
    _renamed("mergeberg.ca-file"),
    _renamed("mergeberg.allow-insecure"),
    _renamed("s3.endpoint"),
    _renamed("s3.access-key-id"),
    _renamed("s3.secret-access-key"),
    _renamed("s3.session-token"),
    _renamed("s3.region"),
    _renamed("client.region"),
    _renamed("http-client.proxy-endpoint", "s3.proxy-uri"),
    _read("s3.path-style-access", "`s3.force-virtual-addressing`, inverted"),
    _refused("s3.sse.type", _FILES + "; set the encryption of the bucket", harmless=("none",)),
    _ignored("s3.sse.*", "a detail of `s3.sse.type`"),
    _refused("s3.acl", _FILES),
    _refused("s3.write.tags.*", _FILES),
    _refused("s3.write.table-tag-enabled", _FILES, harmless=("false",)),
    _refused("s3.write.namespace-tag-enabled", _FILES, harmless=("false",)),
    _refused("s3.write.storage-class", _FILES),
    _refused("s3.delete-enabled", "changes what is deleted", harmless=("true",)),
    _refused("s3.delete.tags.*", "changes what is deleted"),
    _refused("s3.access-points.*", "names other locations than the table's"),
    _refused("s3.access-grants.*", _RIGHTS, harmless=("false",)),
    _refused("s3.remote-signing-enabled", _SIGNED, harmless=("false",)),
    _ignored("signer.*", "a detail of `s3.remote-signing-enabled`"),
    _ignored("rest.remote-signing.*", "a detail of `s3.remote-signing-enabled`"),
    _refused("s3.client-factory-impl", _AWS),
    _refused("client.factory", _AWS),
    _refused("client.assume-role.*", _AWS),
    _refused("client.credentials-provider", _AWS),
    _refused("client.credentials-provider.*", _AWS),
    _ignored("client.refresh-credentials-enabled", "how Spark sends requests"),
    _ignored("client.refresh-credentials-endpoint", "how Spark sends requests"),
    _ignored("client.legacy-md5-plugin-enabled", "how Spark sends requests"),
    _ignored("s3.session-token-expires-at-ms", "how Spark sends requests"),
    _ignored("s3.acceleration-enabled", _ROUTE),
    _ignored("s3.dualstack-enabled", _ROUTE),
    _ignored("s3.cross-region-access-enabled", _ROUTE),
    _ignored("s3.use-arn-region-enabled", _ROUTE),
    _ignored("s3.checksum-enabled", _SPEED),
    _ignored("s3.chunked-encoding-enabled", _SPEED),
    _ignored("s3.preload-client-enabled", _SPEED),
    _ignored("s3.staging-dir", _SPEED),
    _ignored("s3.multipart.*", _SPEED),
    _ignored("s3.delete.*", _SPEED),
    _ignored("s3.retry.*", _SPEED),
    _ignored("s3.crt.*", _SPEED),
    _ignored("s3.analytics-accelerator.*", _SPEED),
    _ignored("s3.directory-bucket.*", _SPEED),
    _ignored("http-client.*", _SPEED),
    _renamed("gcs.service.host"),
    _renamed("gcs.oauth2.token"),
    _ignored("gcs.oauth2.token-expires-at", "how Spark sends requests"),
    _ignored("gcs.oauth2.refresh-credentials-enabled", "how Spark sends requests"),
    _ignored("gcs.oauth2.refresh-credentials-endpoint", "how Spark sends requests"),
    _ignored("gcs.project-id", "an existing bucket has one"),
    _ignored("gcs.channel.*", _SPEED),
    _ignored("gcs.delete.batch-size", _SPEED),
    _refused("gcs.*", "an export writes in another way, or not at all", harmless=("false",)),
    _renamed("adls.auth.shared-key.account.name", "adls.account-name"),
    _renamed("adls.auth.shared-key.account.key", "adls.account-key"),
    _renamed("adls.token"),
    _ignored("adls.read.*", _SPEED),
    _ignored("adls.write.*", _SPEED),
    _ignored("adls.refresh-credentials-enabled", "how Spark sends requests"),
    _ignored("adls.refresh-credentials-endpoint", "how Spark sends requests"),
    _refused("adls.*", "name the account's key, adls.auth.shared-key.account.key, or adls.token"),
    _renamed("hdfs.user"),
    _renamed("mergeberg.hdfs.http-address"),
    _renamed("mergeberg.hdfs.delegation-token"),
)

SETTINGS: Final = (*_EVERY, *_REST, *_DATABASES, *_FILES_FAR_AWAY)
"""Every known setting, in the order of the page."""

_BY_NAME: Final[Mapping[str, Setting]] = {one.name: one for one in SETTINGS}


def find_setting(name: str) -> Setting | None:
    """Return the row of a setting's lower-case name, None if it is unknown."""
    if exact := _BY_NAME.get(name):
        return exact
    pieces = name.split(".")
    prefixes = (".".join(pieces[:size]) + ".*" for size in range(len(pieces) - 1, 0, -1))
    return next((_BY_NAME[prefix] for prefix in prefixes if prefix in _BY_NAME), None)


def refusal(catalog: str, setting: str, why: str) -> UnsupportedError:
    """Return the refusal of a catalog as Spark has it.

    Args:
        catalog: its name.
        setting: after `spark.sql.catalog.<catalog>`; empty for the class itself.
        why: follows the setting's name in the sentence; never shows a value that may be secret.
    """
    whole = f"spark.sql.catalog.{catalog}" + (f".{setting}" if setting else "")
    return UnsupportedError(
        f"Cannot open the catalog {catalog!r} as Spark has it: {whole} {why}. Change the setting, "
        f"or configure {catalog!r} for PyIceberg, which comes first: in ~/.pyiceberg.yaml, or with "
        f"PYICEBERG_CATALOG__{catalog.upper()}__URI and so on."
    )
