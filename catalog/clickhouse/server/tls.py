"""TLS as Python speaks it, from PEM texts."""

from __future__ import annotations

import os
import ssl
from typing import NoReturn

from catalog.clickhouse.server.credentials import ClientCertificate
from catalog.clickhouse.server.settings import ServerSettings
from catalog.scratch import ScratchDirectory
from tableformat.errors import UsageError

__all__ = ["tls_context"]


def tls_context(settings: ServerSettings) -> ssl.SSLContext:
    """Return what checks a server's certificate and its name, and shows ours where there is one.

    Raises:
        UsageError: an authority, a certificate or a key cannot be used.
    """
    ca = settings.tls.ca
    try:
        # With authorities of its own it does not load those of the system.
        context = ssl.create_default_context(cadata=ca)
    except ssl.SSLError as error:
        message = (
            "Cannot use the certificate of an authority: it is damaged. Correct the file that "
            "MERGEBERG_SOURCE_CA_FILE or ca-file names."
        )
        raise UsageError(message) from error
    if settings.credentials.certificate is not None:
        _load(context, settings.credentials.certificate)
    return context


def _load(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    """Give a context the certificate; the library takes files only, ours lives a moment."""
    with ScratchDirectory("tls") as made:
        file = made.path / "certificate.pem"
        # Nobody else may read it, not even for the moment before its rights are set.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(f"{certificate.key.reveal()}\n{certificate.certificate}\n")
        try:
            context.load_cert_chain(file, password=_no_pass_phrase)
        except ssl.SSLError as error:
            message = (
                "Cannot use the client certificate: it or its key is damaged, or the key is "
                "another certificate's. Correct the files that MERGEBERG_SOURCE_CERTIFICATE and "
                "MERGEBERG_SOURCE_KEY name."
            )
            raise UsageError(message) from error


def _no_pass_phrase() -> NoReturn:
    # Without this OpenSSL asks the terminal, and waits.
    message = (
        "Cannot use the client certificate: its key is protected by a pass phrase. Give a key "
        "without one, in a file that only its owner may read (openssl pkey -in KEY -out NEW)."
    )
    raise UsageError(message)
