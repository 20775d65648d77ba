"""The names of the manifests of an attempt: they prove that it is ours, and tell when it is dead.

PyIceberg puts one uuid into the names of all files of an attempt, the manifest list's too. Ours is
made of the attempt (docs/spec/files.md), so that a process that dies before its request leaves
nothing that nobody can judge: of RFC 9562's version 8, in its 122 bits of our own

    36 sequence number | 36 number of the attempt | 26 of the ledger | 24 of a digest over these

The digest also covers the table's uuid: no other writer's name passes for ours, nor a copy of the
table's metadata for this table's. The number, drawn from the ledger's counter, makes it unique.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Final

__all__ = ["attempt_uuid", "sequence_number_in"]

_COUNTER_BITS: Final = 36
_LEDGER_BITS: Final = 26
_DIGEST_BITS: Final = 24
_VERSION: Final = 8
_NAME: Final = re.compile(
    r"(?:snap-\d+-\d+-)?(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-m\d+)?\.avro"
)


def attempt_uuid(table_uuid: str, ledger: str, number: int, sequence_number: int) -> uuid.UUID:
    """Return the uuid of an attempt.

    One without a number (0), or whose numbers are out of all bounds, has a random one, which proves
    nothing.

    Args:
        table_uuid: of the table that it is staged for.
        ledger: the identity of the ledger.
        number: of the attempt, from the ledger's counter.
        sequence_number: that its snapshot would have.
    """
    if not number or max(number, sequence_number) >= 1 << _COUNTER_BITS:
        return uuid.uuid4()
    of_ledger = _bits(ledger, _LEDGER_BITS)
    said = ((sequence_number << _COUNTER_BITS) | number) << _LEDGER_BITS | of_ledger
    return _spread(said << _DIGEST_BITS | _digest(table_uuid, said))


def sequence_number_in(path: str, table_uuid: str) -> int | None:
    """Return the sequence number of the attempt that wrote a manifest or manifest list.

    None when no attempt of ours on this table did.
    """
    found = _NAME.fullmatch(path.rsplit("/", 1)[-1])
    if found is None:
        return None
    one = uuid.UUID(found["uuid"])
    if one.version != _VERSION:
        return None
    bits = _gathered(one)
    said, digest = bits >> _DIGEST_BITS, bits & ((1 << _DIGEST_BITS) - 1)
    if digest != _digest(table_uuid, said):
        return None
    return said >> (_COUNTER_BITS + _LEDGER_BITS)


def _digest(table_uuid: str, said: int) -> int:
    return _bits(f"mergeberg {table_uuid} {said}", _DIGEST_BITS)


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
