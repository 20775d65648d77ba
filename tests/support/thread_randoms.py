"""Gives every thread but the main one a random generator of its own, in the processes of the tests.

A plugin of pytest, loaded by pyproject.toml before anything imports a library. Hypothesis compares
the state of the global generator before and after a strategy draws, and fails the test when it has
changed: also when it was a thread in the background that drew from it in between. kazoo's thread
does, for each attempt to connect and each pause between two; urllib3 and tenacity do between two
attempts. They all call the functions of the module `random`, so these are replaced.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

__all__: list[str] = []

_STATE: Final = ("seed", "getstate", "setstate")


class _OfThread(threading.local):
    """The generator of one thread."""

    def __init__(self) -> None:
        self.generator = random.Random()  # noqa: S311  nothing secret


_OWN: Final = _OfThread()


def _by_thread(name: str, of_all: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(of_all)
    def draw(*args: Any, **named: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return of_all(*args, **named)
        return getattr(_OWN.generator, name)(*args, **named)

    return draw


def _install() -> None:
    for name in random.__all__:
        function = getattr(random, name)
        # The state stays the global one's: a thread that seeds it changes what others draw, and
        # is to be found.
        if name not in _STATE and isinstance(getattr(function, "__self__", None), random.Random):
            setattr(random, name, _by_thread(name, function))


_install()
