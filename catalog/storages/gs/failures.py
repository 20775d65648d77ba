"""What Google Cloud Storage answers where it does not do what was asked, and what to do then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from catalog.storages.gs.access import ENDPOINT, NAME
from catalog.storages.over_http.failures import NOBODY, RefusalError, Store

__all__ = ["STORE", "GsRefusalError"]

_BAD_REQUEST: Final = 400
_RATE: Final = ("rateLimitExceeded", "userRateLimitExceeded")
STORE: Final = Store(
    NAME,
    ENDPOINT,
    login=(
        "give a token (gcs.oauth2.token), or name a file of credentials in "
        "GOOGLE_APPLICATION_CREDENTIALS"
    ),
    advice={
        NOBODY: (
            "the credentials are wrong or have ended: get new ones, which a catalog that lends "
            "them does by itself; finished files are kept"
        ),
        403: (
            "grant storage.objects.list, storage.objects.get, storage.objects.create and "
            "storage.objects.delete on the bucket (roles/storage.objectUser has them)"
        ),
        404: "make the bucket, or correct the location",
        501: "the server lacks what an export needs; use another one",
    },
)


class GsRefusalError(RefusalError):
    """An answer in Google's form, or in none."""

    @classmethod
    def of(cls, status: int, _headers: Mapping[str, str], body: bytes) -> GsRefusalError:
        """Read an answer; one that is not Google's form of an error is its own text."""
        reason, text = "", body.decode("utf-8", "replace")
        try:
            found: Any = json.loads(body)["error"]
            text = str(found["message"])
            reason = str(found["errors"][0]["reason"])
        except (ValueError, KeyError, IndexError, TypeError):
            pass
        return cls(status, reason, text)

    @property
    def is_transient(self) -> bool:
        """Also when there were too many requests, or when bytes changed on their way."""
        changed = self.status == _BAD_REQUEST and "MD5" in str(self)
        return super().is_transient or changed or self.reason in _RATE
