"""A message begins with its reason and says the same, or has the verb of the command that ran."""

from __future__ import annotations

import pickle

import pytest

from tableformat.errors import (
    Action,
    RefusedError,
    SourceError,
    TableFormatError,
    Unable,
    UsageError,
    during,
    reason_first,
    reason_of,
    refuse_all,
)
from tableformat.messages import Option


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


@pytest.mark.parametrize("reasons", [("no.",), ("column a: no", "column b: no")])
def test_a_message_has_the_verb_of_the_command_that_ran(reasons: tuple[str, ...]) -> None:
    """Harm prevented: a user who verifies reads that something cannot be exported."""
    error = RefusedError(Unable("db.t", reasons), code=48)
    assert error.message == refuse_all("export db.t", reasons).message

    with pytest.raises(RefusedError) as found, during(Action.VERIFY):
        raise error

    same = refuse_all("verify db.t", reasons)
    assert (found.value.message, found.value.reasons) == (same.message, same.reasons)
    assert (str(found.value), found.value.code) == (same.message, 48)


def test_a_message_that_has_a_verb_keeps_it() -> None:
    error: TableFormatError = SourceError("Cannot reach https://ch1: it is gone. Look after it.")

    assert str(error.during(Action.FETCH)) == "Cannot reach https://ch1: it is gone. Look after it."


def test_the_repr_of_an_error_has_no_marks_of_options() -> None:
    """Harm prevented: a message about another error shows escapes instead of an option."""
    error = UsageError(f"Cannot read {Option.HIVE_COLUMN} a. Complete it.")
    assert repr(error) == "UsageError('Cannot read --hive-column a. Complete it.')"


def test_a_message_keeps_its_verb_between_processes() -> None:
    """Harm prevented: an error of another process that cannot be shown any more."""
    error = SourceError(Unable.of("partition 1 of db.t", "it is damaged. Mend it."))

    copied = pickle.loads(pickle.dumps(error))  # noqa: S301  our own

    text = "Cannot attach partition 1 of db.t: it is damaged. Mend it."
    assert copied.during(Action.ATTACH).message == text
