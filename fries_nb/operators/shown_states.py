r"""States outside of their operators, to be looked at: of a checkpoint, or of a run.

There is no function with which the definitions of users came, so those of this process are used; what it lacks is named
in a sentence. Tokens in states are handles without a use, which show their times.

>>> unpickled("FM", plainly_pickled({"c7": [1, 2]}))
{'c7': [1, 2]}
>>> unpickled_each("FM", [plainly_pickled([one, one]) for one in (["c7"], ["c8"])])
[[['c7'], ['c7']], [['c8'], ['c8']]]
>>> unpickled("FM", b"cshop\nTotal\n.")
Traceback (most recent call last):
...
fries_nb.errors.OperatorError: the state of FM cannot be shown: it holds Total of shop, which is not defined there ...
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from fries_nb.errors import FriesError, OperatorError, exception_text, in_one_line
from fries_nb.operators.pickled_states import dumps, gone
from fries_nb.progress.progress_graph import ChangeBatch
from fries_nb.progress.tokens import TimeUnits, TokenBook


class _Unpickler(pickle.Unpickler):
    """Says which class is missing."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError) as error:
            raise OperatorError(f"it holds {gone((module, name))}") from error


def unpickled(operator: str, pickled: bytes, units: TimeUnits | None = None) -> Any:
    """Unpickle what was pickled for ``operators.state.loads``: the states of an operator, or that of a key.

    Args:
        operator: name of the operator.
        pickled: the pickle; unpickling it executes code, so its origin has to be verified before.
        units: how users see the operator's times, for tokens in states; ``None`` for numbers.

    Raises:
        OperatorError: it cannot be unpickled here, in one sentence that names the class, if one is missing.
    """
    return unpickled_each(operator, [pickled], units)[0]


def unpickled_each(operator: str, pickled: Iterable[bytes], units: TimeUnits | None = None) -> list[Any]:
    """The same for several pickles, in order; raises as ``unpickled`` does."""
    held = list(pickled)
    try:
        with _tokens(operator, units):
            try:
                return [*map(pickle.loads, held)]
            except (ImportError, AttributeError):  # what says which class is missing takes longer
                # One for each: an unpickler remembers what it has met, and would take it for what a later one repeats.
                return [_Unpickler(io.BytesIO(one)).load() for one in held]
    except Exception as error:
        words = str(error) if isinstance(error, FriesError) else exception_text(error)
        raise OperatorError(f"the state of {operator} cannot be shown: {in_one_line(words)[0]}", operator) from error


def _tokens(operator: str, units: TimeUnits | None) -> AbstractContextManager[None]:
    """A block in which tokens that are met are adopted."""
    book = TokenBook(operator, ChangeBatch(), trial=True)
    book.units = units
    return book.bound()


def plainly_pickled(state: Any) -> bytes:
    """A state as bytes: equal only for equal states, and as long as in a checkpoint, to within the names of classes.

    Classes are pickled by name, as there; what has no name, by value.
    """
    try:
        return pickle.dumps(state)
    except Exception:  # noqa: BLE001 - pickling may raise anything; what cannot be pickled by name is by value
        return dumps(state)[0]
