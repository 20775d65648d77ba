"""An embedded ClickHouse whose parts are on a disk whose files no task can open."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.support.clickhouse_source import config_text
from tests.support.store_kinds import AbfsPlace, HdfsPlace, S3Place
from tests.support.store_places import Place

__all__ = ["far_default", "far_source", "store_config_text"]


def store_config_text(place: Place) -> str:
    """Return a configuration with a storage policy `far`, whose only disk is in the place."""
    return f"""<clickhouse>
  <openSSL><client><caConfig>{place.server.ca_file}</caConfig>
    <loadDefaultCAFile>false</loadDefaultCAFile>
    <verificationMode>strict</verificationMode></client></openSSL>
  <storage_configuration>
    <disks><far>{_disk_in(place)}</far></disks>
    <policies><far><volumes><all><disk>far</disk></all></volumes></far></policies>
  </storage_configuration>
</clickhouse>"""


def _disk_in(place: Place) -> str:
    """Return the settings of a disk of ClickHouse whose objects are in the place."""
    server = place.server
    path = place.root.partition("://")[2].partition("/")[2]
    objects = "<type>object_storage</type><metadata_type>local</metadata_type><object_storage_type>"
    match place:
        case AbfsPlace():
            return (
                f"{objects}azure_blob_storage</object_storage_type>"
                f"<connection_string>{server.connection()}</connection_string>"
                f"<container_name>{place.container}</container_name>"
            )
        case HdfsPlace():
            # ClickHouse writes as the user of its process.
            server.ask("PUT", place.path, "SETPERMISSION", permission="777")
            return f"{objects}hdfs</object_storage_type><endpoint>{place.root}/parts/</endpoint>"
        case S3Place():
            return (
                f"<type>s3</type><endpoint>{server.endpoint}/{place.bucket}/{path}/</endpoint>"
                f"<region>{server.region}</region><access_key_id>{server.access_key}</access_key_id>"
                f"<secret_access_key>{server.secret_key}</secret_access_key>"
            )
        case _:
            pytest.fail(f"ClickHouse has no kind of disk for {place.name}")


def far_default(directory: Path) -> EmbeddedConnection:
    """Open a ClickHouse in `directory/clickhouse` whose default disk is an object storage now."""
    config, clickhouse = directory / "config.xml", directory / "clickhouse"
    with EmbeddedConnection(clickhouse, create=True) as connection:
        connection.command("CREATE DATABASE before")
    # ClickHouse takes it as the default disk only behind a cache.
    config.write_text(
        f"<clickhouse><filesystem_caches_path>{directory}</filesystem_caches_path>"
        "<storage_configuration><disks>"
        "<blobs><type>object_storage</type><object_storage_type>local</object_storage_type>"
        f"<metadata_type>local</metadata_type><path>{directory}/blobs/</path></blobs>"
        f"<default><type>cache</type><disk>blobs</disk><path>{directory}/cached/</path>"
        "<max_size>1000000</max_size></default>"
        "</disks></storage_configuration></clickhouse>"
    )
    return EmbeddedConnection(clickhouse, config_file=config)


def far_source(directory: Path, policy: str) -> str:
    """Make db.t with two partitions by a storage policy; return the source.

    The policy `default` is that of a default disk that is an object storage.
    """
    directory.mkdir(exist_ok=True)
    config, clickhouse = directory / "config.xml", directory / "clickhouse"
    if policy == "default":
        opened = far_default(directory)
    else:
        config.write_text(config_text(directory / "disks"))
        opened = EmbeddedConnection(clickhouse, config_file=config, create=True)
    with opened as connection:
        connection.command("CREATE DATABASE db")
        connection.command(
            "CREATE TABLE db.t (p UInt8, id Int64, s String) ENGINE = MergeTree PARTITION BY p"
            f" ORDER BY id SETTINGS storage_policy = '{policy}'"
        )
        connection.command("INSERT INTO db.t VALUES (1, 1, 'a'), (1, 2, 'b'), (2, 3, 'c')")
    return f"chdb:{clickhouse}?config-file={config}"
