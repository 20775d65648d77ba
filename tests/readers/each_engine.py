"""The mark of tests that every engine is asked in."""

from __future__ import annotations

import pytest

from tests.readers.engines import ENGINES

__all__ = ["each_engine"]


def each_engine(*of_spark: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Return the mark that runs a test for every engine of files; `of_spark` marks Spark's too."""
    return pytest.mark.parametrize(
        "engine",
        [
            pytest.param(
                engine,
                id=engine.name,
                marks=(pytest.mark.spark, *of_spark) if engine.name == "Spark" else (),
            )
            for engine in ENGINES
            if engine.of_files
        ],
    )
