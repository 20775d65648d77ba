"""The names of manifests prove whose they are, and when their attempt is dead."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from tableformat.file_names import attempt_uuid, sequence_number_in

TABLE = "0c4f7b1e-8f0a-4d6c-9a0e-2f5b8f6f1a11"
counters = st.integers(1, (1 << 36) - 1)


@given(st.uuids(), st.text(), counters, counters)
def test_the_sequence_number_is_read_from_every_name_of_an_attempt(
    table: uuid.UUID, ledger: str, number: int, sequence: int
) -> None:
    """Harm prevented: nobody can say that a manifest is dead, and it stays for ever."""
    made = attempt_uuid(str(table), ledger, number, sequence)

    for name in (
        f"{made}-m0.avro",
        f"file:///w/metadata/snap-77-0-{made}.avro",
        f"{made}-m12.avro",
    ):
        assert sequence_number_in(name, str(table)) == sequence


@given(st.uuids(version=4))
def test_the_names_of_other_writers_are_not_ours(theirs: uuid.UUID) -> None:
    """Harm prevented: a manifest of another engine's request, still under way, goes."""
    assert sequence_number_in(f"{theirs}-m0.avro", TABLE) is None
    assert sequence_number_in(f"snap-5-1-{theirs}.avro", TABLE) is None


@given(st.binary(min_size=16, max_size=16))
def test_other_names_of_the_same_form_are_not_ours(some: bytes) -> None:
    bits = int.from_bytes(some, "big")
    bits = bits & ~(0xF << 76) & ~(0b11 << 62) | 8 << 76 | 0b10 << 62
    # One in 16 million is: not in the examples of a test.
    assert sequence_number_in(f"{uuid.UUID(int=bits)}-m0.avro", TABLE) is None


@given(counters, st.lists(counters, min_size=2, max_size=9, unique=True))
def test_attempts_of_one_ledger_never_share_a_name(sequence: int, numbers: list[int]) -> None:
    """Harm prevented: one attempt overwrites the manifest of another one."""
    made = {attempt_uuid(TABLE, "ledger", n, sequence) for n in numbers}

    assert len(made) == len(numbers)
    assert attempt_uuid(TABLE, "ledger", 7, sequence) != attempt_uuid(TABLE, "other", 7, sequence)


def test_another_table_s_attempts_are_not_judged_here() -> None:
    made = attempt_uuid(TABLE, "ledger", 3, 4)

    assert sequence_number_in(f"{made}-m0.avro", TABLE.replace("0c", "0d")) is None


def test_an_attempt_without_a_number_has_a_random_name() -> None:
    made = [attempt_uuid(TABLE, "ledger", number, 4) for number in (0, 0, 1 << 36)]

    assert len({*made}) == 3
    assert {u.version for u in made} == {4}


def test_other_files_of_the_metadata_directory_are_no_manifests() -> None:
    made = attempt_uuid(TABLE, "ledger", 3, 4)

    for name in (f"00001-{made}.metadata.json", f"{made}.json", f"{made}-m0.avro.tmp", "a.avro"):
        assert sequence_number_in(name, TABLE) is None
