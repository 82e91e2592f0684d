"""Sources and sinks that the user has written: what is known of them here, by their methods alone.

``connectors.source.Source`` and ``connectors.sink.Sink`` (``fn.Source``, ``fn.Sink``) say what the methods do.

>>> class Half:
...     def splits(self, count):
...         return []
>>> misfit_of(Half(), OwnSource), misfit_of(Half, OwnSource)
('a Half without open()', 'the class Half; an instance of it is meant, as in Half()')
>>> described(Half())
'<...Half object>'
"""

from __future__ import annotations

import re
from typing import Any, Protocol, runtime_checkable

from fries_nb.dataflow.kafka_endpoint import Kafka
from fries_nb.errors import DataflowError


@runtime_checkable
class OwnSource(Protocol):
    """A source that the user has written. An attribute ``rate`` limits it, as that of ``Replay`` does."""

    def splits(self, count: int) -> Any:
        """See ``connectors.source.Source``."""

    def open(self, split: Any, position: Any) -> Any:
        """See ``connectors.source.Source``."""


@runtime_checkable
class OwnSink(Protocol):
    """A sink that the user has written."""

    def claim(self, flow: str, run: str) -> None:
        """See ``connectors.sink.Sink``."""

    def open(self, worker: Any, incarnation: int, epoch: int = 1) -> Any:
        """See ``connectors.sink.Sink``."""

    def prepare(self, parts: Any) -> None:
        """See ``connectors.sink.Sink``."""

    def commit(self, number: int, parts: Any) -> None:
        """See ``connectors.sink.Sink``."""


METHODS: dict[type, tuple[str, ...]] = {OwnSource: ("splits", "open"), OwnSink: ("claim", "open", "prepare", "commit")}
"""The methods that each of them must have."""


def misfit_of(given: object, kind: type) -> str:
    """What an object is that is no source or sink, for the message of an error.

    Args:
        given: the object.
        kind: ``OwnSource`` or ``OwnSink``.
    """
    named = [name for name in METHODS[kind] if callable(getattr(given, name, None))]
    if isinstance(given, type) and named:
        return f"the class {given.__name__}; an instance of it is meant, as in {given.__name__}()"
    lacking = ", ".join(f"{name}()" for name in METHODS[kind] if name not in named)
    return f"a {type(given).__name__} without {lacking}" if named else repr(given)


def described(given: object) -> str:
    """The ``repr`` of an object, without addresses of memory, so that it is the same in another process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(given))


def check_readable(name: str, target: object) -> None:
    """Check that the rows of a sink can be read.

    Args:
        name: name of the sink, or of the operator with dead letters.
        target: its target.

    Raises:
        DataflowError: it is a topic, or the user's own.
    """
    if isinstance(target, Kafka):
        raise DataflowError(
            f"the rows of {name!r} are messages of {target}, where consumers read them; expected a sink with memory(), "
            "parquet(path) or delta(path)"
        )
    if isinstance(target, OwnSink):
        raise DataflowError(
            f"the rows of {name!r} are in {described(target)}, a sink of your own, which only you can read; expected "
            "a sink with memory(), parquet(path) or delta(path)"
        )
