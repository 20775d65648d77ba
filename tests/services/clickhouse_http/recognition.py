"""Whose request it is: what ClickHouse's HTTP interface makes of headers, parameters, certificates.

The order and the texts are those of ClickHouse 26.x (`authenticateUserByHTTP`). One addition:
a Bearer token, which only ClickHouse Cloud and builds with JWT know.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Final

from tests.services.clickhouse_http.access import DEFAULT_USER, User

__all__ = ["RefusedError", "user_of"]

_FORGOTTEN: Final = (
    "\n\nIf you use ClickHouse Cloud, the password can be reset at https://clickhouse.cloud/\n"
    "on the settings page for the corresponding service.\n\n"
)


class RefusedError(Exception):
    """The request is refused before the engine sees it; `text` is as a server says it."""

    def __init__(self, code: int, name: str, text: str) -> None:
        self.code = code
        self.text = f"Code: {code}. DB::Exception: {text}. ({name})"
        super().__init__(self.text)


def user_of(
    headers: Mapping[str, str],
    given: Mapping[str, str],
    users: Mapping[str, User],
    certificate: str | None,
) -> User:
    """Return the user whom a request names and proves to be.

    Args:
        headers: of the request, their names in lower case.
        given: the parameters of its URL.
        users: all, by name.
        certificate: the common name in the certificate of the client.

    Raises:
        RefusedError: there is no such user, or this is not the user.
    """
    name, password = headers.get("x-clickhouse-user", ""), headers.get("x-clickhouse-key", "")
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    in_headers, in_url = bool(name or password), "user" in given or "password" in given
    if in_headers and (scheme or in_url):
        other = "Authorization HTTP header" if scheme else "authentication via parameters"
        text = f"it is not allowed to use X-ClickHouse HTTP headers and {other} simultaneously"
        raise RefusedError(516, "AUTHENTICATION_FAILED", f"Invalid authentication: {text}")
    if headers.get("x-clickhouse-ssl-certificate-auth") == "on":
        known = users.get(name)
        if known is None or known.certificate is None or known.certificate != certificate:
            raise _unknown(name)
        return known
    if not in_headers and not in_url and scheme.lower() == "bearer":
        for user in users.values():
            if user.token is not None and user.token == secret:
                return user
        raise _unknown("access token")
    if not in_headers and not in_url and scheme.lower() == "basic":
        name, _, password = b64decode(secret).decode().partition(":")
    elif not in_headers:
        name, password = given.get("user", DEFAULT_USER), given.get("password", "")
    found = users.get(name)
    by_password = found is not None and found.token is None and found.certificate is None
    if found is None or not by_password or found.password != password:
        raise _unknown(name)
    return found


def _unknown(name: str) -> RefusedError:
    text = (
        f"{name}: Authentication failed: password is incorrect, or there is no user with such name"
    )
    if name == DEFAULT_USER:
        return RefusedError(194, "REQUIRED_PASSWORD", text + _FORGOTTEN)
    return RefusedError(516, "AUTHENTICATION_FAILED", text)
