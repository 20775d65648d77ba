"""The authorities that a Java machine trusts, made of PEM files: it reads none itself."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

__all__ = ["trust_store", "trusting"]

# A file of this kind that holds nothing but certificates need not be secret.
_PASSWORD: Final = "changeit"  # noqa: S105
# The program keytool is no part of a runtime that a package brings; what it starts is.
_KEYTOOL: Final = "java.base/sun.security.tools.keytool.Main"


def trust_store(java_home: Path, authority: Path, to: Path) -> Path:
    """Make a store that trusts one authority; return its file.

    Args:
        java_home: of the Java that makes it; any other can read it.
        authority: the authority's certificate, as PEM.
        to: the file, which must not exist.
    """
    words = ("-importcert", "-noprompt", "-alias", "authority", "-file", str(authority))
    store = ("-keystore", str(to), "-storetype", "PKCS12", "-storepass", _PASSWORD)
    made = subprocess.run(
        [java_home / "bin" / "java", "--module", _KEYTOOL, *words, *store],
        capture_output=True,
        check=False,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return to


def trusting(store: Path) -> tuple[str, ...]:
    """Return the options of a Java machine that trusts what is in a store, and nobody else."""
    option = "-Djavax.net.ssl.trustStore"
    return f"{option}={store}", f"{option}Type=PKCS12", f"{option}Password={_PASSWORD}"
