"""Certificates for tests: an authority of a test's own, and what it signs. Made by `openssl`."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Authority", "Identity"]

_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, as PEM files and texts."""

    certificate: Path
    key: Path

    @property
    def texts(self) -> tuple[str, str]:
        return self.certificate.read_text(), self.key.read_text()

    def kept_for_java(self, password: str) -> Path:
        """Return a file with both that Java opens by a password."""
        kept = self.certificate.with_suffix(".p12")
        _openssl(
            *("pkcs12", "-export", "-inkey", self.key, "-in", self.certificate),
            *("-out", kept, "-passout", f"pass:{password}"),
        )
        return kept


class Authority:
    """An authority whose certificate is in `file`; `name` tells several apart."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory, self._name, self._signed = directory, name, 0
        self.file, self._key = directory / f"{name}.pem", directory / f"{name}.key"
        _openssl(
            *("req", "-x509", *_KEY, "-keyout", self._key, "-out", self.file, "-days", "30"),
            *("-subj", f"/CN=Tests {name}"),
            *("-addext", "keyUsage=critical,keyCertSign"),
        )

    @property
    def text(self) -> str:
        return self.file.read_text()

    def sign(
        self, *, names: str = "DNS:localhost,IP:127.0.0.1", subject: str = "server", days: int = 30
    ) -> Identity:
        """Sign a certificate for some names; with `days` below 0 its time is over."""
        self._signed += 1
        stem = f"{self._name}-{self._signed}"
        request, rules, key, certificate = (
            self._directory / f"{stem}.{kind}" for kind in ("csr", "ext", "key", "pem")
        )
        rules.write_text(
            f"subjectAltName={names}\nauthorityKeyIdentifier=keyid\n"
            "basicConstraints=CA:FALSE\nkeyUsage=critical,digitalSignature\n"
        )
        _openssl("req", "-new", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={subject}")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self._key),
            *("-CAcreateserial", "-extfile", rules, "-out", certificate, "-days", str(days)),
        )
        return Identity(certificate, key)


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
