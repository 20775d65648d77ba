"""Who logs in at a server: a user with a password, an access token, or a client certificate.

All are texts, never paths, so that tasks on other hosts can have them. They pickle; but no repr, no
str and no message of theirs shows a secret, and `Credentials.masked` takes it out of what a server
said. Values that HTTP would change or break (it trims header values and ends them at a line's end)
are refused here, because the library below would show them in its own error.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final

from tableformat.errors import UsageError

__all__ = ["ClientCertificate", "Credentials", "Secret"]

_MASK: Final = "***"
# Shorter ones stand in any text by chance: to mask them would show where they stand.
_SHORTEST_MASKED: Final = 4


class Secret:
    """A text that only `reveal` shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """Keep `text`."""
        self._text = text

    def reveal(self) -> str:
        """Return the text: to send it, never to show it."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({_MASK!r})"

    def __str__(self) -> str:
        return _MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate, with the chain above it, and its private key; both are PEM texts."""

    certificate: str
    key: Secret


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to log in; without anything it is the user `default` without a password.

    A certificate alone logs the user in; beside a password or a token it is shown to who asks for
    one when the connection is made, and the other logs in.
    """

    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    certificate: ClientCertificate | None = None

    def __post_init__(self) -> None:
        if self.token is not None and (self.password is not None or self.user is not None):
            other = "a user" if self.password is None else "a password"
            message = (
                f"Cannot log in to ClickHouse: an access token and {other} are given, and a token "
                "says by itself who logs in. Give one of the two."
            )
            raise UsageError(message)
        _check_header("user name", self.user)
        _check_header("password", None if self.password is None else self.password.reveal())
        _check_header("access token", None if self.token is None else self.token.reveal())

    @property
    def shown(self) -> str:
        """Who logs in, for messages."""
        if self.token is not None:
            return "an access token"
        how = " by a client certificate" if self.certificate and not self.password else ""
        return f"the user '{self.user or 'default'}'{how}"

    @property
    def to_check(self) -> str:
        """What to look at when the server does not let the user in, behind 'Check'."""
        if self.token is not None:
            return "MERGEBERG_SOURCE_TOKEN"
        if self.password is not None:
            return "MERGEBERG_SOURCE_USER and MERGEBERG_SOURCE_PASSWORD"
        if self.certificate is not None:
            return "whether the server lets that user in by this certificate"
        return "MERGEBERG_SOURCE_USER, and set MERGEBERG_SOURCE_PASSWORD: no password was given"

    def headers(self) -> dict[str, str]:
        """Return the headers of a request; nothing of it may stand in its address."""
        if self.token is not None:
            return {"Authorization": f"Bearer {_as_sent(self.token.reveal())}"}
        found = {"X-ClickHouse-User": _as_sent(self.user or "default")}
        if self.password is not None:
            found["X-ClickHouse-Key"] = _as_sent(self.password.reveal())
        elif self.certificate is not None:
            found["X-ClickHouse-SSL-Certificate-Auth"] = "on"
        return found

    def masked(self, text: str) -> str:
        """Return what somebody else said, without our secrets in it."""
        for secret in (self.password, self.token):
            if secret is not None and len(secret.reveal()) >= _SHORTEST_MASKED:
                text = text.replace(secret.reveal(), _MASK)
        return text


def _check_header(what: str, text: str | None) -> None:
    if text is None:
        return
    if not text or text != text.strip(" \t") or any(_is_control(one) for one in text):
        message = (
            f"Cannot log in to ClickHouse: the {what} is empty, begins or ends with a blank, or "
            "has a control character or half of one in it, which HTTP does not carry. Correct it, "
            "or choose another one."
        )
        raise UsageError(message)


def _as_sent(text: str) -> str:
    """Return what the library below, which writes headers as Latin-1, sends as UTF-8."""
    return text.encode().decode("latin-1")


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs")
