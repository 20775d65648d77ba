"""Azure's signatures; `test_store_faults.py` has the tests of all stores."""

from __future__ import annotations

import pytest

from tableformat.errors import EndedCredentialsError
from tests.support.store_kinds import AbfsPlace
from tests.support.store_places import LARGE, over

_ALL = "rwdlac"
pytestmark = over(AbfsPlace)


def test_a_signature_that_has_ended_is_refused_at_once(
    place: AbfsPlace, caplog: pytest.LogCaptureFixture
) -> None:
    """Harm prevented: fifteen minutes of hopeless retries."""
    signature = place.server.signature(_ALL, seconds=-60)
    sink = place.reached(sas=signature).create(place.file)
    sink.write(b"small")

    with pytest.raises(
        EndedCredentialsError, match="The credentials are wrong or have expired"
    ) as caught:
        sink.commit()
    sink.abort()

    assert "trying again" not in caplog.text
    assert signature not in caught.value.message
    assert place.stored() == []


def test_a_caller_with_a_signature_writes_as_with_the_key(place: AbfsPlace) -> None:
    place.storage = place.reached(sas=place.server.signature(_ALL))

    place.write(LARGE)

    place.assert_there(LARGE)
    place.storage.delete(place.file)
    assert place.storage.list(place.root) == ()
