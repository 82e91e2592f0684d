"""A shadow of a change: the changed operators process all rows beside those that run, and no sink gets theirs.

It is a branch that a change of the shape adds, with a copy of the states as they are at its marker (see
``planning.shadow`` and ``worker.handover``), and that another one takes away: ``promote``, by which the operators go on
with the functions and states of their copies, or ``drop``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fries_nb.changes.change import Change
from fries_nb.dataflow.graph import Graph, ShadowRole
from fries_nb.dataflow.masking import masked
from fries_nb.dataflow.updates import Update, as_updates
from fries_nb.errors import PlanError
from fries_nb.operators.paired_rows import ComparedRows
from fries_nb.planning.difference import Difference
from fries_nb.planning.shadow import comparison_of, component_of, copy_of, refuse_shadow, with_shadow, without
from fries_nb.planning.shape import refuse_unsupported, shape_plan
from fries_nb.running.region_runner import RegionRunner
from fries_nb.spark.launch import added_to, pickled_functions
from fries_nb.telemetry.metrics import OperatorMetrics
from fries_nb.words import counted

MOST_BYTES = 1 << 30
"""The largest budget of a channel into a shadow, in bytes."""


@dataclass(frozen=True)
class ShadowComparison:
    """How the rows of a shadow differ from those of the operators beside which it runs.

    Attributes:
        same: number of pairs of equal rows.
        differ: number of pairs that differ.
        columns: column to the number of pairs that differ in it.
        only_old, only_new: number of rows that only the operators, or only the shadow, have given; a row that the
            shadow has left out, or has failed on, is among the first.
        waiting: number of rows whose partner has not come yet.
        failures: operator to the number of rows on which its copy has failed.
        left_out: operator to the number of its rows that the shadow did not get, since its budget was used up; copy of
            an operator to the number of rows that it has left out since a commit waited for it.
        row_ms: operator to the milliseconds that a worker of it, and one of its copy, take for a row now; ``None``
            while none comes.
        pairs: the first differences: source, split and row of the source tuple, and the rows, of which one may be
            ``None``.
    """

    same: int
    differ: int
    columns: Mapping[str, int]
    only_old: int
    only_new: int
    waiting: int
    failures: Mapping[str, int]
    left_out: Mapping[str, int]
    row_ms: Mapping[str, tuple[float | None, float | None]]
    pairs: tuple[tuple[Any, Mapping[str, Any] | None, Mapping[str, Any] | None], ...]

    @property
    def rows(self) -> int:
        """Number of pairs that were compared."""
        return self.same + self.differ

    @property
    def examples(self) -> Any:
        """The first differences as a pandas DataFrame: of each column that differs somewhere, old and new."""
        from pandas import DataFrame  # takes long to import

        names = [
            name
            for name in dict.fromkeys(name for _, old, new in self.pairs for name in (*(old or ()), *(new or ())))
            if any((old or {}).get(name) != (new or {}).get(name) for _, old, new in self.pairs)
        ]
        rows = [
            {"_source": source} | {f"{name} ({side})": (row or {}).get(name)
                                   for name in names for side, row in (("old", old), ("new", new))}
            for source, old, new in self.pairs
        ]  # fmt: skip
        return DataFrame(rows)

    @property
    def differing(self) -> list[tuple[Any, str, Any, Any]]:
        """The first differences one by one: source, column, old and new; of a row without a partner its whole."""
        found = list[tuple[Any, str, Any, Any]]()
        for source, old, new in self.pairs:
            if old is None or new is None:
                found.append((source, "the row", old, new))
                continue
            names = dict.fromkeys([*old, *new])
            found += [(source, name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]
        return found

    def __repr__(self) -> str:
        lines = [f"{counted(self.rows, 'row')} compared: {self.differ} differ"]
        lines += [f"  {name}: {count} differ" for name, count in sorted(self.columns.items(), key=lambda one: -one[1])]
        lines += [f"only old: {self.only_old}, only new: {self.only_new}, waiting: {self.waiting}"]
        lines += [f"{name}: failed on {counted(count, 'row')}" for name, count in self.failures.items() if count]
        lines += [f"{name}: {counted(count, 'row')} left out" for name, count in self.left_out.items() if count]
        lines += [
            f"{name}: {old:.3g} ms a row, the shadow {new:.3g} ms"
            for name, (old, new) in self.row_ms.items()
            if old is not None and new is not None
        ]
        return "\n".join(lines)


def begin_shadow(runner: RegionRunner, changes: Mapping[str, Any], share: float, budget: int) -> Shadow:
    """Request a shadow; see ``Run.shadow``."""
    if not runner.options.identities:
        raise PlanError("the rows of this run carry no identities, by which a shadow is compared; expected "
                        "flow.run(identities=True), or audit=True")  # fmt: skip
    updates, graph = as_updates(changes), runner.graph
    is_number = isinstance(share, (int, float)) and not isinstance(share, bool)
    if not (is_number and 0 < share <= 1):
        raise PlanError(f"share={share!r}; expected a number above 0, up to 1: a share of the cohorts")
    if not isinstance(budget, int) or isinstance(budget, bool) or not 0 < budget <= MOST_BYTES:
        raise PlanError(f"bytes={budget!r}; expected a number of bytes, up to {MOST_BYTES:,}")
    refuse_shadow(graph, [*updates])
    for name, update in updates.items():
        if update.state is not None:
            words = "its state must keep its form, which a shadow begins with"
            raise PlanError(f"{name}: Update(state=) transforms the state; {words}")
    runner.ship(updates)  # which validates them
    now = runner.functions_now()
    inside = component_of(graph, updates)
    functions = {
        name: updates[name].function if name in updates else now.get(name, graph.operator(name).function)
        for name in inside
    }
    after = with_shadow(graph, functions, ShadowRole(bytes=budget, share=float(share)))
    refuse_unsupported(Difference.of(graph, after))
    plan = shape_plan(graph, after, givers=inside).plan
    payloads = pickled_functions(added_to(graph, after))
    change = runner.reshape(
        after, payloads, plan, {}, None, True, {}, inherits={copy_of(name): name for name in inside}
    )
    return Shadow(runner, change, updates, inside)


class Shadow:
    """The handle of a shadow; returned by ``Run.shadow``.

    Attributes:
        change: the change that adds it; its ``result()`` waits until the shadow gets rows.
        operators: the operators that are copied: those of the change, and those between them.
        compared: what ``compare`` has answered last; ``None`` if it was not called.
    """

    def __init__(
        self, runner: RegionRunner, change: Change, updates: Mapping[str, Update], operators: list[str]
    ) -> None:
        self._runner = runner
        self._updates = dict(updates)
        self._ending: tuple[tuple[str, str], Change] | None = None
        self.change = change
        self.operators = tuple(operators)
        self.compared: ShadowComparison | None = None

    def __repr__(self) -> str:
        return f"Shadow({', '.join(self._updates)}; {self.state})"

    def __str__(self) -> str:
        words = f"shadow of {', '.join(self._updates)}: {self.state}"
        if self.state in ("beginning", "aborted"):
            return words
        result = self.change.result(0)
        begun_s = self.change.requested_s + (result.waited_ms + result.delay_ms) / 1_000
        return f"{words}, since {time.strftime('%H:%M:%S', time.localtime(begun_s))}"

    @property
    def state(self) -> str:
        """``beginning``, ``open``, ``promoting``, ``promoted``, ``dropping`` or ``dropped``; ``aborted`` if refused."""
        if not self.change.done:
            return "beginning"
        if self.change.result(0).outcome != "done":
            return "aborted"
        if self._ending is None or (self._ending[1].done and self._ending[1].result(0).outcome != "done"):
            return "open"
        (ends, ended), change = self._ending
        return ended if change.done else ends

    def compare(self, timeout: float = 30.0) -> ShadowComparison:
        """What its rows have in common with those of the operators, so far.

        Args:
            timeout: seconds to wait for the worker that compares.

        Raises:
            PlanError: it is not open.
            RunError: the run's hosts have left nothing to look at.
            TimeoutError: the worker has not answered in time.
        """
        self._refuse_unless_open("compared")
        self.compared = found = self._look(timeout)
        return found

    def _look(self, timeout: float) -> ShadowComparison:
        """What the worker that compares has seen, and what was counted elsewhere."""
        graph = self._runner.graph
        tails = [name for name in self.operators if comparison_of(name) in graph]
        found = [one.value.so_far() for name in tails for one in self._runner.looks.states(
            comparison_of(name), None, None, timeout)[0] if isinstance(one.value, ComparedRows)]  # fmt: skip
        measured = self._runner.telemetry.snapshot().operators
        columns = dict[str, int]()
        for one in found:
            for name, count in one.columns.items():
                columns[name] = columns.get(name, 0) + count
        copies = {copy_of(name): name for name in self.operators}
        lossy = {edge.source for edge in graph.edges if edge.to in copies and edge.source not in copies} | set(tails)
        return ShadowComparison(
            sum(one.same for one in found),
            sum(one.differ for one in found),
            columns,
            sum(one.only_old for one in found),
            sum(one.only_new for one in found),
            sum(one.waiting for one in found),
            {name: measured[copy].failed for copy, name in copies.items() if copy in measured},
            {name: measured[name].left_out for name in (*sorted(lossy), *copies) if name in measured},
            {name: (self._row_ms(name, measured), self._row_ms(copy, measured)) for copy, name in copies.items()},
            tuple(self._pair(tail, *pair) for tail, one in zip(tails, found, strict=False) for pair in one.examples),
        )

    def _pair(self, tail: str, identity: int, old: Any, new: Any) -> tuple[Any, Any, Any]:
        hide = self._runner.hide
        shown = [None if row is None else masked(row, hide) for row in (old, new)]
        return self._runner.source_of(identity, tail), shown[0], shown[1]

    def _row_ms(self, name: str, measured: Mapping[str, OperatorMetrics]) -> float | None:
        one = measured.get(name)
        if one is None or not one.rate or name not in self._runner.graph:
            return None
        return one.busy * self._runner.graph.operator(name).workers / one.rate * 1000

    def promote(self) -> Change:
        """Let the operators go on with the functions and the states of their copies, and remove these; returns at once.

        One change: each row is processed wholly by the old or wholly by the new functions, and these have the states
        that the shadow has after all rows before. The operators wait for what the shadow has not processed yet. Rows
        that were left out are not in its states: see ``compare``.

        Raises:
            PlanError: it is not open, or another change is under way.
            RunError: the run has ended.
        """
        self._refuse_unless_open("promoted")
        return self._end(("promoting", "promoted"), self._updates, {name: copy_of(name) for name in self.operators})

    def drop(self) -> Change:
        """Remove the shadow, of which nothing is left; returns at once, and raises as ``promote`` does."""
        self._refuse_unless_open("dropped")
        return self._end(("dropping", "dropped"), {}, {})

    def _end(self, words: tuple[str, str], updates: Mapping[str, Update], inherits: Mapping[str, str]) -> Change:
        before = self._runner.graph
        after = without(before, self.operators)
        operators = tuple(
            replace(one, function=updates[one.name].function) if one.name in updates else one for one in after.operators
        )
        after = replace(after, operators=operators)
        copies = [copy_of(name) for name in self.operators]  # told at once that they are dropped, or give their states
        plan = shape_plan(before, after, [*updates], givers=copies).plan
        change = self._runner.reshape(after, {}, plan, updates, None, True, {}, inherits=inherits)
        self._ending = (words, change)
        return change

    def _refuse_unless_open(self, what: str) -> None:
        """Raise a PlanError if it has not begun, or has ended, or ends."""
        if (state := self.state) != "open":
            why = f": {self.change.result(0).error}" if state == "aborted" else ""
            expected = "expected change.result() before" if state == "beginning" else "expected one that is open"
            named = f"the shadow of {', '.join(self._updates)}"
            raise PlanError(f"{named} is {state}{why}, and cannot be {what}; {expected}")


def open_shadow(graph: Graph) -> str:
    """The name of an operator that has a shadow; empty if none has."""
    return next((one.shadow.of for one in graph.operators if one.shadow is not None and one.shadow.of), "")


def refuse_in_shadows(graph: Graph, targets: Iterable[str]) -> None:
    """Raise a PlanError if one of these operators is part of a shadow, which keeps its functions."""
    for name in targets:
        if name in graph and graph.operator(name).shadow is not None:
            raise PlanError(f"{name} is part of a shadow; expected drop(), and another shadow with other functions")
