"""One sentence for each way in which a server is not reached, or its answer breaks off.

Written from what urllib3 and OpenSSL raise, whose own texts name objects and lines of source code.
A host that takes no connection, ends one, or says nothing in time is gone (`SourceGoneError`), and
another replica may go on. What speaks, but not as it should, is not: a certificate, another
protocol, bytes that cannot be decompressed.
"""

from __future__ import annotations

import re
import ssl
import zlib
from http.client import BadStatusLine, RemoteDisconnected
from typing import Final

from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
)

from catalog.clickhouse.server.settings import Host, ServerSettings
from tableformat.errors import SourceError, SourceGoneError

__all__ = ["broke_off", "could_be_repeated", "not_answered"]

# X509_V_ERR_... of OpenSSL: before its time, after it; another name, another address.
_NOT_YET: Final = 9
_EXPIRED: Final = 10
_OTHER_NAME: Final = (62, 64)
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_ALERT: Final = re.compile(r"ALERT_(?P<what>[A-Z_]+)")


def could_be_repeated(error: HTTPError) -> bool:
    """Tell whether a request may be sent again: nothing of an answer came, and soon.

    True says nothing about whether the statement was performed.
    """
    if isinstance(error, NameResolutionError):
        return False
    if isinstance(error, NewConnectionError):
        return isinstance(_cause(error, OSError), ConnectionError)
    return any(_cause(error, kind) is not None for kind in (ConnectionError, ssl.SSLEOFError))


def not_answered(settings: ServerSettings, host: Host, error: HTTPError) -> SourceError:
    """Return why there is no answer, or only the beginning of its head."""
    secure = _cause(error, ssl.SSLError)
    if isinstance(secure, ssl.SSLError):
        return _of(host, _tls(secure))
    if isinstance(error, NameResolutionError):
        return _gone(
            host, f"no address is known for the name {host.name}. Check the name in --source"
        )
    reason = _cause(error, OSError)
    if isinstance(error, NewConnectionError):
        said = (reason.strerror if isinstance(reason, OSError) else None) or "no connection"
        return _gone(
            host,
            f"{said}. Check that the server runs and listens on port {host.port} (usually 8443 for "
            "https, 8123 for http)",
        )
    if isinstance(error, ConnectTimeoutError):
        return _gone(
            host,
            f"it took no connection within {settings.connect_timeout:g} s. Check the address and "
            "firewalls on the way, or add ?connect-timeout=SECONDS to --source",
        )
    if isinstance(error, ReadTimeoutError):
        if "handshake" in str(reason):
            return _gone(
                host,
                f"TLS did not begin within {settings.connect_timeout:g} s. Check that this is the "
                "server's port for https (usually 8443)",
            )
        return _gone(host, _silent(settings))
    also = "" if host.is_secure else ", and whether it expects https on this port"
    if isinstance(_cause(error, BadStatusLine), BadStatusLine) and not isinstance(
        _cause(error, RemoteDisconnected), RemoteDisconnected
    ):
        return _of(host, f"what answers there does not speak HTTP. Check the port{also}")
    return (_gone if isinstance(reason, OSError) else _of)(
        host,
        "it ended the connection before it answered; the statement may have been performed or "
        f"not. Check that the server runs{also}, and run again",
    )


def broke_off(settings: ServerSettings, host: Host, error: Exception, received: int) -> SourceError:
    """Return why an answer has a beginning and no end."""
    if _cause(error, ReadTimeoutError) or _cause(error, TimeoutError):
        return _gone(host, f"after {received} bytes of an answer {_silent(settings)}")
    return (SourceError if isinstance(error, zlib.error) else SourceGoneError)(
        f"Cannot read from ClickHouse at {host.url}: its answer breaks off after {received} bytes. "
        "The server or a proxy on the way ended the connection; run again."
    )


def _silent(settings: ServerSettings) -> str:
    return (
        f"nothing came for {settings.read_timeout:g} s; the statement may still run there. Look in "
        "system.processes, or add ?read-timeout=SECONDS to --source"
    )


def _tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        if error.verify_code == _EXPIRED:
            return "its certificate has expired. Renew it on the server, and check the clock here"
        if error.verify_code == _NOT_YET:
            return "its certificate is not valid yet. Check the clocks of both sides"
        if error.verify_code in _OTHER_NAME:
            return f"its certificate is another's ({said}). Use a name that stands in it"
        return (
            f"no authority that is trusted here signed its certificate ({said}). Name the "
            "authority's certificate in MERGEBERG_SOURCE_CA_FILE"
        )
    reason = error.reason or ""
    if any(word in reason for word in _NOT_TLS):
        return (
            f"it does not speak TLS on this port ({reason}). Use its port for https (usually 8443)"
        )
    alert = _ALERT.search(reason)
    if alert or isinstance(error, ssl.SSLEOFError):
        said = alert["what"].lower().replace("_", " ") if alert else "it gave no reason"
        return (
            f"it ended the connection over TLS ({said}). If it wants a client certificate, name "
            "one of its own authority in MERGEBERG_SOURCE_CERTIFICATE and MERGEBERG_SOURCE_KEY"
        )
    return f"TLS failed ({reason or type(error).__name__}). Check the port and the server's log"


def _of(host: Host, why: str) -> SourceError:
    return SourceError(_cannot_reach(host, why))


def _gone(host: Host, why: str) -> SourceGoneError:
    return SourceGoneError(_cannot_reach(host, why))


def _cannot_reach(host: Host, why: str) -> str:
    return f"Cannot reach ClickHouse at {host.url}: {why}."


def _cause(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """Return the first of a kind among an error, what it carries and what it was raised from."""
    seen: list[BaseException] = []
    waiting: list[BaseException] = [error]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, kind):
            return one
        seen.append(one)
        more = (*one.args, one.__cause__, one.__context__, getattr(one, "reason", None))
        waiting += [m for m in more if isinstance(m, BaseException) and m not in seen]
    return None
