"""What is changed in a packet on its way: as much of IPv4 and TCP as that needs (RFC 791, 9293)."""

from __future__ import annotations

import random
import struct
from typing import Final

__all__ = ["checksum", "corrupted", "forged", "is_ipv4", "payload_of"]

_TCP: Final = 6
_SHORTEST: Final = 20
"""Bytes of a header without options, in both protocols."""
_CHECKSUM_AT: Final = 16
"""Where TCP's header has its checksum."""


def is_ipv4(packet: bytes) -> bool:
    """Whether a packet is one of IPv4; a device also sends what nobody asked for."""
    return len(packet) >= _SHORTEST and packet[0] >> 4 == 4


def payload_of(packet: bytes) -> range | None:
    """Return where the bytes are that a TCP packet carries; None when it carries none."""
    begin = _header_of(packet)
    if packet[9] != _TCP or len(packet) < begin + _SHORTEST:
        return None
    found = range(begin + (packet[begin + 12] >> 4) * 4, len(packet))
    return found or None


def corrupted(packet: bytes, chance: random.Random) -> bytes:
    """Flip a bit behind the header of a packet, so that its checksum is wrong."""
    return _flipped(packet, range(_header_of(packet), len(packet)), chance)


def forged(packet: bytes, chance: random.Random) -> bytes | None:
    """Flip a bit of what a TCP packet carries, and make its checksum right; None: it carries none.

    Only a check of the content finds it: TLS.
    """
    payload = payload_of(packet)
    if payload is None:
        return None
    begin = _header_of(packet)
    flipped = bytearray(_flipped(packet, payload, chance))
    struct.pack_into("!H", flipped, begin + _CHECKSUM_AT, 0)
    right = checksum(bytes(flipped))
    struct.pack_into("!H", flipped, begin + _CHECKSUM_AT, right)
    return bytes(flipped)


def checksum(packet: bytes) -> int:
    """Return TCP's checksum over a packet as it is: 0 where the one in it is right."""
    begin = _header_of(packet)
    segment = packet[begin:]
    text = packet[12:20] + struct.pack("!HH", _TCP, len(segment)) + segment
    text += bytes(len(text) % 2)
    total: int = sum(struct.unpack(f"!{len(text) // 2}H", text))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def _header_of(packet: bytes) -> int:
    return (packet[0] & 0x0F) * 4


def _flipped(packet: bytes, where: range, chance: random.Random) -> bytes:
    at = chance.choice(where)
    return packet[:at] + bytes([packet[at] ^ 1 << chance.randrange(8)]) + packet[at + 1 :]
