"""Where the tables are when they are in an object store, as the programs of the readers get it.

The programs run in environments of their own: only the standard library.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Final, Self

__all__ = ["ObjectStore"]

_VARIABLE: Final = "READERS_OBJECT_STORE"


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """S3 over TLS, whose certificate an authority of its own has signed.

    Attributes:
        endpoint: `https://HOST:PORT`.
        region: its name.
        access_key: of the account that reads.
        secret_key: likewise.
        ca_file: the authority's certificate, as PEM.
        trust_store: the same for a Java machine.
        catalog: where the catalog `lake` is, for JDBC.
        trino: the port of a Trino with that catalog, 0 for none.
    """

    endpoint: str
    region: str
    access_key: str
    secret_key: str
    ca_file: str
    trust_store: str
    catalog: str
    trino: int = 0

    @property
    def host(self) -> str:
        """Host and port."""
        return self.endpoint.removeprefix("https://")

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties, which Polars and Daft understand, too."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.region": self.region,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
        }

    @property
    def spark_catalog(self) -> dict[str, str]:
        """Spark's settings of the catalog `lake`; Java must trust the store beside."""
        words = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": self.catalog,
            ".warehouse": "s3://unused",
            ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            ".client.region": self.region,
            ".s3.endpoint": self.endpoint,
            ".s3.path-style-access": "true",
            ".s3.access-key-id": self.access_key,
            ".s3.secret-access-key": self.secret_key,
        }
        return {f"spark.sql.catalog.lake{name}": text for name, text in words.items()}

    @property
    def environment(self) -> dict[str, str]:
        """What the process of a reader has: this, and whom most libraries are to trust."""
        return {_VARIABLE: json.dumps(asdict(self)), "SSL_CERT_FILE": self.ca_file}

    @classmethod
    def of_process(cls) -> Self | None:
        """Return the one that this process was given; None when tables are in local files."""
        given = os.environ.get(_VARIABLE)
        return None if given is None else cls(**json.loads(given))
