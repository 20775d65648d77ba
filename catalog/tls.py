"""TLS as Python speaks it, to whom the user trusts and nobody else."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from tableformat.errors import UsageError

__all__ = ["TlsNames", "show_certificate", "tls_context"]


@dataclass(frozen=True, slots=True)
class TlsNames:
    """What messages say: what is done, behind "Cannot ", and the settings that name the files."""

    doing: str
    ca: str
    certificate: str
    key: str


def tls_context(
    names: TlsNames, *, ca_file: Path | None = None, ca: str | None = None
) -> ssl.SSLContext:
    """Return what checks a server's certificate and its name.

    Args:
        names: what messages say.
        ca_file: a PEM file with the authorities that are trusted.
        ca: their PEM text, instead. Without both those of the system are trusted.

    Raises:
        UsageError: the authorities cannot be used.
    """
    try:
        # With authorities of its own it does not load those of the system.
        return ssl.create_default_context(cafile=ca_file, cadata=ca)
    except (ssl.SSLError, OSError) as error:
        message = (
            f"Cannot {names.doing}: the certificate of an authority is damaged or cannot be read. "
            f"Correct the file that {names.ca} names."
        )
        raise UsageError(message) from error


def show_certificate(
    context: ssl.SSLContext, names: TlsNames, certificate: Path, key: Path | None = None
) -> None:
    """Let a context show a client certificate, whose key may stand in the same file.

    Raises:
        UsageError: the certificate or its key cannot be used.
    """
    try:
        context.load_cert_chain(certificate, keyfile=key, password=partial(_no_pass_phrase, names))
    except (ssl.SSLError, OSError) as error:
        message = (
            f"Cannot {names.doing}: the client certificate or its key is damaged or cannot be "
            "read, or the key is another certificate's. Correct the files that "
            f"{names.certificate} and {names.key} name."
        )
        raise UsageError(message) from error


def _no_pass_phrase(names: TlsNames) -> NoReturn:
    # Without this OpenSSL asks the terminal, and waits.
    message = (
        f"Cannot {names.doing}: the key of the client certificate is protected by a pass phrase. "
        "Give a key without one, in a file that only its owner may read (openssl pkey -in KEY "
        "-out NEW)."
    )
    raise UsageError(message)
