"""Defines checked, immutable names: tables on both sides, partitions, parts, transactions, keys.

Every such value is well formed, so that no other code checks a name again.

A `Key` names rows by their source table and partition, and their lake table. Rows that no export
wrote have keys of the lake table. Rows of a partition that were copied to a lake table with another
partition spec have keys that also name their original partition.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Final

from tableformat.errors import RefusedError, UsageError
from tableformat.messages import Command
from tableformat.quantities import counted

__all__ = [
    "HIVE",
    "SOURCE_ALIAS",
    "HiveName",
    "Key",
    "LakeName",
    "PartName",
    "PartitionId",
    "TableName",
    "TransactionId",
    "check_new_table",
    "hash_of",
    "members",
    "names_secret",
    "new_query_id",
    "new_transaction_id",
    "option_name",
    "quote_identifier",
    "quote_string",
    "secret_in",
    "shown_location",
    "split_identifiers",
    "split_named",
    "written_name",
]

SOURCE_ALIAS: Final = "__src"
"""The alias of the source table in every query; a column of the same name would hide it."""

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PARTITION_ID: Final = re.compile(r"[A-Za-z0-9-]{1,512}\Z")
_PART: Final = re.compile(
    r"(?P<partition>[A-Za-z0-9-]+)_(?P<low>\d+)_(?P<high>\d+)_(?P<level>\d+)(?:_(?P<mutation>\d+))?\Z"
)
_NAME_PART: Final = re.compile(
    r"""(?P<quoted>`(?:[^`\\]|\\.|``)+`|"(?:[^"\\]|\\.|"")+")|(?P<plain>[^\s`"';,()./\\\x00-\x1f]+)""",
    re.DOTALL,
)
_LEAST_LAKE_PARTS: Final = 3
# ? and # end the path of a location; the others separate paths or cannot be part of a text.
_NOT_IN_LOCATIONS: Final = re.compile(r"[/\\?#\x00-\x1f\x7f-\x9f\ud800-\udfff]")
HIVE: Final = "hive"
"""The name of a Hive tree has this in the place of a catalog."""
_HIVE: Final = f"{HIVE}:"
_LOCATION: Final = re.compile(
    rf"(?P<begin>(?:{_HIVE})?[A-Za-z][A-Za-z0-9+.-]*://)(?P<authority>[^/?#]*)"
)
_HOST: Final = r"(?:\[[^\]]*\]|[^:@]*)(?::\d+)?"
# One name before the @ is a container of Azure's or a user.
_WITHOUT_LOGIN: Final = re.compile(rf"(?:[^:@]*@)?{_HOST}(?:,{_HOST})*")
_OF_THIS_HOST: Final = "file://"
_OF_SECRETS: Final = re.compile(
    "pass|pwd|secret|token|key|credential|signature|^sig$", re.IGNORECASE
)
_TRANSACTION: Final = re.compile(r"\d{1,20}\Z")
_LOW_BITS: Final = 22
_ESCAPES: Final = {
    "\\": "\\\\",
    "'": "\\'",
    "`": "\\`",
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
    "\0": "\\0",
    "\b": "\\b",
    "\f": "\\f",
}
_UNESCAPES: Final = {v[1]: k for k, v in _ESCAPES.items()}


def quote_identifier(name: str) -> str:
    """Return `name` as a ClickHouse identifier, always in backticks."""
    return "`" + "".join(_ESCAPES.get(c, c) if c != "'" else c for c in name) + "`"


def quote_string(text: str) -> str:
    """Return `text` as a ClickHouse string literal."""
    return "'" + "".join(_ESCAPES.get(c, c) if c != "`" else c for c in text) + "'"


def split_identifiers(text: str) -> tuple[str, ...]:
    """Split a dotted name as ClickHouse does; each part is bare, in backticks or in double quotes.

    Raises:
        UsageError: a part is empty, a quote is not closed, or a character needs quotes.
    """
    parts: list[str] = []
    position = 0
    while True:
        found = _NAME_PART.match(text, position)
        if found is None:
            raise _unreadable(text, position)
        quoted = found["quoted"]
        parts.append(found["plain"] if quoted is None else _unescaped(quoted[1:-1], quoted[0]))
        if not parts[-1]:
            raise _unreadable(text, position)
        position = found.end()
        if position == len(text):
            return tuple(parts)
        if text[position] != ".":
            raise _unreadable(text, position)
        position += 1


def split_named(text: str) -> tuple[str, str] | None:
    """Split `NAME=VALUE`, with a bare or quoted name; return None if the text has another form.

    A bare name ends at the first =. A name with = in it, or with a quote at its beginning, needs
    backticks or double quotes.
    """
    found = _NAME_PART.match(text)
    quoted = found["quoted"] if found is not None else None
    if found is None or quoted is None:
        name, equals, value = text.partition("=")
    else:
        name = _unescaped(quoted[1:-1], quoted[0])
        equals, value = text[found.end() : found.end() + 1], text[found.end() + 1 :]
    return (name, value) if name and equals == "=" and value else None


def option_name(name: str) -> str:
    """Return a name in the form that `split_named` reads, bare if possible."""
    return name if split_named(f"{name}=x") == (name, "x") else quote_identifier(name)


def written_name(text: str) -> str:
    """Return the name of a source or lake table in the form of the ledger, from any quoting.

    Raises:
        UsageError: the text is not a table name.
    """
    parts = split_identifiers(text)
    is_lake = len(parts) >= _LEAST_LAKE_PARTS
    return str(LakeName.parse(text)) if is_lake else str(TableName.parse(text))


def _unescaped(inside: str, quote: str) -> str:
    single = inside.replace(quote * 2, "\\" + quote)
    return re.sub(r"\\(.)", lambda m: _UNESCAPES.get(m[1], m[1]), single, flags=re.DOTALL)


def _unreadable(text: str, position: int) -> UsageError:
    rest = text[position:]
    if not rest or rest[0] == ".":
        why = "it has an empty part"
    elif rest[0] in '`"':
        why = f"the quote {rest[0]} at position {position} is not closed, or has no text inside"
    else:
        why = f"the character {rest[0]!r} at position {position} must be quoted"
    return UsageError(
        f"Cannot read the name {shown_location(text)!r}: {why}. Separate parts with dots; write a "
        "part with other characters than letters, digits and _ in backticks."
    )


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A ClickHouse table: database and name, both unquoted."""

    database: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Parse `db.t`; either part may be in backticks or double quotes. `t` means `default.t`.

        Raises:
            UsageError: the text is not one or two name parts.
        """
        parts = split_identifiers(text)
        match parts:
            case (name,):
                return cls("default", name)
            case (database, name):
                return cls(database, name)
            case _:
                message = (
                    f"Cannot read the ClickHouse table name {text!r}: it has {len(parts)} "
                    "parts. Write database.table."
                )
                raise UsageError(message)

    @property
    def sql(self) -> str:
        """The name as ClickHouse SQL, quoted."""
        return f"{quote_identifier(self.database)}.{quote_identifier(self.name)}"

    def __str__(self) -> str:
        """Return the name as people write it."""
        return f"{_shown(self.database)}.{_shown(self.name)}"


@dataclass(frozen=True, slots=True, order=True)
class LakeName:
    """An Iceberg table: catalog, namespace (one or more levels) and name."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    @classmethod
    def parse(cls, text: str) -> LakeName:
        """Parse `catalog.namespace.table`, with one or more namespace levels.

        `hive:URI` is a tree of Hive directories, a `HiveName`.

        Raises:
            UsageError: fewer than three parts, no URI, or a URI with a secret.
        """
        if text.startswith(_HIVE):
            return HiveName.at(text.removeprefix(_HIVE))
        parts = split_identifiers(text)
        if len(parts) < _LEAST_LAKE_PARTS:
            message = (
                f"Cannot read the destination {shown_location(text)!r}: it has "
                f"{counted(len(parts), 'part')}. Write catalog.namespace.table, for example "
                "lake.analytics.events."
            )
            raise UsageError(message)
        return cls(parts[0], parts[1:-1], parts[-1])

    @property
    def identifier(self) -> tuple[str, ...]:
        """Namespace and name, as PyIceberg's catalogs expect them."""
        return (*self.namespace, self.name)

    def __str__(self) -> str:
        """Return the name as people write it."""
        return ".".join(_shown(p) for p in (self.catalog, *self.namespace, self.name))


def names_secret(name: str) -> bool:
    """Whether the name of an option or setting is that of a secret or of a signature."""
    return _OF_SECRETS.search(name) is not None


def secret_in(location: str) -> str:
    """Return what secret a location, or a tree's name, has in it; '' for none.

    It is a login before the host, or one of the options after the path, such as the signature of a
    shared access signature. A path on this host has neither.
    """
    if _without_login(location) != location:
        return "a login before the host or bucket"
    if _without_signature(location) != location:
        return "a secret in the options after its path"
    return ""


def shown_location(location: str) -> str:
    """Return a location, or a tree's name, without its secrets (`secret_in`); else unchanged."""
    return _without_signature(_without_login(location))


def _without_login(location: str) -> str:
    """Return a location without a password before its host.

    Only the part before the path is read, so that a path may contain `:` and `@`. A password may
    contain `/`; then the text before it is no host with a port.
    """
    found = _LOCATION.match(location)
    if found is None or _WITHOUT_LOGIN.fullmatch(found["authority"]):
        return location
    rest = location[found.end("begin") :]
    user = re.split("[:@]", rest, maxsplit=1)[0]
    _, at, host = rest.rpartition("@")
    return f"{found['begin']}{user}{at}{host if at else ''}"


def _without_signature(location: str) -> str:
    """Return a location without its options if one of them has a secret.

    The others are left out, too: they have no use without it, and belong to what is signed.
    """
    found = _LOCATION.match(location)
    if found is None or found["begin"].lower().endswith(_OF_THIS_HOST):
        return location
    place, *options = re.split("[?#&;]", location)
    names = (one.partition("=") for one in options)
    if any(equals and names_secret(name) for name, equals, _ in names):
        return place
    return location


def check_new_table(name: LakeName) -> None:
    """Refuse a name for a new table whose files would be outside of the table's directory.

    Catalogs copy the parts of a name into the table's location without escaping.

    Raises:
        RefusedError: a part of the name would change the path.
    """
    if isinstance(name, HiveName):
        return
    for part in name.identifier:
        found = _NOT_IN_LOCATIONS.search(part)
        if part in ("", ".", ".."):
            why = f"the part {part!r} of its name is no name of a directory"
        elif found is not None:
            why = f"the part {part!r} of its name has the character {found[0]!r}"
        else:
            continue
        message = (
            f"Cannot create the table {name}: {why}, so its files would be outside the table's "
            "location. Give it another name."
        )
        raise RefusedError(message)


@dataclass(frozen=True, slots=True, order=True)
class HiveName(LakeName):
    """A tree of Hive directories, which has no catalog: hive.`uri` in SQL, `hive:uri` elsewhere."""

    @classmethod
    def at(cls, uri: str) -> HiveName:
        """Return the name of the tree at a URI or path.

        Raises:
            UsageError: the URI is empty, or has a secret.
        """
        if secret := secret_in(uri):
            message = (
                f"Cannot use the tree {_HIVE}{shown_location(uri)}: it has {secret}, which "
                "messages, the ledger and lists of processes would show. Leave it out, and give "
                "the keys of the store in its environment variables."
            )
            raise UsageError(message)
        root = uri.rstrip("/")
        if not root:
            message = (
                f"Cannot use {_HIVE}{uri} as a destination: it names no directory. Write for "
                "example hive:/data/lake/events."
            )
            raise UsageError(message)
        return cls(HIVE, (), root)

    @property
    def uri(self) -> str:
        """The location of the tree, without a slash at the end."""
        return self.name

    def __str__(self) -> str:
        """Return the name as people write it."""
        return f"{_HIVE}{self.uri}"


@dataclass(frozen=True, slots=True, order=True)
class PartitionId:
    """ClickHouse's partition id: the `partition_id` of system.parts."""

    value: str

    def __post_init__(self) -> None:
        """Check the characters; an id always comes from ClickHouse, never from a value."""
        if not _PARTITION_ID.match(self.value):
            message = (
                f"Cannot use {self.value!r} as a partition id: ids hold only letters, digits and "
                f"'-'. List them with {Command.PARTITIONS}."
            )
            raise UsageError(message)

    def __str__(self) -> str:
        """Return the id."""
        return self.value


@dataclass(frozen=True, slots=True)
class PartName:
    """A part's name, `<partition>_<lowest block>_<highest block>_<level>[_<mutation>]`."""

    partition_id: PartitionId
    low: int
    high: int
    level: int
    mutation: int | None = None

    @classmethod
    def parse(cls, text: str) -> PartName:
        """Parse a part name.

        Raises:
            UsageError: the text does not have the form of a part name.
        """
        found = _PART.match(text)
        if not found:
            message = (
                f"Cannot use {text!r} as a part name: it is not <partition>_<low>_<high>_<level>. "
                f"List them with {Command.PARTS}."
            )
            raise UsageError(message)
        mutation = found["mutation"]
        return cls(
            PartitionId(found["partition"]),
            int(found["low"]),
            int(found["high"]),
            int(found["level"]),
            int(mutation) if mutation is not None else None,
        )

    def __str__(self) -> str:
        """Return the name."""
        tail = "" if self.mutation is None else f"_{self.mutation}"
        return f"{self.partition_id}_{self.low}_{self.high}_{self.level}{tail}"


@dataclass(frozen=True, slots=True, order=True)
class TransactionId:
    """A snowflake id in decimal: 41 bits of milliseconds, 10 of machine, 12 of sequence (N-11)."""

    value: str

    def __post_init__(self) -> None:
        """Check that it is a decimal number."""
        if not _TRANSACTION.match(self.value):
            message = f"Cannot use {self.value!r} as a transaction id: it is not a decimal number."
            raise UsageError(message)

    def __str__(self) -> str:
        """Return the number."""
        return self.value

    @property
    def milliseconds(self) -> int:
        """When the id was created, in milliseconds since 1970 UTC."""
        return int(self.value) >> _LOW_BITS


# A group of exports asks for the hash of each of its keys dozens of times.
@lru_cache(maxsize=4096)
def hash_of(*texts: str) -> str:
    """Return a hash of texts in 26 characters, for file names and names of table properties."""
    digest = hashlib.sha256(json.dumps(texts).encode()).digest()
    return base64.b32encode(digest[:16]).decode().rstrip("=").lower()


_MEMBERS: Final[dict[type, tuple[str, ...]]] = {}


def members(value: Any) -> dict[str, Any]:
    """Return the members of a dataclass by their names, in order: the `default` of a JSON encoder.

    The encoder calls it for nested dataclasses, too. This takes a fraction of the time of a deep
    copy as a dict.

    Raises:
        TypeError: the value is no dataclass, so that it has no stored form.
    """
    kind = type(value)
    names = _MEMBERS.get(kind) or tuple(field.name for field in fields(kind))
    _MEMBERS[kind] = names
    return {name: getattr(value, name) for name in names}


def new_query_id() -> str:
    """Return a new name for a statement, in the form of ClickHouse's query ids."""
    return str(uuid.uuid4())


def new_transaction_id(milliseconds: int, machine: int, sequence: int) -> TransactionId:
    """Compose a snowflake id. Uniqueness is enforced by the ledger, not by this function.

    Args:
        milliseconds: since 1970 UTC; 41 bits are used.
        machine: 10 bits are used.
        sequence: 12 bits are used.
    """
    value = (milliseconds & (1 << 41) - 1) << _LOW_BITS | (machine & 1023) << 12 | sequence & 4095
    return TransactionId(str(value))


def _shown(part: str) -> str:
    return part if _PLAIN.match(part) else quote_identifier(part)


_OF_LAKE: Final = "lake:"
_WITHIN: Final = "lake:of:"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """The unit of exactly-once export: a partition of a source table, in a destination table.

    `source` and `destination` are identities (MergeTreeTable.identity, the Iceberg table's uuid),
    not names. `increment` is 0 for the partition, and n for the rows that arrived in it after it
    was archived n times (decision 0023).
    """

    source: str
    partition_id: str
    destination: str
    increment: int = 0

    @property
    def hash(self) -> str:
        """The 26 characters for the key in file names and table properties."""
        texts = (self.source, self.partition_id, self.destination)
        return hash_of(*texts, str(self.increment)) if self.increment else hash_of(*texts)

    @property
    def next(self) -> Key:
        """The key of the rows that arrive after those of this key were archived."""
        return replace(self, increment=self.increment + 1)

    @classmethod
    def of_lake(cls, table_uuid: str, partition_id: str, destination: str) -> Key:
        """Return the key of rows in a lake partition that no export wrote (decision 0013)."""
        return cls(f"{_OF_LAKE}{table_uuid}", partition_id, destination)

    def at(self, destination: str) -> Key:
        """Return the key of the same partition of the same source in another table."""
        return replace(self, destination=destination)

    def within(self, partition_id: str) -> Key:
        """Return the key of these rows in another partition of a table with another spec.

        The key keeps their original source and partition, also when they are copied to a third
        table.
        """
        origin = self.origin
        source = f"{_WITHIN}{origin.source}/{origin.partition_id}"
        return replace(self, source=source, partition_id=partition_id)

    @property
    def origin(self) -> Key:
        """The key without the effect of `within`; for most keys it is the key itself.

        Its partition is one of the source, and may not exist in the lake table.
        """
        if not self.source.startswith(_WITHIN):
            return self
        # No partition id has a slash.
        source, _, partition_id = self.source.removeprefix(_WITHIN).rpartition("/")
        return replace(self, source=source, partition_id=partition_id)

    @property
    def is_of_export(self) -> bool:
        """Whether it is the key of an export, not of rows that no export wrote."""
        return not self.source.startswith(_OF_LAKE)

    @property
    def stays(self) -> bool:
        """Whether copies of the rows in other tables keep the source of this key.

        Copies of rows that no export wrote get the lake table they come from as their source.
        """
        return self.is_of_export or self.source.startswith(_WITHIN)
