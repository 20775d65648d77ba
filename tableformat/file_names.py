"""Builds and parses the names of data files, directories, manifests and stop marks.

docs/spec/files.md specifies them. A data file is
`<key>-<transaction>-<slice>-<attempt>.parquet`; in a Hive tree the transaction comes first (N-18;
docs/spec/hive.md). Key and transaction identify the files of an export in main, even without ledger
and receipts. The name is unique per attempt, so no attempt overwrites another's file.

With the table property `write.object-storage.enabled` a hash of the name precedes the partition
directory, as Iceberg's ObjectStoreLocationProvider does it: object stores limit the requests for
each prefix of names. The hash is in directories, so that the name of the file stays as it is.

A stop mark is a file below the receipts; when it exists, the tasks of a job start no further
file.

PyIceberg puts one UUID into the names of all manifests of an attempt. `attempt_uuid` makes it
from the attempt, so that a file left by a crash can be judged. Version 8 (RFC 9562), 122 bits:

    36 sequence number | 36 number of the attempt | 26 of the ledger | 24 of a digest over these

The digest covers the table's UUID, too: names of other writers, or of a copy of the table's
metadata, do not match. The attempt number, drawn from the ledger's counter, makes the name
unique. `sequence_number_in` reads the sequence number: once the table has reached it, the attempt
can no longer land.

Directories are `name=value/name=value`. Hive, Spark, DuckDB, Polars and PyArrow decode percent
signs differently for spaces and for characters beyond ASCII. All of them read one form in the same
way (docs/spec/hive.md): every ASCII character outside `[A-Za-z0-9_.-]` as %XX, other characters
unchanged, and NULL as Hive's own word. In Hive an empty text shares the directory of NULL. Readers
of an Iceberg table take values from its metadata; a Hive tree refuses empty texts
(`tableformat/hive/levels.py`).
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

from tableformat.errors import RefusedError

__all__ = [
    "HIVE_NULL",
    "RECEIPTS",
    "PathLayout",
    "attempt_uuid",
    "data_below",
    "data_file_name",
    "data_file_path",
    "directory_values",
    "directory_without_hash",
    "escape",
    "exported_by",
    "is_of_key",
    "is_of_transaction",
    "is_stop_mark",
    "key_in",
    "partition_directory",
    "sequence_number_in",
    "spelled_name",
    "stop_mark",
    "table_locations",
    "view_begun",
    "views_directory",
    "why_no_place",
]

RECEIPTS: Final = "metadata/mergeberg"
"""The directory of receipts and digests, below the table's location."""
_DATA: Final = "/data/"
_EXPORTED: Final = re.compile(
    r"\.?(?:(?P<key>[a-z2-7]{26})-(?P<transaction>\d+)|(?P<first>\d+)-(?P<second>[a-z2-7]{26}))"
    r"-\d+-[^./]+\.parquet(\.[a-z0-9.]*inprogress)?"
)

_DATA_PATH: Final = "write.data.path"
_HASHED: Final = "write.object-storage.enabled"
_PARTITIONED: Final = "write.object-storage.partitioned-paths"
_HASH: Final = re.compile(r"[01]{4}/[01]{4}/[01]{4}/[01]{8}(?:/|$)")
_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/", re.DOTALL)
# PyIceberg and Iceberg's S3FileIO cut a location off at ? and #; Hadoop removes the others.
_READ_AS_ANOTHER: Final = re.compile(r"[?#]|(?<![:/])//|/\.\.?/")
_STOP_MARK: Final = re.compile(r"stop-[^/]+/\.?now[^/]*")
_VIEW: Final = re.compile(r"views/(?P<milliseconds>\d+)-[^/]+/[^/]+")


def data_below(location: str, tree: str, properties: Mapping[str, str]) -> str:
    """Return the location of new data files, by Iceberg's rule.

    It is the root of a `tree` ('' for a table of a catalog), the table's `write.data.path`, or
    `data` below the table's location.

    Raises:
        RefusedError: the property is not a valid location.
    """
    place = properties.get(_DATA_PATH)
    if tree or place is None:
        return tree or f"{location.rstrip('/')}/data"
    if why := why_no_place(place):
        message = (
            f"Cannot use the table in {location}: its property {_DATA_PATH} is {place!r}, {why}."
        )
        raise RefusedError(message)
    return place.rstrip("/")


class PathLayout(StrEnum):
    """Which directories the path of a data file has, below the location of data files."""

    PARTITION = "partition"
    HASH_AND_PARTITION = "hash/partition"
    HASH = "hash"

    @classmethod
    def of(cls, properties: Mapping[str, str], tree: str) -> PathLayout:
        """Return the layout that a table's properties choose.

        As in Iceberg's library for Java, each value but `true`, in any case, means false. The
        directories of a `tree` ('' for a table of a catalog) contain values, so they have no hash.
        """
        if tree or properties.get(_HASHED, "false").lower() != "true":
            return cls.PARTITION
        partitioned = properties.get(_PARTITIONED, "true").lower() == "true"
        return cls.HASH_AND_PARTITION if partitioned else cls.HASH


def data_file_path(place: str, directory: str, name: str, layout: PathLayout) -> str:
    """Return the path of a new data file.

    Args:
        place: the location of data files.
        directory: the partition directory, '' for none.
        name: the name of the file.
        layout: which directories the path has.
    """
    hashed = "" if layout is PathLayout.PARTITION else _hash_directories(name)
    partition = "" if layout is PathLayout.HASH else directory
    return "/".join(part for part in (place.rstrip("/"), hashed, partition, name) if part)


def directory_without_hash(directory: str) -> str:
    """Return the partition directory in a directory below the location of data files."""
    found = _HASH.match(directory)
    return directory if found is None else directory[found.end() :]


def _hash_directories(name: str) -> str:
    """Return 20 bits of a hash of the name as directories of 4, 4, 4 and 8 bits."""
    bits = f"{_bits(name, 20):020b}"
    return "/".join((bits[:4], bits[4:8], bits[8:12], bits[12:]))


def why_no_place(place: str) -> str:
    """Return why a location of data files is not valid, and the remedy; '' for a valid one."""
    if _ABSOLUTE.match(place) is None:
        return "and no absolute place. Set it to one, as s3://BUCKET/DIRECTORY or /mnt/cold"
    if _READ_AS_ANOTHER.search(place) is not None:
        return (
            "a place that other engines read as another one. Set it to one without ?, #, //, /./ "
            "and /../"
        )
    return ""


def stop_mark(receipts: str, job: str) -> str:
    """Return the location of a job's stop mark, below the location of receipts."""
    return f"{receipts.rstrip('/')}/stop-{job}/now"


def is_stop_mark(location: str, receipts: str) -> bool:
    """Whether an object below the location of receipts is a stop mark, also an unfinished one."""
    return _STOP_MARK.fullmatch(location.removeprefix(f"{receipts.rstrip('/')}/")) is not None


def views_directory(location: str, milliseconds: int, unique: str) -> str:
    """Return the temporary directory for the rows of a view or of files during a statement.

    Args:
        location: of the lake table.
        milliseconds: when the statement began, since 1970.
        unique: distinguishes statements that began at the same time.
    """
    return f"{location.rstrip('/')}/{RECEIPTS}/views/{milliseconds}-{unique}"


def view_begun(location: str, receipts: str) -> int | None:
    """Return when the statement of a temporary file began, None for other files.

    The time is milliseconds since 1970.
    """
    found = _VIEW.fullmatch(location.removeprefix(f"{receipts.rstrip('/')}/"))
    return None if found is None else int(found["milliseconds"])


def data_file_name(
    key: str,
    transaction_id: str,
    slice_number: int,
    attempt: str,
    *,
    transaction_first: bool = False,
) -> str:
    """Return the name of a data file; `key` is a hash, `attempt` unique for each attempt."""
    first, second = (transaction_id, key) if transaction_first else (key, transaction_id)
    return f"{first}-{second}-{slice_number}-{attempt}.parquet"


def is_of_key(path: str, key: str) -> bool:
    """Whether a file was written by an export of a key hash."""
    first, _, rest = path.rsplit("/", 1)[-1].partition("-")
    return first == key or (first.isdecimal() and rest.startswith(f"{key}-"))


def is_of_transaction(path: str, key: str, transaction_id: str) -> bool:
    """Whether a file was written by one export of a key hash."""
    name = path.rsplit("/", 1)[-1]
    return name.startswith((f"{key}-{transaction_id}-", f"{transaction_id}-{key}-"))


def exported_by(path: str) -> tuple[str, str] | None:
    """Return key hash and transaction of a data file, finished or not; None for other names."""
    found = _EXPORTED.fullmatch(path.rsplit("/", 1)[-1])
    if found is None:
        return None
    return found["key"] or found["second"], found["transaction"] or found["first"]


def table_locations(table_location: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the locations below which a table may have what was stored with data files.

    The owner may have given the table another location since: then it is where the files are.
    """
    before = (path.rpartition(_DATA)[0] for path in paths)
    return tuple(dict.fromkeys(filter(None, (table_location.rstrip("/"), *before))))


def key_in(path: str) -> str:
    """Return the key hash in the name of an exported data file, '' for other names."""
    found = exported_by(path)
    return found[0] if found is not None else ""


_COUNTER_BITS: Final = 36
_LEDGER_BITS: Final = 26
_DIGEST_BITS: Final = 24
_VERSION: Final = 8
_NAME: Final = re.compile(
    r"(?:snap-\d+-\d+-)?(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-m\d+)?\.avro"
)


def attempt_uuid(table_uuid: str, ledger: str, number: int, sequence_number: int) -> uuid.UUID:
    """Return the uuid of an attempt.

    An attempt without a number (0), or with numbers of more than 36 bits, gets a random uuid, which
    proves nothing.

    Args:
        table_uuid: the uuid of the table for which it is staged.
        ledger: the identity of the ledger.
        number: the number of the attempt, from the ledger's counter.
        sequence_number: the sequence number that its snapshot would have.
    """
    if not number or max(number, sequence_number) >= 1 << _COUNTER_BITS:
        return uuid.uuid4()
    of_ledger = _bits(ledger, _LEDGER_BITS)
    packed = ((sequence_number << _COUNTER_BITS) | number) << _LEDGER_BITS | of_ledger
    return _spread(packed << _DIGEST_BITS | _digest(table_uuid, packed))


def sequence_number_in(path: str, table_uuid: str) -> int | None:
    """Return the sequence number of the attempt that wrote a manifest or manifest list.

    It is None if the name is not of an attempt of mergeberg on this table.
    """
    found = _NAME.fullmatch(path.rsplit("/", 1)[-1])
    if found is None:
        return None
    one = uuid.UUID(found["uuid"])
    if one.version != _VERSION:
        return None
    bits = _gathered(one)
    packed, digest = bits >> _DIGEST_BITS, bits & ((1 << _DIGEST_BITS) - 1)
    if digest != _digest(table_uuid, packed):
        return None
    return packed >> (_COUNTER_BITS + _LEDGER_BITS)


def _digest(table_uuid: str, packed: int) -> int:
    return _bits(f"mergeberg {table_uuid} {packed}", _DIGEST_BITS)


def _bits(text: str, size: int) -> int:
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - size)


def _spread(bits: int) -> uuid.UUID:
    """Put 122 bits around the version and the variant: 48, 12 and 62 of them."""
    head, middle, tail = bits >> 74, bits >> 62 & 0xFFF, bits & ((1 << 62) - 1)
    return uuid.UUID(int=head << 80 | _VERSION << 76 | middle << 64 | 0b10 << 62 | tail)


def _gathered(one: uuid.UUID) -> int:
    head, middle, tail = one.int >> 80, one.int >> 64 & 0xFFF, one.int & ((1 << 62) - 1)
    return head << 74 | middle << 62 | tail


HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
_ASCII: Final = 128


def escape(text: str) -> str:
    """Return `text` as one path component; only ASCII characters are escaped with percent signs."""
    return "".join(c if c in _PLAIN or ord(c) >= _ASCII else f"%{ord(c):02X}" for c in text)


def spelled_name(name: str) -> str:
    """Return the name of a column in the directories of a tree, in which a space is not escaped.

    Spark and PyArrow decode names, DuckDB and ClickHouse do not. All of them read a name without
    percent signs correctly.
    """
    return escape(name).replace("%20", " ")


def partition_directory(names: Sequence[str], values: Sequence[str | None]) -> str:
    """Return the directory of a partition below the data location, '' for no partition fields.

    Args:
        names: the partition fields, in the order of the spec.
        values: the values in Iceberg's readable form (`2024-01` for a month); None is NULL.

    Raises:
        ValueError: the numbers of names and values differ.
    """
    return "/".join(
        f"{escape(name)}={escape(value) if value else HIVE_NULL}"
        for name, value in zip(names, values, strict=True)
    )


def directory_values(path: str) -> dict[str, str | None]:
    """Return the values in the directories of a file, by name; None is NULL or the empty text."""
    found = {}
    for component in path.split("/")[:-1]:
        name, _, value = component.partition("=")
        found[unquote(name)] = None if value == HIVE_NULL else unquote(value)
    return found
