"""What HDFS answers where it does not do what was asked, and what to do then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from catalog.storages.hdfs.access import ENDPOINT, NAME, TOKEN, USER
from catalog.storages.over_http.failures import NOBODY, RefusalError, Store

__all__ = ["IN_CLEAR", "MISSING", "NO_OPTIONS", "OTHER_CLUSTER", "STORE", "HdfsRefusalError"]

MISSING: Final = "FileNotFoundException"
IN_CLEAR: Final = 307
OTHER_CLUSTER: Final = 421
NO_OPTIONS: Final = 501
_TAKEN: Final = "FileAlreadyExistsException"
# A plain IOException is what a NameNode says whose DataNodes are away, and one that is ending.
_OF_OUTAGES: Final = (
    "IOException",
    "RetriableException",
    "SafeModeException",
    "StandbyException",
    "ServerNotActiveException",
)
_OF_LOGIN: Final = ("InvalidToken", "SecurityException", "AuthenticationException")
STORE: Final = Store(
    NAME,
    ENDPOINT,
    login=f"name a user ({USER}), or give a delegation token ({TOKEN})",
    advice={
        IN_CLEAR: (
            "let the DataNodes serve https (dfs.http.policy: HTTPS_ONLY), as the NameNode does"
        ),
        400: (
            "use names without a colon, and let the NameNode keep extended attributes "
            "(dfs.namenode.xattrs.enabled)"
        ),
        NOBODY: (
            "the cluster does not believe who asks: give a delegation token that has not ended "
            f"(hdfs fetchdt, {TOKEN}); Kerberos itself is not spoken; finished files are kept"
        ),
        403: (
            "let the user read, write and enter the directory (hdfs dfs -chown, -chmod or "
            "-setfacl), and see to its quota"
        ),
        404: f"check that {ENDPOINT} is where the NameNode serves WebHDFS",
        NO_OPTIONS: (
            f"name the NameNode itself as {ENDPOINT}: a gateway, as HttpFS, replaces files, or "
            "leaves them as they were, without a word"
        ),
        OTHER_CLUSTER: f"correct the location, or {ENDPOINT}",
    },
)


class HdfsRefusalError(RefusalError):
    """An answer in the form of WebHDFS, or in none; `reason` is the class that Java raised."""

    @classmethod
    def of(cls, status: int, _headers: Mapping[str, str], body: bytes) -> HdfsRefusalError:
        """Read an answer; one that is not of the form of an error is its own text."""
        reason, text = "", body.decode("utf-8", "replace")
        try:
            found: Any = json.loads(body)["RemoteException"]
            # Behind the first line is where in Java's code it happened.
            reason, text = str(found["exception"]), str(found["message"]).partition("\n")[0]
        except (ValueError, KeyError, TypeError):
            pass
        return cls(status, reason, text)

    @property
    def is_missing(self) -> bool:
        """Whether it says that there is no such file: another server's 404 does not."""
        return self.reason == MISSING

    @property
    def is_taken(self) -> bool:
        """Whether there is a file of that name."""
        return self.reason == _TAKEN

    @property
    def is_transient(self) -> bool:
        """Also when it is not the active NameNode, not ready yet, or has no DataNode."""
        return super().is_transient or self.reason in _OF_OUTAGES

    @property
    def is_of_nobody(self) -> bool:
        """Also when a token has ended."""
        return super().is_of_nobody or self.reason in _OF_LOGIN
