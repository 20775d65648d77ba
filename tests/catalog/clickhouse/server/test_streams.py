"""An Arrow stream of a server counts when it is one, from its first byte to its last."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.streams import arrow_batches
from tableformat.errors import SourceError
from tests.services.faulty_http import FaultyHttp, chunked

Asking = Callable[..., tuple[FaultyHttp, ServerClient]]


def stream_of(*values: int) -> bytes:
    """Return a whole Arrow stream."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"k": list(values)})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def values_of(asking: Asking, *pieces: bytes) -> list[int]:
    _, client = asking(chunked(pieces))
    batches = arrow_batches(lambda: client.stream("SELECT k"))
    return [value for batch in batches for value in batch["k"].to_pylist()]


def test_a_whole_stream_is_read_whatever_its_pieces_are(asking: Asking) -> None:
    whole = stream_of(1, 2)

    assert values_of(asking, whole) == [1, 2]
    assert values_of(asking, *(whole[at : at + 7] for at in range(0, len(whole), 7))) == [1, 2]


@pytest.mark.parametrize(
    "behind",
    [stream_of(3), b"x", b"\xff\xff\xff\xff\x00\x00\x00\x00", b"\x00" * 3_000_000],
    ids=["another stream", "a byte", "another end", "much"],
)
def test_what_stands_behind_the_end_of_a_stream_is_an_error(asking: Asking, behind: bytes) -> None:
    """They may be rows that nobody would miss."""
    with pytest.raises(SourceError, match=r"bytes after its end|has no end"):
        values_of(asking, stream_of(1, 2) + behind)


def test_no_beginning_of_a_stream_is_the_stream(asking: Asking) -> None:
    """One that is cut between two batches looks whole to Arrow itself."""
    whole = stream_of(1, 2)
    for stop in range(len(whole)):
        with pytest.raises(SourceError, match=r"its Arrow stream has no end|not a whole Arrow"):
            values_of(asking, whole[:stop])


def test_an_error_in_the_place_of_the_end_is_the_reason(asking: Asking) -> None:
    message = b"Code: 241. DB::Exception: Memory limit exceeded. (MEMORY_LIMIT_EXCEEDED)\n"
    with pytest.raises(SourceError, match=r"Memory limit exceeded") as raised:
        values_of(asking, stream_of(1, 2)[:-8] + message)
    assert raised.value.code == 241
