"""Who asks Google Cloud Storage: a token that is given, nobody, or whom Google's library finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from urllib3 import PoolManager

from catalog.storages.gs.access import GsAccess
from tableformat.errors import UnsupportedError

__all__ = ["Login", "login_of"]

Login = Callable[[], Mapping[str, str]]
"""Returns the headers of a request, which say who asks; it may ask for a new token before."""


def login_of(access: GsAccess, pool: PoolManager) -> Login:
    """Return who asks.

    Args:
        access: what is known of it.
        pool: connections, for asking for tokens.

    Raises:
        UnsupportedError: Google's library is needed, and is not installed.
    """
    if access.token is not None:
        headers = {"Authorization": f"Bearer {access.token}"}
        return lambda: headers
    if access.is_anonymous:
        return dict
    try:
        from catalog.storages.gs.google_login import GoogleLogin
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "google":
            raise
        message = (
            "Cannot log in to Google Cloud Storage: google-auth is not installed. Run: pip install "
            "'mergeberg[gs]', on every host that writes, or give a token (gcs.oauth2.token)."
        )
        raise UnsupportedError(message) from error
    return GoogleLogin(access.key, pool)
