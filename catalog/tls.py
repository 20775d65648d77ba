"""Creates TLS contexts that trust only the authorities that the user names."""

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
    """The words of messages: the action after "Cannot ", and the settings that name the files."""

    doing: str
    ca: str
    certificate: str
    key: str


def tls_context(
    names: TlsNames, *, ca_file: Path | None = None, ca: str | None = None
) -> ssl.SSLContext:
    """Return a TLS context that verifies a server's certificate and host name.

    Args:
        names: the words of messages.
        ca_file: a PEM file with the trusted authorities.
        ca: their PEM text, instead. Without both, the authorities of the system are trusted.

    Raises:
        UsageError: the authorities cannot be used.
    """
    try:
        # With explicit authorities it does not load those of the system.
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
    """Add a client certificate to a context; its key may be in the same file.

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
    # Without a password function OpenSSL would ask the terminal, and wait.
    message = (
        f"Cannot {names.doing}: the key of the client certificate is protected by a pass phrase. "
        "Give a key without one, in a file that only its owner may read (openssl pkey -in KEY "
        "-out NEW)."
    )
    raise UsageError(message)
