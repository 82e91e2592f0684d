"""A timed function that keeps a token for each time, for tests in memory and on Spark."""

from __future__ import annotations

from typing import Any


class Hold:
    """Holds a token for each time, and sends the number of its rows when no more can come, often for several times."""

    def __init__(self, copies: int = 1) -> None:
        self.copies = copies

    def initial_state(self) -> dict[int, list[Any]]:
        """Time to the number of its rows and the token."""
        return {}

    def process(self, row: dict[str, Any], state: dict[int, list[Any]], at: Any) -> None:
        """Count a row."""
        held = state.setdefault(row["at"], [0, None])
        held[0] += 1
        held[1] = held[1] or at.keep()

    def reached(self, frontier: int | None, state: dict[int, list[Any]], out: Any) -> None:
        """Send what is complete, and give the right back."""
        for time in [time for time in state if frontier is None or time < frontier]:
            count, token = state.pop(time)
            out.give(token, [{"at": time, "count": count}] * self.copies)
            token.drop()
