"""Sends requests to Keeper, bounded in time, and repeats them until a response arrives.

- The caller passes a request as a function that may run again. A lost response does not show
  whether the servers applied the request, so the function reads the state first and continues
  from there.
- `Connection` opens and ends one session: TLS, time-outs and the last failure. kazoo retries for
  ever and writes its reason only to its log; this module bounds it and keeps the reason for the
  error.

See docs/spec/keeper-ledger.md, "When an answer is lost".
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
    WriterNotClosedException,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from catalog.ledgers.keeper.address import CA_FILE, CERTIFICATE, KEY, KeeperAddress
from catalog.network import TlsNames, show_certificate, tls_context
from tableformat.errors import LedgerError

__all__ = [
    "UNMET_CONDITIONS",
    "AttemptError",
    "Change",
    "Connection",
    "KeeperSession",
    "NoResponseError",
    "Request",
    "check",
    "children",
    "create",
    "delete",
    "first_failure",
    "read",
    "set_data",
    "stat",
    "sync",
    "transaction",
]

_SECONDS_TO_CONNECT: Final = 5.0
_SECONDS_TO_END: Final = 2.0
_LONGEST_PAUSE: Final = 1.0


class Connection:
    """One session with an ensemble, through one server at a time, until it is closed.

    `last_warning` is the last failure, '' when nothing failed since the connection was made.
    """

    def __init__(self, address: KeeperAddress) -> None:
        """Start to connect.

        Raises:
            UsageError: a certificate, a key or an authority cannot be used.
        """
        self._sockets = _Sockets(_tls_context(address) if address.secure else None)
        self._warning = _LastWarning()
        # A logger outside the hierarchy, so that kazoo's messages reach no other handler.
        logger = logging.Logger("keeper", logging.WARNING)  # noqa: LOG001
        logger.addHandler(self._warning)
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
        self.client.add_listener(self._note_state)
        self.client.start_async()

    def _note_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._warning.text = ""
            self._connected.set()
        else:
            self._connected.clear()

    @property
    def last_warning(self) -> str:
        """The last failure that kazoo logged."""
        return self._warning.text

    @property
    def session(self) -> int:
        """The session's number, which changes when the servers expire the session."""
        known = self.client.client_id
        return int(known[0]) if known else 0

    def wait(self, seconds: float) -> bool:
        """Wait until the session is connected; return whether it is."""
        return self._connected.wait(max(seconds, 0.0))

    def close(self) -> None:
        """End the session with its threads and sockets, even if no server responds."""
        abort = threading.Timer(
            _SECONDS_TO_END if self._connected.is_set() else 0.0, self._sockets.abort
        )
        abort.start()
        try:
            self.client.stop()
        except WriterNotClosedException:
            # kazoo's thread waits for a name server; it ends with that response or this process.
            return
        finally:
            abort.cancel()
            abort.join()
        self.client.close()


class _Sockets(SequentialThreadingHandler):  # type: ignore[misc]
    """Opens kazoo's sockets and can end them."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self._lock = threading.Lock()
        self._open: socket.socket | None = None
        self._is_aborted = False

    def create_connection(self, address: tuple[str, int], **settings: Any) -> socket.socket:
        """Connect as kazoo does, but trust only the authorities that the address names."""
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
        """Remember the socket that `abort` ends.

        Raises:
            ConnectionAbortedError: `abort` was called, so no connection may be made.
        """
        with self._lock:
            if self._is_aborted:
                raise ConnectionAbortedError("the ledger is being closed")
            self._open = made

    def abort(self) -> None:
        """End the connection, even if it waits, and refuse further ones."""
        with self._lock:
            self._is_aborted = True
            if self._open is not None and self._open.fileno() >= 0:
                try:
                    socket.socket.shutdown(self._open, socket.SHUT_RDWR)
                except OSError:
                    # It was never connected, or the server closed it first.
                    return


class _LastWarning(logging.Handler):
    """Keeps kazoo's last warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning."""
        self.text = record.getMessage()


def _tls_context(address: KeeperAddress) -> ssl.SSLContext:
    names = TlsNames(f"open the ledger {address.shown}", CA_FILE, CERTIFICATE, KEY)
    context = tls_context(names, ca_file=address.ca_file)
    if address.certificate is not None:
        show_certificate(context, names, address.certificate, address.key)
    return context


T = TypeVar("T")
Request = Callable[[KazooClient], Any]
"""Sends a request of a client; returns the library's future."""
Change = Callable[[TransactionRequest], Any]
"""Adds a change to those that are made together or not at all."""

UNMET_CONDITIONS: Final = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)
"""Keeper's results when a node is not as the request requires: a result, not a failure."""
_NO_RESPONSE: Final = (
    *(ConnectionLoss, ConnectionClosedError, OperationTimeoutError, SessionExpiredError),
    *(SessionMovedError, KazooTimeoutError),
)
_ROLLED_BACK: Final = (RolledBackError, RuntimeInconsistency)
_IN_FLIGHT: Final = 64
"""How many requests wait for their responses at a time."""
_SECONDS_WHILE_UNREACHABLE: Final = 2.0
"""Time limit once the servers did not respond within the full time-out, or after `leave`."""
_POLL_SECONDS: Final = 0.25
"""How often a waiting thread checks whether it has to give up."""

_CHECK_SERVERS: Final = (
    "Check that its servers run and can be reached from here, and run it again: it is safe"
)


class AttemptError(Exception):
    """A failed attempt, with the reason and the advice for the user.

    It never leaves the ledger: `KeeperSession.within` turns it into a LedgerError. If it is
    `retryable`, another attempt may succeed.
    """

    def __init__(
        self,
        reason: str,
        advice: str = "Run it again: it is safe",
        *,
        retryable: bool = False,
    ) -> None:
        """Keep the reason, the advice and whether a retry may succeed."""
        super().__init__(reason)
        self.reason, self.advice, self.retryable = reason, advice, retryable


class NoResponseError(AttemptError):
    """No response arrived; a retry succeeds when the servers are back."""

    def __init__(self, reason: str) -> None:
        """Keep the reason, as far as it is known."""
        super().__init__(reason, _CHECK_SERVERS, retryable=True)


class KeeperSession:
    """Sends requests to the servers of an address. Safe from threads.

    The first request connects.
    """

    def __init__(self, address: KeeperAddress) -> None:
        """Keep the address."""
        self._address = address
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._deadline = threading.local()
        self._is_unreachable = False
        self._leaving_until = math.inf
        self.requests = 0
        """How many requests were sent."""

    @property
    def number(self) -> int:
        """The session's number, 0 before there is one."""
        with self._lock:
            return self._connection.session if self._connection is not None else 0

    @property
    def shown(self) -> str:
        """The ledger's address without secrets."""
        return self._address.shown

    def within(self, action: str, attempt: Callable[[], T]) -> T:
        """Run an attempt, and repeat it while it fails in a way that may pass and time is left.

        An attempt starts within the address's time-out. Each response extends the deadline by one
        time-out, so an attempt of many requests may take longer. If the last response arrived less
        than a time-out before the attempt failed, one more attempt starts.

        Once a time-out has passed without a response, later operations wait for only two seconds,
        until a response arrives: a command runs many operations, and each would wait in full.

        Args:
            action: the action as it follows "Cannot " in the message.
            attempt: sends requests; runs again after a retryable failure.

        Raises:
            LedgerError: no attempt succeeded.
            UsageError: a certificate, a key or an authority cannot be used.
        """
        started = time.monotonic()
        self._deadline.at = deadline = started + self._time_limit
        is_last = False
        while True:
            try:
                return attempt()
            except AttemptError as failure:
                now = time.monotonic()
                if failure.retryable and self._seconds_left() > 0 and not is_last:
                    is_last = now >= deadline
                    continue
                self._is_unreachable = isinstance(failure, NoResponseError)
                raise self._error(action, failure, now - started) from failure

    @property
    def _time_limit(self) -> float:
        seconds = self._address.seconds
        return min(seconds, _SECONDS_WHILE_UNREACHABLE) if self._is_unreachable else seconds

    def _error(self, action: str, failure: AttemptError, seconds: float) -> LedgerError:
        """Return the error for a failure that lasted this many seconds."""
        reason = self._masked(failure.reason.rstrip("."))
        if failure.retryable:
            reason = f"{reason}, for {_rounded_down(seconds):g} s"
        return LedgerError(
            f"Cannot {action} of the ledger {self.shown}: {reason}. {failure.advice}."
        )

    def _masked(self, text: str) -> str:
        password = self._address.password
        return text.replace(password, "***") if password else text

    def send(self, *requests: Request) -> list[Any]:
        """Send requests, which the servers execute in this order; return their responses.

        An unmet condition (`UNMET_CONDITIONS`) is returned, not raised.

        Raises:
            AttemptError: a response did not arrive, or Keeper refused a request.
        """
        responses: list[Any] = []
        sessions: set[int] = set()
        for batch in _batches(requests):
            connection = self._connected()
            sessions.add(connection.session)
            self.requests += len(batch)
            futures = [request(connection.client) for request in batch]
            responses.extend(self._response(connection, future) for future in futures)
            sessions.add(connection.session)
        if len(sessions) > 1:
            # The new session's server may lag behind the state that the old one has read.
            raise AttemptError("the session ended before all responses arrived", retryable=True)
        return responses

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is None:
                self._connection = Connection(self._address)
            connection = self._connection
        while not connection.wait(min(self._seconds_left(), _POLL_SECONDS)):
            if self._seconds_left() <= 0:
                raise NoResponseError(connection.last_warning or "no server responds")
        return connection

    def leave(self) -> None:
        """Limit all waiting, now and later and in total, to two seconds without a response."""
        self._leaving_until = min(
            self._leaving_until, time.monotonic() + _SECONDS_WHILE_UNREACHABLE
        )

    def _seconds_left(self) -> float:
        return float(min(self._deadline.at, self._leaving_until) - time.monotonic())

    def _wait_for(self, future: Any) -> Any:
        """Return the response of a request if it arrives in time."""
        while not future.ready() and (left := self._seconds_left()) > 0:
            future.wait(min(left, _POLL_SECONDS))
        return future.get(block=False)

    def _response(self, connection: Connection, future: Any) -> Any:
        try:
            response = self._wait_for(future)
        except UNMET_CONDITIONS as error:
            return error
        except ConnectionClosedError as error:
            self._discard(connection)
            raise NoResponseError(connection.last_warning or "the connection ended") from error
        except _NO_RESPONSE as error:
            reason = connection.last_warning or f"no response arrived ({type(error).__name__})"
            raise NoResponseError(reason) from error
        except KazooException as error:
            raise _refused(error) from error
        self._is_unreachable = False
        now = time.monotonic()
        self._deadline.at = now + self._address.seconds
        if now < self._leaving_until < math.inf:
            self._leaving_until = now + _SECONDS_WHILE_UNREACHABLE
        for one in response if isinstance(response, list) else ():
            if isinstance(one, KazooException) and not isinstance(
                one, (*UNMET_CONDITIONS, *_ROLLED_BACK)
            ):
                raise _refused(one)
        return response

    def _discard(self, connection: Connection) -> None:
        """Close a connection that kazoo has given up."""
        with self._lock:
            if self._connection is connection:
                self._connection = None
        connection.close()

    def close(self) -> None:
        """End the connection, if there is one."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _refused(error: KazooException) -> AttemptError:
    name = type(error).__name__
    if isinstance(error, NoAuthError):
        return AttemptError(
            "the client that created its nodes, or nodes above them, allows no other to use them",
            "Set MERGEBERG_LEDGER_USER and MERGEBERG_LEDGER_PASSWORD, or the client certificate, "
            "to those of that client",
        )
    if name in ("InvalidACLError", "AuthFailedError"):
        return AttemptError(
            f"the servers refuse the credentials ({name})",
            "Correct MERGEBERG_LEDGER_USER and MERGEBERG_LEDGER_PASSWORD; if the servers do not "
            "authenticate client certificates, set both in addition to one",
        )
    return AttemptError(
        f"Keeper reports {name}{f' ({error})' if str(error) else ''}", _CHECK_SERVERS
    )


def _rounded_down(seconds: float) -> float:
    """Round down to whole seconds; below one second, to tenths."""
    return math.floor(seconds) if seconds >= 1 else math.floor(seconds * 10) / 10


def _batches(requests: Sequence[Request]) -> Iterator[Sequence[Request]]:
    for begin in range(0, len(requests), _IN_FLIGHT):
        yield requests[begin : begin + _IN_FLIGHT]


def first_failure(responses: Sequence[Any]) -> tuple[int, KazooException] | None:
    """Return the index and the reason of the change that failed; None if all were made."""
    for index, response in enumerate(responses):
        if isinstance(response, UNMET_CONDITIONS):
            return index, response
    return None


def sync(path: str) -> Request:
    """Make later reads see everything that was committed before."""
    return lambda client: client.sync_async(path)


def read(path: str) -> Request:
    """Return a node's content and its stat."""
    return lambda client: client.get_async(path)


def stat(path: str) -> Request:
    """Return a node's stat, None if there is no such node."""
    return lambda client: client.exists_async(path)


def children(path: str) -> Request:
    """Return the names of a node's children."""
    return lambda client: client.get_children_async(path)


def transaction(*changes: Change) -> Request:
    """Make all changes or none; return one response for each."""

    def sent(client: KazooClient) -> Any:
        pending = client.transaction()
        for change in changes:
            change(pending)
        return pending.commit_async()

    return sent


def create(path: str, data: bytes, *, ephemeral: bool = False, numbered: bool = False) -> Change:
    """Create a node.

    An `ephemeral` one ends with the session; Keeper appends a number to the name of a `numbered`
    one.
    """
    return lambda made: made.create(path, data, ephemeral=ephemeral, sequence=numbered)


def set_data(path: str, data: bytes, version: int) -> Change:
    """Replace the content of a node that has this version."""
    return lambda made: made.set_data(path, data, version)


def delete(path: str, version: int = -1) -> Change:
    """Remove a node that has this version; -1 means any version."""
    return lambda made: made.delete(path, version)


def check(path: str) -> Change:
    """Make the other changes only if a node exists."""
    return lambda made: made.check(path, -1)
