"""Names the places of a ledger in ZooKeeper or ClickHouse Keeper: its address and its nodes.

The address, with its credentials, is parsed:

    keeper://[USER@]HOST[:2181][,HOST2[:2181]...][/CHROOT][?OPTION=VALUE[&...]]
    keepers://... the same over TLS, port 2281

Options:

    timeout          seconds that an operation waits for a response
    session-timeout  seconds after which the servers free the leases of a silent process
    allow-insecure   1

Without TLS only this machine is allowed, unless allow-insecure or MERGEBERG_ALLOW_INSECURE is set.
Messages never show the text before the last @ of a malformed address, nor the value of an option.

`KeeperPaths` has the nodes below CHROOT: layout 1 (docs/spec/keeper-ledger.md). Nothing here opens
a connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from catalog.network import INSECURE, is_this_machine, is_true, named_host
from tableformat.errors import NotFoundError, RefusedError, UsageError
from tableformat.names import hash_of

__all__ = [
    "CA_FILE",
    "CERTIFICATE",
    "KEY",
    "LAYOUT",
    "PASSWORD",
    "BlockName",
    "BodyName",
    "KeeperAddress",
    "KeeperPaths",
    "is_keeper",
    "ledger_root",
    "parse_keeper",
]

PASSWORD: Final = "MERGEBERG_LEDGER_PASSWORD"  # noqa: S105 - the name, no password
"""The environment variable that holds the user's password."""
_USER: Final = "MERGEBERG_LEDGER_USER"
CA_FILE: Final = "MERGEBERG_LEDGER_CA_FILE"
CERTIFICATE: Final = "MERGEBERG_LEDGER_CERTIFICATE"
KEY: Final = "MERGEBERG_LEDGER_KEY"
_PORTS: Final = {"keeper": 2181, "keepers": 2281}
_CHROOT: Final = re.compile(r"(/[A-Za-z0-9._~%+=-]+)*")
_SECONDS: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")
_FORM: Final = "Write keeper://HOST[:PORT][,HOST2[:PORT]...][/CHROOT], or keepers:// for TLS"
_TIMEOUT: Final = 60.0
_SESSION_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class KeeperAddress:
    """The servers of an ensemble, the ledger's path, and the connection's settings.

    `hosts` are `HOST:PORT`; `chroot` is '' or begins with a slash. `ca_file`, `certificate` and
    `key` are PEM files, for TLS only; without `ca_file` the system's authorities are trusted.
    `seconds` bounds the wait for a response. The servers expire the session of a process that is
    silent for `session_seconds`.
    """

    hosts: tuple[str, ...]
    chroot: str = ""
    secure: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    seconds: float = _TIMEOUT
    session_seconds: float = _SESSION_TIMEOUT
    allow_insecure: bool = False

    @property
    def shown(self) -> str:
        """The address without secrets; `parse_keeper` reads it."""
        user = f"{self.user}@" if self.user else ""
        scheme = "keepers" if self.secure else "keeper"
        options = [
            *([f"timeout={self.seconds:g}"] if self.seconds != _TIMEOUT else ()),
            *(
                [f"session-timeout={self.session_seconds:g}"]
                if self.session_seconds != _SESSION_TIMEOUT
                else ()
            ),
            *(["allow-insecure=1"] if self.allow_insecure else ()),
        ]
        tail = f"?{'&'.join(options)}" if options else ""
        return f"{scheme}://{user}{','.join(self.hosts)}{self.chroot}{tail}"

    @property
    def has_credentials(self) -> bool:
        """Whether the client authenticates; its nodes then belong to their creator alone."""
        return self.password is not None or self.certificate is not None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user about this address."""
        if self.secure or all(_is_here(host) for host in self.hosts):
            return ()
        warning = (
            f"The ledger {self.shown} is used without TLS: anyone on the network can read the "
            "ledger and the password, and change the ledger."
        )
        return (warning,)


def is_keeper(uri: str) -> bool:
    """Whether a ledger's URI names one in Keeper."""
    return uri.lower().startswith(("keeper:", "keepers:"))


def parse_keeper(uri: str, *, environment: Mapping[str, str]) -> KeeperAddress:
    """Parse the address of a ledger in Keeper, with its credentials.

    Args:
        uri: the address.
        environment: MERGEBERG_LEDGER_USER, _PASSWORD, _CA_FILE, _CERTIFICATE and _KEY, and
            MERGEBERG_ALLOW_INSECURE.

    Raises:
        UsageError: the address or the environment is malformed or contradicts itself.
        NotFoundError: a named file does not exist.
        RefusedError: the address names another machine without TLS, and that is not allowed.
    """
    scheme, colon, rest = uri.partition("://")
    scheme = scheme.lower()
    before, at, after = rest.rpartition("@")
    if not colon or scheme not in _PORTS:
        # A secret may be anywhere in a text of unknown form, so the message does not show it.
        message = f"Cannot open the ledger: it is no address of Keeper. {_FORM}."
        raise UsageError(message)
    place, _, options = after.partition("?")
    shown = f"{scheme}://{place}"
    if at and not re.fullmatch(r"[A-Za-z0-9._-]+", before):
        message = (
            f"Cannot open the ledger {shown}: the text before the @ is no user name. A "
            f"password in it could be seen in the list of processes: set {PASSWORD} instead."
        )
        raise UsageError(message)
    hosts, _, _ = place.partition("/")
    chroot = place.removeprefix(hosts).rstrip("/")
    if not _CHROOT.fullmatch(chroot) or _is_reserved(chroot):
        message = (
            f"Cannot open the ledger {shown}: {chroot!r} is no path for it. Write names of "
            "letters, digits and ._~%+=- between single slashes, other than ., .. and /zookeeper."
        )
        raise UsageError(message)
    address = KeeperAddress(
        tuple(dict.fromkeys(_host(scheme, one, shown) for one in hosts.split(","))),
        chroot,
        secure=scheme == "keepers",
        user=before or None,
    )
    return _checked(_with_environment(_with_options(address, options, shown), environment, shown))


def _is_reserved(chroot: str) -> bool:
    names = chroot.split("/")[1:]
    return bool({".", ".."} & set(names)) or names[:1] == ["zookeeper"]


def _host(scheme: str, place: str, shown: str) -> str:
    found = named_host(place, _PORTS[scheme])
    if found is None:
        message = f"Cannot open the ledger {shown}: {place!r} is not HOST or HOST:PORT. {_FORM}."
        raise UsageError(message)
    return "{}:{}".format(*found)


def _with_options(address: KeeperAddress, text: str, shown: str) -> KeeperAddress:
    for option in filter(None, text.split("&")):
        name, _, value = option.partition("=")
        is_time = _SECONDS.fullmatch(value) is not None and float(value) > 0
        match name:
            case "timeout" if is_time:
                address = replace(address, seconds=float(value))
            case "session-timeout" if is_time:
                address = replace(address, session_seconds=float(value))
            case "allow-insecure" if value in ("0", "1"):
                address = replace(address, allow_insecure=value == "1")
            case _:
                message = (
                    f"Cannot open the ledger {shown}: {name!r} is not an option, or has an invalid "
                    "value. The options are timeout and session-timeout (seconds above 0), "
                    f"allow-insecure (0, 1). A password is given by {PASSWORD}."
                )
                raise UsageError(message)
    return address


def _with_environment(
    address: KeeperAddress, environment: Mapping[str, str], shown: str
) -> KeeperAddress:
    user = address.user or environment.get(_USER) or None
    password = environment.get(PASSWORD) or None
    if user is not None and (":" in user or not user.isprintable()):
        message = (
            f"Cannot open the ledger {shown}: the name of the user has a colon or a control "
            f"character, which Keeper does not accept. Correct {_USER}."
        )
        raise UsageError(message)
    if (user is None) != (password is None):
        given, missing = ("a password", _USER) if user is None else (f"the user {user}", PASSWORD)
        message = (
            f"Cannot log in to the ledger {shown}: {given} is given alone. Set {missing}, too."
        )
        raise UsageError(message)
    files = (_file(environment, name, shown) for name in (CA_FILE, CERTIFICATE, KEY))
    ca_file, certificate, key = files
    if key is not None and certificate is None:
        message = (
            f"Cannot log in to the ledger {shown}: {KEY} names the key of a client certificate, "
            f"and no certificate is given. Set {CERTIFICATE}, too."
        )
        raise UsageError(message)
    return replace(
        address,
        user=user,
        password=password,
        ca_file=ca_file,
        certificate=certificate,
        key=key,
        allow_insecure=address.allow_insecure or is_true(environment.get(INSECURE)),
    )


def _checked(address: KeeperAddress) -> KeeperAddress:
    if not address.secure and address.certificate is not None:
        message = (
            f"Cannot open the ledger {address.shown}: a client certificate is given, but without "
            f"TLS no server requests one. Use keepers://, or leave {CERTIFICATE} out."
        )
        raise UsageError(message)
    if address.warnings and not address.allow_insecure:
        message = (
            f"Cannot open the ledger {address.shown}: without TLS anyone on the network can read "
            "the ledger and the password, and change the ledger. Use keepers://, or allow it by "
            f"?allow-insecure=1 after the address or by {INSECURE}=1."
        )
        raise RefusedError(message)
    return address


def _is_here(host: str) -> bool:
    """Whether a host's name alone says that it is this machine, so that no data leaves it."""
    return is_this_machine(host.rpartition(":")[0].strip("[]"))


def _file(environment: Mapping[str, str], name: str, shown: str) -> Path | None:
    given = environment.get(name)
    if not given:
        return None
    path = Path(given).expanduser()
    if not path.is_file():
        message = (
            f"Cannot open the ledger {shown}: {name} names {path}, and there is no such file. "
            "Correct the path."
        )
        raise NotFoundError(message)
    return path


LAYOUT: Final = "v1"
"""The parent of all nodes of this layout."""
_ROOT: Final = "mergeberg"


def ledger_root(chroot: str) -> str:
    """Return the parent node of a ledger's layouts."""
    return f"{chroot}/{_ROOT}"


@dataclass(frozen=True, slots=True)
class KeeperPaths:
    """The nodes of one ledger.

    The identity is the name of a node, so that a transaction can check it. `chroot` is '' or begins
    with a slash.
    """

    chroot: str
    identity: str

    @property
    def _top(self) -> str:
        return f"{ledger_root(self.chroot)}/{LAYOUT}"

    @property
    def mark(self) -> str:
        """The node that exists while the ledger has this identity and this layout."""
        return f"{self._top}/identity/{self.identity}"

    @property
    def epoch(self) -> str:
        """The epoch counter."""
        return f"{self._top}/epoch"

    @property
    def counters(self) -> str:
        """The permanent counters."""
        return f"{self._top}/counters"

    @property
    def rows(self) -> str:
        """The parent of the rows."""
        return f"{self._top}/rows"

    @property
    def destinations(self) -> str:
        """The parent of the sequence numbers of destinations."""
        return f"{self._top}/landed"

    @property
    def leases(self) -> str:
        """The parent of the leases."""
        return f"{self._top}/leases"

    @property
    def events(self) -> str:
        """The parent of the blocks of events."""
        return f"{self._top}/events"

    @property
    def folders(self) -> tuple[str, ...]:
        """All nodes with children that are created with the ledger, parents first."""
        top = self._top
        names = ("identity", "rows", "bodies", "landed", "leases", "events")
        return (ledger_root(self.chroot), top, *(f"{top}/{name}" for name in names))

    def row(self, key: str) -> str:
        """Return the row's node of a key hash, which changes by compare-and-set."""
        return f"{self.rows}/{key}"

    def manifest(self, key: str, created: int) -> str:
        """Return the manifest's node below a row, which has the row's creation time in its name."""
        return f"{self.row(key)}/manifest-{created}"

    def lease(self, key: str) -> str:
        """Return the lease's node of a key hash."""
        return f"{self.leases}/{key}"

    def landed(self, destination: str) -> str:
        """Return the node with the greatest known sequence number of a destination."""
        return f"{self.destinations}/{hash_of(destination)}"

    def bodies(self, key: str) -> str:
        """Return the parent of the pieces of a row that is too large for one node."""
        return f"{self._top}/bodies/{key}"

    def body(self, key: str, name: BodyName) -> str:
        """Return the node of one piece."""
        return f"{self.bodies(key)}/{name}"

    def block(self, name: BlockName) -> str:
        """Return the node of a block of events; Keeper appends a number when it is created."""
        return f"{self.events}/{name}"


@dataclass(frozen=True, slots=True)
class BodyName:
    """Names a piece of a row: the row's version, the write's id and the piece's index."""

    version: int
    write: str
    piece: int

    def __str__(self) -> str:
        return f"{self.version:010d}-{self.write}-{self.piece:04d}"

    @classmethod
    def parse(cls, text: str) -> BodyName:
        """Parse a name.

        Raises:
            ValueError: it is not the name of a piece.
        """
        version, write, piece = text.split("-")
        return cls(int(version), write, int(piece))

    def is_left_over(self, version: int, write: str) -> bool:
        """Whether no row can refer to the piece, given the row's version and its write.

        Pieces of a later version belong to a write that has yet to change the row.
        """
        return (self.version, self.write) != (version, write) and self.version <= version


@dataclass(frozen=True, slots=True)
class BlockName:
    """Names a block of events: its number of events, the write's id and the block's index in it.

    `number` orders all blocks; Keeper assigns it.
    """

    events: int
    write: str
    block: int
    number: int = -1

    def __str__(self) -> str:
        ordered = f"{self.number:010d}" if self.number >= 0 else ""
        return f"{self.events:06d}-{self.write}-{self.block:04d}-{ordered}"

    @classmethod
    def parse(cls, text: str) -> BlockName:
        """Parse a name to which Keeper has appended a number.

        Raises:
            ValueError: it is not the name of a block.
        """
        events, write, block, number = text.split("-")
        return cls(int(events), write, int(block), int(number))
