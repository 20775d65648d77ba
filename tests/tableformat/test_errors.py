"""A message that begins with the reason says the same as the message."""

from __future__ import annotations

import pytest

from tableformat.errors import reason_first, reason_of, refuse_all


@pytest.mark.parametrize(
    ("message", "short", "whole"),
    [
        (
            "Cannot write file:///a/b.parquet: No space left on device. Free space there.",
            "No space left on device: cannot write file:///a/b.parquet",
            "No space left on device: cannot write file:///a/b.parquet. Free space there.",
        ),
        (
            "Cannot reach https://ch1:8443: timed out after 1.5 s. Look after it.",
            "timed out after 1.5 s: cannot reach https://ch1:8443",
            "timed out after 1.5 s: cannot reach https://ch1:8443. Look after it.",
        ),
        (
            "Cannot write x: it is full.",
            "it is full: cannot write x",
            "it is full: cannot write x.",
        ),
        ("interrupted", "interrupted", "interrupted"),
        ("", "", ""),
        ("it may have landed: no answer",) * 3,
    ],
)
def test_the_reason_comes_first_and_nothing_is_left_out(
    message: str, short: str, whole: str
) -> None:
    """Harm prevented: a list that cuts an error off before its reason."""
    assert (reason_of(message), reason_first(message)) == (short, whole)


def test_a_refusal_with_several_reasons_stays_as_it_is() -> None:
    message = refuse_all("export db.t", ("column a: no", "column b: no")).message

    assert reason_first(message) == message


@pytest.mark.parametrize("reason", ["column a: no", "column a: it is\n- 7, not 8"])
def test_each_reason_is_a_message_of_its_own(reason: str) -> None:
    """Harm prevented: a report that cuts a reason of several lines into pieces."""
    one, several = refuse_all("export db.t", (reason,)), refuse_all("export db.t", (reason, "no"))

    assert one.reasons == (one.message,) == (f"Cannot export db.t: {reason}.",)
    assert several.reasons == (*one.reasons, "Cannot export db.t: no.")
