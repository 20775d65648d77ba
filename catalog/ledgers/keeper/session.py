"""Sends requests to Keeper, bounded in time, and repeats them until a response arrives.

- The caller passes a request as a function that may run again. After a lost response nobody
  knows whether the request was applied, so the function reads the state first and continues from
  there.
- `Connection` opens and ends one session: TLS, time-outs and the last failure. The library
  retries for ever by itself and gives its reason only in its log; this module bounds it and
  keeps the reason for the error.

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
from catalog.tls import TlsNames, show_certificate, tls_context
from tableformat.errors import LedgerError

__all__ = [
    "IN_THE_WAY",
    "Change",
    "Connection",
    "KeeperSession",
    "Request",
    "Silence",
    "Trouble",
    "changing",
    "check",
    "children",
    "create",
    "delete",
    "first_failure",
    "read",
    "set_data",
    "stat",
    "sync",
]

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


T = TypeVar("T")
Request = Callable[[KazooClient], Any]
"""Sends a request of a client; returns the library's future."""
Change = Callable[[TransactionRequest], Any]
"""Adds a change to those that are made together or not at all."""

IN_THE_WAY: Final = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)
"""What Keeper answers when a node is not as the request has it: an answer, no failure."""
_NO_ANSWER: Final = (
    *(ConnectionLoss, ConnectionClosedError, OperationTimeoutError, SessionExpiredError),
    *(SessionMovedError, KazooTimeoutError),
)
_FOLLOW: Final = (RolledBackError, RuntimeInconsistency)
_AT_ONCE: Final = 64
"""How many requests wait for their answers at a time."""
_SECONDS_WHILE_AWAY: Final = 2.0
"""For how long servers are waited for that were waited for in vain, or by who is leaving."""
_LOOK_SECONDS: Final = 0.25
"""How often who waits looks whether it has to leave."""

_CHECK_THEM: Final = (
    "Check that its servers run and can be reached from here, and run the command again: it is safe"
)


class Trouble(Exception):  # noqa: N818 - never leaves the ledger
    """Why an attempt came to nothing; with `passes` another one may not.

    `to_do` is what the user does about it.
    """

    def __init__(
        self, why: str, to_do: str = "Run the command again: it is safe", *, passes: bool = False
    ) -> None:
        """Keep it."""
        super().__init__(why)
        self.why, self.to_do, self.passes = why, to_do, passes


class Silence(Trouble):
    """No answer came, which passes when the servers are back."""

    def __init__(self, why: str) -> None:
        """Keep why, as far as it is known."""
        super().__init__(why, _CHECK_THEM, passes=True)


class KeeperSession:
    """Asks the servers of an address; connects when it is asked first. Safe from threads."""

    def __init__(self, address: KeeperAddress) -> None:
        """Keep the address."""
        self._address = address
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._deadline = threading.local()
        self._is_away = False
        self._leaving_until = math.inf
        self.requests = 0
        """How many were sent."""

    @property
    def number(self) -> int:
        """The number of the session with the servers, 0 before there is one."""
        with self._lock:
            return self._connection.session if self._connection is not None else 0

    @property
    def shown(self) -> str:
        """Where the ledger is, without a secret."""
        return self._address.shown

    def within(self, doing: str, attempt: Callable[[], T]) -> T:
        """Return what an attempt returns, the last one of as many as the time allows.

        An attempt is begun within the time-out, and goes on while answers come within it: there may
        be many of them. When the last of them came less than a time-out ago, one more is begun.
        Once a time-out has ended without an answer, what is done next waits for two seconds only,
        until there is one: a command does many things, and would wait for each.

        Args:
            doing: what is done, as it stands behind "Cannot ".
            attempt: asks; run again after a trouble that passes.

        Raises:
            LedgerError: it came to nothing.
            UsageError: a certificate, a key or an authority cannot be used.
        """
        begun = time.monotonic()
        self._deadline.at = deadline = begun + self._patience
        is_last = False
        while True:
            try:
                return attempt()
            except Trouble as trouble:
                now = time.monotonic()
                if trouble.passes and self._left() > 0 and not is_last:
                    is_last = now >= deadline
                    continue
                self._is_away = isinstance(trouble, Silence)
                raise self._failed(doing, trouble, now - begun) from trouble

    @property
    def _patience(self) -> float:
        seconds = self._address.seconds
        return min(seconds, _SECONDS_WHILE_AWAY) if self._is_away else seconds

    def _failed(self, doing: str, trouble: Trouble, seconds: float) -> LedgerError:
        """Return the error that tells a trouble, which has lasted for some seconds."""
        why = self._masked(trouble.why.rstrip("."))
        if trouble.passes:
            why = f"{why}, for {_whole(seconds):g} s"
        return LedgerError(f"Cannot {doing} of the ledger {self.shown}: {why}. {trouble.to_do}.")

    def _masked(self, text: str) -> str:
        password = self._address.password
        return text.replace(password, "***") if password else text

    def ask(self, *requests: Request) -> list[Any]:
        """Return the answers of requests, which the servers carry out in this order.

        An answer that something is in the way (`IN_THE_WAY`) is returned, not raised.

        Raises:
            Trouble: an answer did not come; or Keeper refused.
        """
        answers: list[Any] = []
        sessions: set[int] = set()
        for some in _at_most(requests):
            connection = self._connected()
            sessions.add(connection.session)
            self.requests += len(some)
            futures = [request(connection.client) for request in some]
            answers.extend(self._answer(connection, future) for future in futures)
            sessions.add(connection.session)
        if len(sessions) > 1:
            # Another session may be with a server that has not seen what this one has.
            raise Trouble("the session ended while it was asked", passes=True)
        return answers

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is None:
                self._connection = Connection(self._address)
            connection = self._connection
        while not connection.wait(min(self._left(), _LOOK_SECONDS)):
            if self._left() <= 0:
                raise Silence(connection.trouble or "nobody answers")
        return connection

    def leave(self) -> None:
        """Let whoever asks, now or later, wait for two seconds without an answer, all together."""
        self._leaving_until = min(self._leaving_until, time.monotonic() + _SECONDS_WHILE_AWAY)

    def _left(self) -> float:
        return float(min(self._deadline.at, self._leaving_until) - time.monotonic())

    def _get(self, future: Any) -> Any:
        """Return the answer of a request, when it comes in time."""
        while not future.ready() and (left := self._left()) > 0:
            future.wait(min(left, _LOOK_SECONDS))
        return future.get(block=False)

    def _answer(self, connection: Connection, future: Any) -> Any:
        try:
            answer = self._get(future)
        except IN_THE_WAY as error:
            return error
        except ConnectionClosedError as error:
            self._drop(connection)
            raise Silence(connection.trouble or "the connection ended") from error
        except _NO_ANSWER as error:
            why = connection.trouble or f"the answer did not come ({type(error).__name__})"
            raise Silence(why) from error
        except KazooException as error:
            raise _refused(error) from error
        self._is_away = False
        now = time.monotonic()
        self._deadline.at = now + self._address.seconds
        if now < self._leaving_until < math.inf:
            self._leaving_until = now + _SECONDS_WHILE_AWAY
        for one in answer if isinstance(answer, list) else ():
            if isinstance(one, KazooException) and not isinstance(one, (*IN_THE_WAY, *_FOLLOW)):
                raise _refused(one)
        return answer

    def _drop(self, connection: Connection) -> None:
        """Let go of a connection that the library has given up."""
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


def _refused(error: KazooException) -> Trouble:
    name = type(error).__name__
    if isinstance(error, NoAuthError):
        return Trouble(
            "whoever made its nodes, or those above them, lets nobody else use them",
            "Set MERGEBERG_LEDGER_USER and MERGEBERG_LEDGER_PASSWORD, or the client certificate, "
            "as they were then",
        )
    if name in ("InvalidACLError", "AuthFailedError"):
        return Trouble(
            f"the servers do not know who logs in ({name})",
            "Correct MERGEBERG_LEDGER_USER and MERGEBERG_LEDGER_PASSWORD; where the servers do not "
            "go by client certificates, set these beside one",
        )
    return Trouble(f"Keeper answered {name}{f' ({error})' if str(error) else ''}", _CHECK_THEM)


def _whole(seconds: float) -> float:
    """Return full seconds, below one full tenths."""
    return math.floor(seconds) if seconds >= 1 else math.floor(seconds * 10) / 10


def _at_most(requests: Sequence[Request]) -> Iterator[Sequence[Request]]:
    for begin in range(0, len(requests), _AT_ONCE):
        yield requests[begin : begin + _AT_ONCE]


def first_failure(answers: Sequence[Any]) -> tuple[int, KazooException] | None:
    """Return which of several changes was in the way of all, and why; None when they were made."""
    for index, answer in enumerate(answers):
        if isinstance(answer, IN_THE_WAY):
            return index, answer
    return None


def sync(path: str) -> Request:
    """See what every server has seen before what is asked next is answered."""
    return lambda client: client.sync_async(path)


def read(path: str) -> Request:
    """Return content and description of a node."""
    return lambda client: client.get_async(path)


def stat(path: str) -> Request:
    """Return the description of a node, None when there is none."""
    return lambda client: client.exists_async(path)


def children(path: str) -> Request:
    """Return the names of the nodes below one."""
    return lambda client: client.get_children_async(path)


def changing(*changes: Change) -> Request:
    """Make changes together or not at all; return one answer for each."""

    def sent(client: KazooClient) -> Any:
        transaction = client.transaction()
        for change in changes:
            change(transaction)
        return transaction.commit_async()

    return sent


def create(path: str, data: bytes, *, ephemeral: bool = False, numbered: bool = False) -> Change:
    """Make a node; an ephemeral one goes with the session, a numbered one gets a number behind."""
    return lambda made: made.create(path, data, ephemeral=ephemeral, sequence=numbered)


def set_data(path: str, data: bytes, version: int) -> Change:
    """Replace the content of a node that has this version."""
    return lambda made: made.set_data(path, data, version)


def delete(path: str, version: int = -1) -> Change:
    """Remove a node that has this version; -1 is any."""
    return lambda made: made.delete(path, version)


def check(path: str) -> Change:
    """Make the other changes only if a node is there."""
    return lambda made: made.check(path, -1)
