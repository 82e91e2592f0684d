"""Each test begins as a new kernel does: no question was answered wrongly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fries_nb.labs.answers import WRONG_ANSWERS


@pytest.fixture(autouse=True)
def new_kernel() -> Iterator[None]:
    """No attempts before the test, and none of it afterwards, when doctests run in the same process."""
    WRONG_ANSWERS.clear()
    yield
    WRONG_ANSWERS.clear()
