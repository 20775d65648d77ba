"""How a connection to Keeper is made and ended: TLS, time-outs, and what went wrong last.

The library tries again by itself, for ever, and says why only in its log.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import WriterNotClosedException
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from catalog.ledgers.keeper_address import CA_FILE, CERTIFICATE, KEY, KeeperAddress
from catalog.tls import TlsNames, show_certificate, tls_context

__all__ = ["Connection"]

_SECONDS_TO_CONNECT: Final = 5.0
_SECONDS_TO_END: Final = 2.0
_LONGEST_PAUSE: Final = 1.0


class Connection:
    """A session with one server of an ensemble at a time, until it is closed.

    `trouble` is what went wrong last, '' when nothing did since it was connected.
    """

    def __init__(self, address: KeeperAddress) -> None:
        """Begin to connect.

        Raises:
            UsageError: a certificate, a key or an authority cannot be used.
        """
        self._sockets = _Sockets(_tls_context(address) if address.secure else None)
        self._heard = _Heard()
        # Of its own, so that the library says nothing past us.
        logger = logging.Logger("keeper", logging.WARNING)  # noqa: LOG001
        logger.addHandler(self._heard)
        login = (
            [("digest", f"{address.user}:{address.password}")]
            if address.password is not None
            else None
        )
        self.client = KazooClient(
            ",".join(address.hosts),
            timeout=address.session_seconds,
            handler=self._sockets,
            auth_data=login,
            default_acl=CREATOR_ALL_ACL if address.has_credentials else OPEN_ACL_UNSAFE,
            connection_retry=KazooRetry(
                max_tries=-1, max_delay=_LONGEST_PAUSE, sleep_func=self._sockets.sleep_func
            ),
            logger=logger,
        )
        self._connected = threading.Event()
        self.client.add_listener(self._noted)
        self.client.start_async()

    def _noted(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._heard.last = ""
            self._connected.set()
        else:
            self._connected.clear()

    @property
    def trouble(self) -> str:
        """What went wrong last."""
        return self._heard.last

    @property
    def session(self) -> int:
        """The number of the session, which changes when the servers took us for dead."""
        known = self.client.client_id
        return int(known[0]) if known else 0

    def wait(self, seconds: float) -> bool:
        """Return whether it is connected, as soon as it is."""
        return self._connected.wait(max(seconds, 0.0))

    def close(self) -> None:
        """End the session, of which no thread and no socket is left, also when nobody answers."""
        cut = threading.Timer(
            _SECONDS_TO_END if self._connected.is_set() else 0.0, self._sockets.cut
        )
        cut.start()
        try:
            self.client.stop()
        except WriterNotClosedException:
            # Its thread waits for a name server, and ends when that has answered, or with us.
            return
        finally:
            cut.cancel()
            cut.join()
        self.client.close()


class _Sockets(SequentialThreadingHandler):  # type: ignore[misc]
    """Makes the library's sockets, and can end them."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self._lock = threading.Lock()
        self._open: socket.socket | None = None
        self._is_cut = False

    def create_connection(self, address: tuple[str, int], **settings: Any) -> socket.socket:
        """Connect, as the library does, but trusting whom the user trusts and nobody else."""
        made = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        try:
            self._keep(made)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.settimeout(min(float(settings["timeout"]), _SECONDS_TO_CONNECT))
            made.connect(address)
            if self._tls is not None:
                made = self._tls.wrap_socket(
                    made, server_hostname=str(settings["hostname"]).strip("[]")
                )
                self._keep(made)
        except BaseException:
            made.close()
            raise
        return made

    def _keep(self, made: socket.socket) -> None:
        """Note the socket that is to be ended.

        Raises:
            ConnectionAbortedError: no other connection may be made.
        """
        with self._lock:
            if self._is_cut:
                raise ConnectionAbortedError("the ledger is being closed")
            self._open = made

    def cut(self) -> None:
        """End the connection, whatever it waits for, and make no other one."""
        with self._lock:
            self._is_cut = True
            if self._open is not None and self._open.fileno() >= 0:
                try:
                    socket.socket.shutdown(self._open, socket.SHUT_RDWR)
                except OSError:
                    # It was never connected, or the other side was first.
                    return


class _Heard(logging.Handler):
    """Keeps the last warning of the library."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning."""
        self.last = record.getMessage()


def _tls_context(address: KeeperAddress) -> ssl.SSLContext:
    names = TlsNames(f"open the ledger {address.shown}", CA_FILE, CERTIFICATE, KEY)
    context = tls_context(names, ca_file=address.ca_file)
    if address.certificate is not None:
        show_certificate(context, names, address.certificate, address.key)
    return context
