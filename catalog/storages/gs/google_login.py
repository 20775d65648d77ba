"""Who asks, as Google's library has it: a service account by its key, or whom the host knows.

This is the one door to google-auth. Tokens are asked for when the last one ends soon.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

import google.auth
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.urllib3 import Request
from google.oauth2.service_account import Credentials
from urllib3 import PoolManager

from catalog.storages.over_http.requests import LoginError

__all__ = ["GoogleLogin"]

_SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)


class GoogleLogin:
    """Returns the headers of a request; used by any number of threads."""

    def __init__(self, key: str | None, pool: PoolManager) -> None:
        """Begin; nothing is asked yet.

        Args:
            key: the text of a service account's key file, None for what the host knows.
            pool: connections, for asking for tokens.
        """
        self._key, self._request, self._lock = key, Request(pool), Lock()
        self._credentials: Any = None

    def __call__(self) -> Mapping[str, str]:
        """Return the headers that say who asks.

        Raises:
            LoginError: nobody can be named.
        """
        headers: dict[str, str] = {}
        try:
            with self._lock:
                if self._credentials is None:
                    self._credentials = self._found()
                self._credentials.before_request(self._request, "GET", "", headers)
        except (GoogleAuthError, ValueError) as error:
            again = isinstance(error, TransportError) or getattr(error, "retryable", False)
            said = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            raise LoginError(said, is_transient=again) from error
        return headers

    def _found(self) -> Any:
        if self._key is None:
            return google.auth.default(scopes=_SCOPES, request=self._request)[0]
        return Credentials.from_service_account_info(json.loads(self._key), scopes=_SCOPES)
