"""What the relay of packets does to them: each event as often as configured, and nothing else.

Without this a soak over bad networks could pass because the network was never bad.
"""

from __future__ import annotations

import math
import random
import struct

from hypothesis import given
from hypothesis import strategies as st

from tests.services.packets.conditions import CLEAN, CUT, Conditions, Happened, Way
from tests.services.packets.ipv4 import checksum, corrupted, forged, payload_of

MANY = 2_000
STEP = 0.001
LATER = 1_000.0
SEED = 7


def packet(number: int, size: int = 100) -> bytes:
    """Return a TCP packet that is right, with a number in what it carries."""
    payload = struct.pack("!I", number) + bytes(size - 4)
    addresses = bytes([10, 77, 1, 2, 127, 0, 0, 1])
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 40 + len(payload), 0, 0, 64, 6, 0) + addresses
    head = struct.pack("!HHIIBBHHH", 40_000, 9_000, 1, 1, 0x50, 0x18, 64_240, 0, 0)
    empty = ip + head + payload
    return empty[:36] + struct.pack("!H", checksum(empty)) + empty[38:]


def numbers(found: list[bytes]) -> list[int]:
    return [int(struct.unpack_from("!I", one, 40)[0]) for one in found]


def sent(conditions: Conditions, seed: int = SEED) -> tuple[Way, list[bytes]]:
    """Send packets, one in a millisecond; return the way, and what arrived until long after."""
    way, found = Way(seed), list[bytes]()
    way.conditions = conditions
    for number in range(MANY):
        now = number * STEP
        way.send(packet(number), now)
        found += way.arrived(now)
    return way, [*found, *way.arrived(LATER)]


def test_a_clean_way_changes_nothing() -> None:
    way, found = sent(CLEAN)

    assert found == [packet(number) for number in range(MANY)]
    assert way.counted == {Happened.SENT: MANY, Happened.ARRIVED: MANY}
    assert {checksum(one) for one in found} == {0}


def few(count: int) -> bool:
    """Whether something happened about as often as one time in twenty."""
    return 0.03 * MANY < count < 0.07 * MANY


def test_loss() -> None:
    way, found = sent(Conditions(loss=0.05))

    assert few(way.counted[Happened.LOST])
    assert len(found) == MANY - way.counted[Happened.LOST]
    assert numbers(found) == sorted(set(numbers(found)))


def test_duplication() -> None:
    way, found = sent(Conditions(duplication=0.05))

    assert few(way.counted[Happened.DUPLICATED])
    assert len(found) == MANY + way.counted[Happened.DUPLICATED]
    assert sorted(set(numbers(found))) == list(range(MANY))


def test_reordering() -> None:
    way, found = sent(Conditions(reordering=0.05))

    arrived = numbers(found)
    overtaken = sum(number < max(arrived[:n], default=0) for n, number in enumerate(arrived))
    assert few(overtaken)
    assert way.counted[Happened.REORDERED] == overtaken
    assert sorted(arrived) == list(range(MANY))


def test_corruption_is_what_a_checksum_finds() -> None:
    way, found = sent(Conditions(corruption=0.05))

    wrong = [one for one in found if checksum(one) != 0]
    assert few(len(wrong))
    assert way.counted[Happened.CORRUPTED] == len(wrong)


def test_forgery_is_what_no_checksum_finds() -> None:
    """Harm prevented: TLS gets the blame for connections that TCP had mended before."""
    way, found = sent(Conditions(forgery=0.05))

    wrong = [one for number, one in enumerate(found) if one != packet(number)]
    assert few(len(wrong))
    assert way.counted[Happened.FORGED] == len(wrong)
    assert {checksum(one) for one in found} == {0}


def test_a_packet_that_carries_nothing_is_not_forged() -> None:
    way = Way(SEED)
    way.conditions = Conditions(forgery=1.0)
    empty = packet(0)[:40]

    way.send(empty, 0.0)

    assert payload_of(empty) is None
    assert way.arrived(0.0) == [empty]
    assert way.counted[Happened.FORGED] == 0


@given(size=st.integers(4, 1_460), seed=st.integers(0, 1_000))
def test_one_bit_is_flipped_and_the_checksum_says_so_or_not(size: int, seed: int) -> None:
    before = packet(1, size)

    for change, is_right in ((corrupted, False), (forged, True)):
        after = change(before, random.Random(seed))  # noqa: S311  chance, no secret
        assert after is not None
        differs = [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        without_checksum = [n for n in differs if n not in (36, 37)]
        assert len(without_checksum) == 1 or (not is_right and len(differs) == 1)
        assert (checksum(after) == 0) is is_right
        assert after[:20] == before[:20]


def test_delay() -> None:
    way = Way(SEED)
    way.conditions = Conditions(delay=0.5)

    way.send(packet(1), 10.0)

    assert way.arrived(10.49) == []
    assert way.next_at == 10.5
    assert way.arrived(10.5) == [packet(1)]
    assert way.next_at == math.inf


def test_a_rate_is_kept_and_what_it_cannot_carry_is_dropped() -> None:
    """Harm prevented: a queue without end, in which nothing is ever too slow for a sender."""
    size = len(packet(0))
    rate = 64 * size
    way = Way(SEED)
    way.conditions = Conditions(rate=rate)
    for number in range(MANY):
        way.send(packet(number), 0.0)

    in_a_second = len(way.arrived(1.0))
    rest = len(way.arrived(LATER))

    assert in_a_second == 64
    assert rest == 1
    assert way.counted[Happened.OVERFLOWED] == MANY - in_a_second - rest
    assert way.counted[Happened.QUEUED] == in_a_second + rest - 1


def test_nothing_arrives_while_it_is_cut_and_all_does_when_it_is_healed() -> None:
    way = Way(SEED)
    way.conditions = Conditions(delay=1.0)
    way.send(packet(1), 0.0)

    way.conditions = CUT
    way.send(packet(2), 1.0)
    while_cut = way.arrived(5.0)
    way.conditions = CLEAN
    way.send(packet(3), 6.0)

    assert while_cut == []
    assert numbers(way.arrived(6.0)) == [3]
    assert way.counted[Happened.CUT_OFF] == 2


def test_every_packet_is_accounted_for_and_a_seed_repeats_the_run() -> None:
    everything = Conditions(
        loss=0.05, duplication=0.05, reordering=0.1, corruption=0.05, forgery=0.05, delay=0.01,
        rate=50_000.0,
    )  # fmt: skip

    way, found = sent(everything)
    again, found_again = sent(everything)
    _, other = sent(everything, SEED + 1)

    counted = way.counted
    came = counted[Happened.SENT] + counted[Happened.DUPLICATED]
    gone = counted[Happened.LOST] + counted[Happened.OVERFLOWED] + counted[Happened.CUT_OFF]
    assert came - gone == counted[Happened.ARRIVED] == len(found)
    assert set(counted) == set(Happened) - {Happened.CUT_OFF}
    assert (found_again, again.counted) == (found, counted)
    assert other != found


def test_what_is_not_ipv4_is_left_out() -> None:
    """Harm prevented: what devices say by themselves is counted as something that happened."""
    way = Way(SEED)

    way.send(b"\x60" + bytes(60), 0.0)

    assert way.arrived(LATER) == []
    assert way.counted == {}
