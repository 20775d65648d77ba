"""A resumed export uses the finished files that the storage has, or reports as lost."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from catalog.network import TimeOuts
from catalog.storages.s3.storage import S3Storage
from tableformat.errors import Action, DestinationError
from tableformat.export.slices import Share, Slice, finished_files, recipes_of
from tableformat.receipt import PartRange, Receipt
from tests.services.minio import MinIO
from tests.support.frozen_parts import PLAN
from tests.support.s3_places import access_to

PART = PartRange("all_1_1_0", "all_1_1_0", "/parts", 4, "hash")
SLICE = Slice(0, "key", "all", 1, "77", "/parts", (PART,), 4, 100, "", ())
CONTENT = b"rows"


def receipt_at(location: str) -> Receipt:
    """Return the receipt of the file of the slice."""
    return Receipt(
        key="key",
        transaction_id="77",
        epoch=1,
        slice_number=0,
        attempt="x",
        ranges=(PART,),
        file_path=location,
        file_bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        rows=4,
        rows_expected=4,
        partition=(),
        spec_id=0,
        sort_order_id=None,
        split_offsets=(4,),
        columns=(),
        seconds=0.0,
        peak_memory=0,
    )


def test_an_outage_or_a_refusal_is_not_the_absence_of_a_finished_file(minio_server: MinIO) -> None:
    """Harm prevented: every finished file is written once more, without a word."""
    bucket = minio_server.make_bucket()
    storage, receipt = S3Storage(access_to(minio_server)), receipt_at(f"s3://{bucket}/lake/f")

    assert finished_files((SLICE,), (receipt,), storage) == {}
    storage.put(receipt.file_path, CONTENT)
    assert finished_files((SLICE,), (receipt,), storage) == {0: receipt}
    storage.put(receipt.file_path, CONTENT[::-1])
    assert finished_files((SLICE,), (receipt,), storage) == {}

    lists = S3Storage(access_to(minio_server, minio_server.account("s3:ListBucket", bucket=bucket)))
    with pytest.raises(DestinationError, match="403"):
        finished_files((SLICE,), (receipt,), lists)
    brief = TimeOuts(connect=1, read=2, retry_for=1)
    away = S3Storage(access_to(minio_server, time_outs=brief))
    minio_server.kill()
    with pytest.raises(DestinationError, match="did not recover within 1 s"):
        finished_files((SLICE,), (receipt,), away)


def test_the_rate_and_the_command_say_nothing_of_what_files_hold() -> None:
    """Harm prevented: with another limit, release or command, finished files are not known."""
    limited = replace(PLAN, share=Share(3, 1000), action=Action.ARCHIVE)

    assert recipes_of(limited)((SLICE,)) == recipes_of(PLAN)((SLICE,))
    assert recipes_of(replace(PLAN, select="1"))((SLICE,)) != recipes_of(PLAN)((SLICE,))


def test_the_same_files_have_the_same_recipe_in_the_next_release() -> None:
    """Harm prevented: a run after an upgrade writes all the finished files again."""
    known = "9b19b3ea545b216e6d20c96406b2807c263f964619f9d636c62d31f1b596fbab"

    assert recipes_of(PLAN)((SLICE,)) == known


def test_files_that_were_computed_in_another_time_zone_are_written_again() -> None:
    """Harm prevented: the days of one partition are those of two time zones."""
    zoned = replace(PLAN, layout=replace(PLAN.layout, zone="Europe/Berlin"))

    assert recipes_of(zoned)((SLICE,)) != recipes_of(PLAN)((SLICE,))
