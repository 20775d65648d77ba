"""TLS with a server, from PEM texts."""

from __future__ import annotations

import os
import ssl

from catalog.clickhouse.server.credentials import ClientCertificate
from catalog.clickhouse.server.settings import ServerSettings
from catalog.scratch import ScratchDirectory
from catalog.tls import TlsNames, show_certificate, tls_context

__all__ = ["server_tls"]


def server_tls(settings: ServerSettings) -> ssl.SSLContext:
    """Return what checks a server's certificate and its name, and shows ours where there is one.

    Raises:
        UsageError: an authority, a certificate or a key cannot be used.
    """
    names = TlsNames(
        f"read the source {settings.shown}",
        "MERGEBERG_SOURCE_CA_FILE or ca-file",
        "MERGEBERG_SOURCE_CERTIFICATE",
        "MERGEBERG_SOURCE_KEY",
    )
    context = tls_context(names, ca=settings.tls.ca)
    if settings.credentials.certificate is not None:
        _show(context, names, settings.credentials.certificate)
    return context


def _show(context: ssl.SSLContext, names: TlsNames, certificate: ClientCertificate) -> None:
    """Show a certificate; the library takes files only, ours lives a moment."""
    with ScratchDirectory("tls") as made:
        file = made.path / "certificate.pem"
        # Nobody else may read it, not even for the moment before its rights are set.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(f"{certificate.key.reveal()}\n{certificate.certificate}\n")
        show_certificate(context, names, file)
