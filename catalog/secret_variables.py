"""Lists the environment variables with secrets of sources, catalogs, storage and ledgers.

Those of Amazon and Google are not among them: their libraries read them on each host.
"""

from __future__ import annotations

import os
from typing import Final

from catalog.clickhouse.server.settings import SECRETS
from catalog.ledgers.keeper.address import PASSWORD as LEDGER_PASSWORD
from catalog.storages.abfs.access import VARIABLES as OF_AZURE
from catalog.storages.hdfs.access import TOKEN_VARIABLE as HDFS_TOKEN

__all__ = ["harmless_environment", "is_secret"]

_OF_CATALOGS: Final = "PYICEBERG_CATALOG__"


def harmless_environment() -> dict[str, str]:
    """Return this process's environment without secrets, for child processes that need none."""
    return {name: text for name, text in os.environ.items() if not is_secret(name)}


def is_secret(name: str) -> bool:
    """Whether a variable may hold a secret of a source, catalog, storage or ledger."""
    known = {*SECRETS, *OF_AZURE, HDFS_TOKEN, LEDGER_PASSWORD}
    return name in known or name.startswith(_OF_CATALOGS)
