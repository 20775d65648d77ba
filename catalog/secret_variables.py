"""The variables of the environment that may hold a secret: of source, catalog and ledger."""

from __future__ import annotations

import os
from typing import Final

from catalog.clickhouse.server.given import SECRETS
from catalog.ledgers.keeper_address import PASSWORD as LEDGER_PASSWORD

__all__ = ["harmless_environment", "is_secret"]

_OF_CATALOGS: Final = "PYICEBERG_CATALOG__"


def harmless_environment() -> dict[str, str]:
    """Return this process's environment without secrets: for processes that need none of them."""
    return {name: text for name, text in os.environ.items() if not is_secret(name)}


def is_secret(name: str) -> bool:
    """Whether a variable of the environment may hold a secret: of source, catalog or ledger."""
    return name in SECRETS or name == LEDGER_PASSWORD or name.startswith(_OF_CATALOGS)
