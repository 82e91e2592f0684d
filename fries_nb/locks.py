"""A decorator that runs methods under their object's lock.

>>> import threading
>>> class Count:
...     def __init__(self):
...         self.lock, self.value = threading.RLock(), 0
...
...     @locked
...     def add(self, number):
...         self.value += number
>>> count = Count()
>>> count.add(2), count.value
(None, 2)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class HasLock(Protocol):
    """An object with a reentrant lock, such as ``threading.RLock``."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The lock."""


S = TypeVar("S", bound=HasLock)


def locked(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Run the method under the lock of its object."""

    @functools.wraps(method)
    def alone(self: S, /, *args: P.args, **more: P.kwargs) -> R:
        with self.lock:
            return method(self, *args, **more)

    return alone
