"""Looks into a run: the states of its operators, as tables.

The workers of an operator are asked by way of the driver (see ``driver.open_questions``), and copy what is wanted
between two tuples (see ``worker.looks``). Nothing of that is on the way of a row, and a question waits for at
most a time limit. Of a run that is over, what its hosts have left behind is shown.
"""

from __future__ import annotations

import itertools
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from fries_nb.changes.change import Change
from fries_nb.dataflow.arguments import checked_seconds
from fries_nb.dataflow.constraints import EdgeElement
from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.dataflow.keys import canonical_key, why_unchangeable
from fries_nb.dataflow.operators import is_timed, takes_state
from fries_nb.dataflow.updates import Edits, Update, returning
from fries_nb.dataflow.windowing import WindowFunction
from fries_nb.driver.driver import Driver
from fries_nb.driver.open_questions import GONE, OVER, Asked, Looked, Seen, Withdrawn
from fries_nb.errors import DataflowError, KeyTypeError, OperatorError, PlanError, RunError, unknown
from fries_nb.operators.shown_states import plainly_pickled, unpickled_each
from fries_nb.operators.state import has_state
from fries_nb.protocol.messages import ArmsSeen, LookAtArms, LookAtRows, LookAtState, RowsSeen, StateSeen, WorkerId
from fries_nb.protocol.partitioning import bins_of_keys
from fries_nb.running.checkpoint_view import CheckpointView
from fries_nb.running.row_table import (
    ABOUT,
    SeenRow,
    chosen,
    columns_of,
    newest,
    refuse_failed,
    renamed,
    row_table,
    seen_rows,
    tapped,
)
from fries_nb.running.state_table import StateRow, is_windows, key_name, rows_of_key, state_table, states_of
from fries_nb.spark.shipping import pickled
from fries_nb.telemetry.metrics import series
from fries_nb.transport.envelopes import CHUNK
from fries_nb.worker.row_taps import LOOKED_THROUGH

LIMIT = 1 << 28
"""Maximum size of the states that one question copies, in bytes."""
LAST_WORDS_S = 2.0
"""Seconds that the workers of a tap have to tell what they have found last, before it is given up."""
ANSWERS: Mapping[type, type[Seen]] = {LookAtState: StateSeen, LookAtRows: RowsSeen, LookAtArms: ArmsSeen}
"""Question to the kind of its answers."""
SAMPLED = 1_000
"""Number of keys of a worker by which the size of its state is estimated."""
_LOOK_S = 0.25
AnySeen = TypeVar("AnySeen", StateSeen, RowsSeen, Seen)


class LookedRun(Protocol):
    """What looks need of a run."""

    @property
    def graph(self) -> Graph:
        """The dataflow, as it is now."""

    @property
    def ended(self) -> threading.Event:
        """Set when all resources of the run are released."""

    @property
    def hide(self) -> frozenset[str]:
        """The columns whose values are not to be shown."""

    @property
    def state(self) -> str:
        """The state of the run."""

    def operator(self, name: str) -> Operator:
        """The operator of that name; raises a DataflowError that says so if a change has removed it."""

    def refuse_if_over(self, why: str) -> None:
        """Check that the run accepts requests; raises a RunError that ends with this reason."""

    def refuse_if_ended(self, operator: str, why: str) -> None:
        """Check that the operator's region has not ended before others; raises a PlanError that ends with this."""

    def driver_of(self, operator: str) -> Driver | None:
        """The driver of the operator's region; ``None`` if that has not begun."""

    def identity(self, source: Any) -> tuple[int, frozenset[str]]:
        """The identity of a source tuple, given as split and row, or as source, split and row.

        And the operators of the region in which it is read, beyond which no row has it.

        Raises:
            PlanError: rows have no identities, or it is given otherwise.
            DataflowError: no such source.
            RunError: the source has not begun.
        """

    def functions_now(self) -> dict[str, Any]:
        """Operator to a copy of what it runs now."""

    def source_of(self, identity: int, operator: str) -> tuple[str, int, int] | None:
        """The source, split and row that the identity of a tuple at an operator stands for; ``None`` for no source."""

    def checkpointed(self, timeout: float) -> CheckpointView:
        """A checkpoint of the region that runs, taken now."""

    def shown_time(self, ticks: int) -> Any:
        """A time in states of operators with windows, as users see it."""


@dataclass(frozen=True)
class StateSize:
    """How large the state of an operator is.

    Attributes:
        operator: its name.
        keys: its number of keys.
        size: about how many bytes all of them have, pickled; exact up to ``SAMPLED`` keys of a worker.
        largest: the largest states of those that were measured, largest first: key and bytes.
        on_disk: the numbers of those keys, and of their bytes, whose states are not in memory.
    """

    operator: str
    keys: int
    size: int
    largest: tuple[tuple[Any, int], ...]
    on_disk: tuple[int, int] = (0, 0)


class StateOfRun(str):
    """The state of a run as text, as ``running``; called with the name of an operator, the states of its keys.

    >>> StateOfRun("running") == "running"
    True
    """

    _looks: RunLooks

    @classmethod
    def of(cls, state: str, looks: RunLooks) -> StateOfRun:
        """The state of a run whose operators can be looked at."""
        made = cls(state)
        made._looks = looks
        return made

    def __call__(
        self, operator: str, keys: Iterable[Any] | None = None, n: int | None = 1_000, *, at: str | None = None,
        to: str | PathLike[str] | None = None, timeout: float = 30.0,
    ) -> Any:  # fmt: skip
        """The states of an operator's keys, as they are now; of a run that is over, as its hosts have left them.

        Each is copied by its worker between two tuples, so two keys may be a few rows apart. Rows go on meanwhile.
        With ``at="marker"`` all of them, and those of all other operators, are from one cut of the sources: a
        checkpoint is taken and looked into.

        Args:
            operator: its name.
            keys: the keys, tuples of several columns; those that it has not seen are left out.
            n: the number of keys at most, the newest ones; ``None`` for all. Without ``keys``.
            at: ``"marker"`` for states of one cut, of which the newest ones are not known.
            to: path of a Parquet file to which all states of one cut are written, however many there are.
            timeout: seconds to wait for the workers, or for the checkpoint.

        Returns:
            The number of rows with ``to``. Otherwise a pandas DataFrame with columns of the key; of the state, where
            all are dicts, dataclasses or lists of one length, else ``value``; ``_bytes``, pickled; ``_bin``; and
            ``_worker``. Each open window has a row. Without ``at`` its ``attrs`` have ``longest_pause_ms``, the longest
            time for which rows have waited between two of them while states were copied.

        Raises:
            DataflowError: no such operator, or one that keeps no state; or ``keys`` are no keys of it.
            PlanError: ``n`` or ``timeout`` is not a positive number, or ``at`` is something else.
            RunError: the operator has not begun, or its states are too large, or cannot be copied or shown; or no
                checkpoint can be taken, since the run is over.
            TimeoutError: a worker has not answered in time, or no checkpoint is complete.
            CheckpointError: see ``fn.checkpoint``.
        """
        if at not in (None, "marker"):
            raise PlanError(f'at={at!r}; expected at="marker", or nothing for the states of now')
        if to is not None and keys is not None:
            raise PlanError(f"to={str(to)!r} writes all states; expected no keys=")
        if at is not None or to is not None:
            return self._looks.at_marker(operator, keys, n, to, timeout)
        return self._looks.table(operator, keys, n, timeout)


class RunLooks:
    """Asks for the states of a run's operators; its methods wait, and may be called by any thread."""

    def __init__(self, run: LookedRun) -> None:
        self._run = run
        self._numbers = itertools.count(1)
        self._answers: dict[int, Looked] = {}
        self._awaited: set[int] = set()
        self._later: dict[int, Callable[[Looked], None]] = {}
        self._told = threading.Condition()

    def told(self, answer: Looked) -> None:
        """The driver has the answer to a question."""
        with self._told:
            if answer.number in self._awaited:
                self._answers[answer.number] = answer
                self._told.notify_all()
            then = self._later.pop(answer.number, None)
        if then is not None:
            then(answer)

    def ask_later(self, driver: Driver, operator: str, look: LookAtRows, then: Callable[[Looked], None]) -> None:
        """Ask for the newest rows of an operator, and pass the answer on when it comes, in the driver's thread."""
        look = replace(look, number=next(self._numbers))
        with self._told:
            self._later[look.number] = then
        driver.post(Asked(operator, look))

    def states(
        self, operator: str, keys: Iterable[Any] | None, count: int | None, timeout: float
    ) -> tuple[list[StateRow], float]:  # fmt: skip
        """Copies of the states of these keys, or of the newest ones; those that are not there are left out.

        And the longest time for which tuples have waited for that between two of them, in milliseconds.

        Raises:
            DataflowError: no such operator, or one that keeps no state; the keys are no list of keys.
            PlanError: ``count`` or ``timeout`` is not a positive number.
            RunError: the operator has not begun, its states are too large or cannot be copied, or a host that had some
                of them is gone.
            TimeoutError: a worker has not answered in time.
        """
        asked = self._checked(operator)
        most = sys.maxsize if count is None else _positive("n", count)
        limit = LIMIT // max(1, asked.workers)
        if keys is None:
            look = LookAtState(next(self._numbers), most, limit=limit)
        else:
            wanted = _checked_keys(asked, keys)
            look = LookAtState(next(self._numbers), len(wanted), pickle.dumps(wanted), limit=limit)
        parts = _told_of(asked.name, self._ask_states(asked.name, look, timeout))
        found = {one.key if asked.key else one.worker: one for one in _states(asked.name, parts)}
        if keys is not None:
            chosen_ones = [found[key] for key in dict.fromkeys(wanted) if key in found]
        else:
            chosen_ones = list(itertools.islice(_in_turn(found.values()), most))
        return chosen_ones, max(part.longest_ns for part in parts) / 1e6

    def table(self, operator: str, keys: Iterable[Any] | None, count: int | None, timeout: float) -> Any:
        """The same as a DataFrame, in which each open window of a key has a row; see ``state_table``."""
        found, pause_ms = self.states(operator, keys, count, timeout)
        shown, key = self._run.shown_time, self._run.graph.operator(operator).key
        rows: Iterator[StateRow]
        if any(is_windows(one.value) for one in found):
            each = (rows_of_key(one.key, one.value, one.bin, one.worker, _size_of, shown) for one in found)
            rows = itertools.chain.from_iterable(each)
        else:
            rows = (one._replace(window=tuple(map(shown, one.window))) if one.window else one for one in found)
        table = self._shown(state_table(rows, key))
        table.attrs["longest_pause_ms"] = pause_ms
        return table

    def _shown(self, table: Any, further: Iterable[str] = ()) -> Any:
        """The table, with masks for what the run hides where it is shown, and for further columns."""
        from fries_nb.dataflow.shown_table import shown_table  # imports pandas, which takes long

        hide = {*self._run.hide, *further}
        return shown_table(table, {*hide, *renamed(table, hide)}) if hide else table

    def edited(self, operator: str, states: Mapping[Any, Any], timeout: float) -> Update:
        """The update of an operator to what it runs, with these states of keys; and back to those that they have now.

        Raises:
            PlanError: a key has no state; a state could not be changed in place; the operator has windows.
        """
        known = self._checked(operator)
        if isinstance(known.function, WindowFunction) or not known.traits.runs_user_code:
            why = "has windows" if known.traits.runs_user_code else f"is a {known.kind}, and runs no function of yours"
            raise PlanError(f"{operator} {why}; its states are not edited, in this version")
        if not isinstance(states, Mapping) or not states:
            raise PlanError(f"states={states!r}; expected a mapping from keys to their states, with one at least")
        for key, state in states.items():
            if state is None or (why := why_unchangeable(state)):
                raise PlanError(f"{key!r}: {'None is no state' if state is None else why}")
        before = {one.key: one.value for one in self.states(operator, list(states), None, timeout)[0]}
        after = {canonical_key(key): state for key, state in states.items()}
        if missing := [key for key in after if key not in before]:
            raise PlanError(f"{missing[0]!r} has no state at {operator}; expected keys of which it has seen a row")
        return returning(self._run.functions_now()[operator], Edits(after), Edits(before))

    def at_marker(
        self, operator: str, keys: Iterable[Any] | None, count: int | None, to: str | PathLike[str] | None,
        timeout: float,
    ) -> Any:  # fmt: skip
        """The states as a checkpoint has them that is taken now, as a DataFrame or written to a file."""
        self._checked(operator)
        most, over_s = sys.maxsize if count is None else _positive("n", count), checked_seconds("timeout", timeout)
        expected = f"expected run.state({operator!r}), without at= and to=, for what its hosts have left"
        self._run.refuse_if_over(expected)
        self._begun(operator)
        self._run.refuse_if_ended(operator, expected)
        view = self._run.checkpointed(over_s)
        return self._shown(view.state(operator, keys, most)) if to is None else view.write_state(operator, to)

    def sizes(self, timeout: float) -> list[StateSize]:
        """The size of the state of each operator that keeps one, largest first; raises as ``states`` does."""
        found = []
        for name in self._stateful():
            if self._run.driver_of(name) is None:
                found.append(StateSize(name, 0, 0, ()))
                continue
            look = LookAtState(next(self._numbers), SAMPLED, spread=True)
            found.append(_size(name, _told_of(name, self._ask_states(name, look, timeout))))
        return sorted(found, key=lambda one: -one.size)

    def rows(
        self, of: str | EdgeElement, count: int, where: Callable[[Mapping[str, Any]], Any] | None, timeout: float
    ) -> Any:  # fmt: skip
        """The newest rows of an operator, or along an edge, as a DataFrame; see ``RunMonitor.rows``."""
        operator, to, branch = self._place(of)
        if where is not None and not callable(where):
            raise PlanError(f"where={where!r}; expected a function of a row, as in lambda row: row['amount'] > 100")
        most = _positive("n", count)
        if where is not None:
            return self._tapped(operator, to, branch, most, where, checked_seconds("timeout", timeout))
        look = LookAtRows(next(self._numbers), most, branch=branch)
        rows = self._seen_rows(_told_of(operator, self._ask(operator, look, timeout, to)), branch)
        return row_table(newest(rows, most), columns_of(rows), hide=self._run.hide)

    def way(self, of: str | EdgeElement | None, source: Any, count: int, timeout: float) -> Any:
        """What became of a source tuple, in the order of the dataflow, as a DataFrame; see ``RunMonitor.rows``."""
        identity, region = self._run.identity(source)
        most, over_s = _positive("n", count), time.monotonic() + checked_seconds("timeout", timeout)
        places = [self._place(of)] if of is not None else [
            (name, "", None) for name in self._run.graph.order if name in region]  # fmt: skip
        if outside := [name for name, _, _ in places if name not in region]:
            words = f"{outside[0]} is in another region of the dataflow than source={source!r}"
            raise PlanError(f"{words}: Spark computes what comes there")
        found, columns = list[SeenRow](), dict[str, None]()
        for operator, to, branch in places:
            look = LookAtRows(next(self._numbers), LOOKED_THROUGH, branch=branch, identity=identity)
            left_s = max(over_s - time.monotonic(), _LOOK_S)
            rows = self._seen_rows(self._ask(operator, look, left_s, to), branch)
            columns |= dict.fromkeys(columns_of(rows))
            wanted = self._run.source_of(identity, operator)
            found += newest([row for row in rows if row.source == wanted], most)
        return row_table(found, columns, ("operator", *ABOUT), self._run.hide)

    def _place(self, of: str | EdgeElement) -> tuple[str, str, int | None]:
        """The operator that is asked, and of an edge its other end and the operator's output."""
        graph = self._run.graph
        if not isinstance(of, EdgeElement):
            return self._run.operator(of).name, "", None
        branches = {EdgeElement(edge.source, edge.to): edge.branch for edge in graph.edges}
        if of not in branches:
            raise DataflowError(unknown("edge", str(of), map(str, branches)))
        if graph.operator(of.source).blocking:
            words = f"{of}: Spark computes these rows between two regions of the dataflow"
            raise PlanError(f"{words}; expected those that come in, run.rows({of.to!r})")
        return of.source, of.to, branches[of]

    def _tapped(
        self, operator: str, to: str, branch: int | None, most: int, where: Callable[[Mapping[str, Any]], Any],
        timeout: float,
    ) -> Any:  # fmt: skip
        """The next rows that satisfy a condition; of a run that is over, those that it has left."""
        shipped = pickled(operator, where, "where=")
        if len(shipped) > CHUNK:
            given = f"where= is {len(shipped):,} bytes long with all that it uses"
            raise PlanError(f"{given}; expected at most {CHUNK:,}: a condition that uses no large object")
        look = LookAtRows(next(self._numbers), most, where=shipped, lasts_ns=int(timeout * 1e9), branch=branch)
        driver = self._begun(operator)
        answer = self._answer_of_tap(driver, Asked(operator, look, to), timeout)
        parts = [part for part in answer.parts if isinstance(part, RowsSeen)]
        if answer.error == GONE:
            _told_of(operator, parts)
        refuse_failed(parts, self._run.hide)
        rows = self._seen_rows(parts)
        left: list[SeenRow] = []
        if not rows and answer.error == OVER:
            left = self._seen_rows(_told_of(operator, self._left(driver, operator, RowsSeen)), branch)
            rows = chosen(left, where, self._run.hide)
        return tapped(rows, most, parts, left, self._run.hide)

    def _seen_rows(self, parts: Iterable[Seen], branch: int | None = None) -> list[SeenRow]:
        seen = [part for part in parts if isinstance(part, RowsSeen)]
        return list(seen_rows(seen, self._run.shown_time, self._run.source_of, branch))

    def newest_rows(self, operator: str, look: LookAtRows, timeout: float) -> list[RowsSeen]:
        """What the workers of an operator tell of their newest rows; raises as ``states`` does."""
        look = replace(look, number=next(self._numbers))
        return [part for part in self._ask(operator, look, timeout) if isinstance(part, RowsSeen)]

    def arms(self, change: Change, samples: bool, timeout: float) -> list[ArmsSeen]:
        """What the workers of a canary's targets tell of its arms, if they have begun it; raises as ``states``."""
        found: list[ArmsSeen] = []
        for name in sorted(change.plan.targets):
            parts = self._ask(name, LookAtArms(next(self._numbers), change.id, samples), timeout)
            found += [part for part in parts if isinstance(part, ArmsSeen) and part.change == change.id]
        return found

    def size_table(self, timeout: float) -> Any:
        """The same as a DataFrame."""
        from pandas import DataFrame  # takes longer to import than all of fries_nb's own modules

        sizes = self.sizes(timeout)
        largest = [(one.largest or ((None, 0),))[0] for one in sizes]
        keys = (self._run.graph.operator(one.operator).key for one in sizes)
        hidden = ["largest_key"] if any(not self._run.hide.isdisjoint(key) for key in keys) else []
        columns = {
            "operator": [one.operator for one in sizes], "keys": [one.keys for one in sizes],
            "bytes": [one.size for one in sizes], "largest_key": series([key for key, _ in largest]),
            "largest_bytes": [size for _, size in largest], "disk_keys": [one.on_disk[0] for one in sizes],
            "disk_bytes": [one.on_disk[1] for one in sizes],
        }  # fmt: skip
        return self._shown(DataFrame(columns), hidden)

    def _stateful(self) -> list[str]:
        """The operators that keep a state."""
        operators = self._run.graph.by_name
        keep = {name for name, one in operators.items() if has_state(one, one.function)}
        # Copies of functions take long to make, and only these may have got one with a state by a change.
        if doubtful := [name for name, one in operators.items() if one.key and name not in keep]:
            runs = self._run.functions_now()
            keep |= {name for name in doubtful if has_state(operators[name], runs.get(name))}
        return [name for name in operators if name in keep]

    def _checked(self, operator: str) -> Operator:
        known = self._run.operator(operator)
        if not has_state(known, known.function) and operator not in (stateful := self._stateful()):
            others = f"those that do: {', '.join(stateful)}" if stateful else "no operator of this dataflow does"
            raise DataflowError(f"{operator} keeps no state; {others}")
        return known

    def _ask_states(self, operator: str, look: LookAtState, timeout: float) -> list[StateSeen]:
        return [part for part in self._ask(operator, look, timeout) if isinstance(part, StateSeen)]

    def _ask(
        self, operator: str, look: LookAtState | LookAtRows | LookAtArms, timeout: float, to: str = ""
    ) -> tuple[Seen, ...]:  # fmt: skip
        over_s = time.monotonic() + checked_seconds("timeout", timeout)
        driver = self._begun(operator)
        with self._awaiting(look.number):
            driver.post(Asked(operator, look, to))
            answer = self._answer(driver, look.number, over_s)
        if answer is None:
            why = "one may be in a long call" if self._run.state == "running" else f"the run is {self._run.state}"
            raise TimeoutError(f"within {timeout:g} s not all workers of {operator} have answered; {why}")
        if answer.error and answer.error != OVER:
            raise RunError(_advised(answer.error))
        return self._left(driver, operator, ANSWERS[type(look)]) if answer.error else answer.parts

    def _begun(self, operator: str) -> Driver:
        """The driver of the operator's region."""
        driver = self._run.driver_of(operator)
        if driver is None:
            self._run.refuse_if_over(f"{operator} had not begun")
            raise RunError(not_begun(operator))
        return driver

    def _answer_of_tap(self, driver: Driver, asked: Asked, timeout: float) -> Looked:
        """What a tap has found by then; it ends with this call, whatever ends that."""
        number, over_s = asked.look.number, time.monotonic() + timeout
        with self._awaiting(number):
            driver.post(asked)
            try:
                answer = self._answer(driver, number, over_s)
            finally:
                driver.post(Withdrawn(number))
            if answer is None and (answer := self._answer(driver, number, time.monotonic() + LAST_WORDS_S)) is None:
                driver.post(Withdrawn(number))  # a worker is in a long call
                answer = self._answer(driver, number, time.monotonic() + LAST_WORDS_S)
        return answer or Looked(number, ())

    @contextmanager
    def _awaiting(self, number: int) -> Iterator[None]:
        """Keep the answer to a question if it comes within the block."""
        with self._told:
            self._awaited.add(number)
        try:
            yield
        finally:
            with self._told:
                self._awaited.discard(number)
                self._answers.pop(number, None)

    def _answer(self, driver: Driver, number: int, over_s: float) -> Looked | None:
        """The answer to a question, once it is there; ``None`` if it is not in time."""
        with self._told:
            while number not in self._answers and (left_s := over_s - time.monotonic()) > 0:
                if driver.is_closed:  # what was posted to it since is discarded
                    self._answers.setdefault(number, Looked(number, (), OVER))
                else:
                    self._told.wait(min(left_s, _LOOK_S))
            return self._answers.get(number)

    def _left(self, driver: Driver, operator: str, kind: type[Seen]) -> tuple[Seen, ...]:
        """What the hosts of a run that is over have left behind; warns of those that were gone."""
        while not driver.is_closed:  # the last messages are still to come
            self._run.ended.wait(_LOOK_S)
        last = driver.core.looks.last.items()
        left = [part for worker, parts in last if worker.operator == operator for part in parts]
        found = tuple(part for part in left if isinstance(part, kind))
        if error := next((part.error for part in found if part.error), ""):
            words = f"the run is over, and has left nothing of {operator}: {error}"
            raise RunError(f"{words}; expected fn.checkpoint(path), if it has kept checkpoints")
        placed = driver.controller.topology.workers.get(operator, ())
        if missing := {*range(len(placed))} - {part.worker.index for part in found}:
            words = f"{operator}[{min(missing)}]" + (" and others" if len(missing) > 1 else "")
            warnings.warn(f"{words} left nothing behind: its host was gone, so its part is missing", stacklevel=5)
        return found


def not_begun(operator: str) -> str:
    """Why an operator of a later region has nothing to show."""
    return f"{operator} has not begun: its region of the dataflow begins when those above have ended"


def _states(operator: str, parts: Iterable[StateSeen]) -> Iterator[StateRow]:
    """The states in parts of answers, in order."""
    for part in parts:
        pieces = part.pieces
        try:
            pairs = unpickled_each(operator, pieces)
        except OperatorError as error:
            raise RunError(str(error)) from error
        bins = bins_of_keys([key for key, *_ in pairs]).tolist() if pairs else []
        for (key, state, *end), bin_, piece in zip(pairs, bins, pieces, strict=True):
            # A NaN that was pickled is another one: canonical, it is found by any.
            ends = tuple([one for one in end if one is not None])  # none of a key that is about to be forgotten
            yield StateRow(canonical_key(key), state, len(piece), bin_, part.worker.index, ends)


def _size_of(state: Any) -> int:
    return len(plainly_pickled(state))


def _in_turn(states: Iterable[StateRow]) -> Iterator[StateRow]:
    """One of each worker in turn, so that each has its newest ones among the first."""
    of_worker: dict[int, list[StateRow]] = {}
    for one in states:
        of_worker.setdefault(one.worker, []).append(one)
    for row in itertools.zip_longest(*of_worker.values()):
        yield from (one for one in row if one is not None)


def _size(operator: str, parts: Sequence[StateSeen]) -> StateSize:
    """The size of a state by a sample of it."""
    of_worker: dict[WorkerId, list[StateSeen]] = {}
    for part in parts:
        of_worker.setdefault(part.worker, []).append(part)
    keys = size = cold_keys = cold_bytes = 0
    for seen in of_worker.values():
        sampled, total = sum(len(part.ends) for part in seen), seen[-1].total
        keys += total
        cold_keys, cold_bytes = cold_keys + seen[-1].on_disk[0], cold_bytes + seen[-1].on_disk[1]
        size += sum(len(part.pickled) for part in seen) * total // sampled if sampled else 0
    largest = sorted(_states(operator, parts), key=lambda one: -one.bytes)[:3]
    return StateSize(operator, keys, size, tuple((one.key, one.bytes) for one in largest), (cold_keys, cold_bytes))


def _checked_keys(operator: Operator, keys: Iterable[Any]) -> list[Any]:
    """The keys as states have them; raises a DataflowError for what can be no key of the operator."""
    if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
        raise DataflowError(f"keys={keys!r}; expected keys in a list, as in keys=[{keys!r}]")
    given, columns = list(keys), operator.key
    if not columns:
        raise DataflowError(f"{operator.name} has no key: each of its workers has one state; expected no keys")
    for key in given:
        if len(columns) > 1 and not (isinstance(key, tuple) and len(key) == len(columns)):
            raise DataflowError(f"{key!r} is no key of {operator.name}; expected a tuple of {', '.join(columns)}")
        if len(columns) == 1 and isinstance(key, tuple):
            raise DataflowError(f"{key!r} is no key of {operator.name}; expected a value of {columns[0]}")
    try:
        return [canonical_key(key) for key in given]
    except KeyTypeError as error:
        raise DataflowError(f"keys of {operator.name}: {error}; expected values of {', '.join(columns)}") from error


def given_states(before: Graph, after: Graph, state: object) -> dict[str, dict[Any, Any]]:
    """Added operator to the states by key with which it begins; see ``Run.apply``.

    Args:
        before: the dataflow of now.
        after: what it is to become.
        state: what was given, if anything.

    Raises:
        DataflowError: no such operator, or one that keeps no state of its own function; or a key is none of it.
        PlanError: an operator is not added, or works by time; a state could not be changed in place; or what was given
            is no mapping, or a table of which states cannot be made.
    """
    if state is None:
        return {}
    if not isinstance(state, Mapping):
        example = 'state={"New": {7: {"count": 3}}}'
        raise PlanError(f"state={state!r}; expected added operators with their states by key, as in {example}")
    return {name: _given(before, after, name, states) for name, states in state.items()}


def _given(before: Graph, after: Graph, name: str, given: Any) -> dict[Any, Any]:
    if name not in after:
        raise DataflowError(f"state=: {unknown('operator', str(name), after.by_name)}")
    operator, what = after.operator(name), f"state= of {name}"
    if name in before:
        raise PlanError(f"{what}: it runs already, and keeps its state; expected run.set_state({name!r}, ...) for that")
    if is_timed(operator) or isinstance(operator.function, WindowFunction):
        why = "an operator that works by time, or has windows, begins without any that are open"
        raise PlanError(f"{what}: {why}, in this version")
    if not (operator.traits.runs_user_code and takes_state(operator.function)):
        raise DataflowError(f"{what}: its function keeps no state; expected one with process(row, state)")
    if not isinstance(given, Mapping):
        given = _by_key(what, operator.key, given)
    keys = _checked_keys(operator, list(given))
    for key, one in given.items():
        if one is None or (why := why_unchangeable(one)):
            raise PlanError(f"{what}: {key!r}: {'None is no state' if one is None else why}")
    return dict(zip(keys, given.values(), strict=True))


def _by_key(what: str, columns: Sequence[str], table: Any) -> dict[Any, Any]:
    """The states in a table such as ``state_table`` makes, if each is whole there."""
    from pandas import DataFrame  # takes longer to import than all of fries_nb's own modules

    example = "a mapping from keys to states, as in {7: {'count': 3}}"
    if not isinstance(table, DataFrame):
        raise PlanError(f"{what} is a {type(table).__name__}; expected {example}")
    names = [key_name(one) for one in columns]
    if lacking := [name for name in names if name not in table]:
        raise PlanError(f"{what}: the table has no column {lacking[0]}, which is of its key; expected {example}")
    if isinstance(states := states_of(table, columns), str):
        raise PlanError(f"{what}: states cannot be made of the table, since {states}; expected {example}")
    keys = table[names[0]].tolist() if len(names) == 1 else [*zip(*(table[one] for one in names), strict=True)]
    return dict(zip(keys, states, strict=True))


def _positive(name: str, value: Any) -> int:
    """The validated value of a number of keys or rows; no more than a message holds."""
    if isinstance(value, bool) or not isinstance(value, int) or not value > 0:
        raise PlanError(f"{name}={value!r}; expected a whole number above 0")
    return min(value, sys.maxsize)


def _told_of(operator: str, parts: Sequence[AnySeen]) -> Sequence[AnySeen]:
    """What workers have told, which is something also if they hold nothing; raises a RunError if none was there."""
    if not parts:
        raise RunError(f"no worker of {operator} is there to answer: its hosts are gone, or it is being removed")
    return parts


def _advised(error: str) -> str:
    """The error of a worker, with what to do about a state that is too large."""
    return f"{error}; expected fewer: n=1_000, or keys=[...]" if " MB, at most " in error else error


