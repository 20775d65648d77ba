"""Authenticates with Google's library: a service account by its key, or the host's credentials.

Only this module imports google-auth. A new token is requested shortly before the last one expires.
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
    """Returns the authentication headers of a request. Safe from threads."""

    def __init__(self, key: str | None, pool: PoolManager) -> None:
        """Keep the settings; nothing is requested yet.

        Args:
            key: the text of a service account's key file, None for the host's credentials.
            pool: connections for requesting tokens.
        """
        self._key, self._request, self._lock = key, Request(pool), Lock()
        self._credentials: Any = None

    def __call__(self) -> Mapping[str, str]:
        """Return the authentication headers.

        Raises:
            LoginError: there are no valid credentials.
        """
        headers: dict[str, str] = {}
        try:
            with self._lock:
                if self._credentials is None:
                    self._credentials = self._found()
                self._credentials.before_request(self._request, "GET", "", headers)
        except (GoogleAuthError, ValueError) as error:
            again = isinstance(error, TransportError) or getattr(error, "retryable", False)
            reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            raise LoginError(reason, is_transient=again) from error
        return headers

    def _found(self) -> Any:
        if self._key is None:
            return google.auth.default(scopes=_SCOPES, request=self._request)[0]
        return Credentials.from_service_account_info(json.loads(self._key), scopes=_SCOPES)
