"""What holds something that has to be let go: leaving its `with` closes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Closing"]


class Closing(ABC):
    """A context manager that closes itself, whatever happened meanwhile."""

    @abstractmethod
    def close(self) -> None:
        """Let go. Closing twice is the same as once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
