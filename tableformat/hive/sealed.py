"""JSON documents of a tree: pretty-printed, with a format and a checksum of everything else.

The form of its three documents: the tree's identity, the log's entries, and commit files
(docs/spec/hive.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tableformat.errors import DestinationError
from tableformat.ledger_text import checksum

__all__ = ["PUT_BACK", "REPLACING_FORMAT", "TREE_FORMAT", "damaged", "opened", "sealed"]

TREE_FORMAT: Final = 1
REPLACING_FORMAT: Final = 2
"""The format of a document that says that an export replaces others."""
PUT_BACK: Final = "put it back from a copy"


def sealed(body: Mapping[str, Any], form: int = TREE_FORMAT) -> bytes:
    """Return the stored form of a document; equal documents have equal bytes."""
    whole = {"format_version": form, **body}
    return json.dumps({**whole, "checksum": checksum(whole)}, indent=1).encode()


def opened(data: bytes, what: str, remedy: str = PUT_BACK) -> dict[str, Any]:
    """Return the body of a document, however it is spaced.

    Args:
        data: the stored form.
        what: names the document in errors.
        remedy: what to do about a document that is damaged.

    Raises:
        DestinationError: it was changed since it was written, or is of another format.
    """
    try:
        raw: dict[str, Any] = json.loads(data)
        found = raw["format_version"]
        if found not in (TREE_FORMAT, REPLACING_FORMAT):
            message = (
                f"Cannot read {what}: it has format {found}, this release reads "
                f"{REPLACING_FORMAT}. Use the release that wrote it, or a newer one."
            )
            raise DestinationError(message)
        if raw.pop("checksum") != checksum(raw):
            raise damaged(what, "its content is not what its checksum was made of", remedy)
        del raw["format_version"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(what, repr(error), remedy) from error
    return raw


def damaged(what: str, why: str, remedy: str = PUT_BACK) -> DestinationError:
    """Return the error for a document that is not what was written."""
    return DestinationError(
        f"Cannot read {what}: {why}. It was changed or cut off since it was written; {remedy}."
    )
