"""Trials: copies of operators that process tuples without external effects.

A trial is of one configuration: that of a change, or the current one. Each operator is a fresh copy of its function,
opened, with copies of current states or initial ones. Results are passed directly to the chains below, and end at the
sinks, where only their schema is recorded. Rows are processed by the same steps as in a worker, so they fail in the
same way.

Operators do not run if they are costly (see ``is_costly``), are not replaced, and have unchanged input types,
since their behaviour would not change. A trial of another shape that starts at operators which are not replaced takes
the newest rows that they have made: it opens no model and waits for no service of theirs.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from itertools import cycle, islice, zip_longest
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.columns import HIDDEN
from fries_nb.dataflow.operators import Shape, shape_of
from fries_nb.dataflow.traits import Execution
from fries_nb.dataflow.windowing import following
from fries_nb.errors import OperatorError
from fries_nb.operators.batches import call_of_batch
from fries_nb.operators.column_types import as_value, culprit
from fries_nb.operators.conversion import NOT_ARROW
from fries_nb.operators.dry_run import SAMPLE_KEYS, SAMPLES, Recent, has_open, one_row, open_function, types_of
from fries_nb.operators.instance import Draw, Instance, Ready
from fries_nb.operators.kinds import CALLS, compile_chain, joined_columns, joined_types
from fries_nb.operators.row_versions import declared
from fries_nb.operators.rows import Columns, Reads, Row
from fries_nb.operators.state import StateCopy, Transform, transformed
from fries_nb.operators.steps import Output, Sides, Step, Types, assemble, check_names
from fries_nb.operators.timed_calls import FIRED, firing_batch, is_firing, note_columns
from fries_nb.operators.timed_joins import note_side
from fries_nb.progress.times import Antichain
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.topology import OutEdge
from fries_nb.worker.outbox import Outbox
from fries_nb.worker.worker import Worker

MOST_ROWS = 64
"""Maximum number of rows of one tuple at any operator of a chain; a function, which may be endless, makes no more."""

MOST_PASSES = 64
"""Maximum number of batches of one tuple that an operator processes: a loop may go round for ever."""

Out = list[tuple[int, pa.RecordBatch]]
_Kept = tuple[int, pa.RecordBatch, int]  # a row: the output on which it went out, its batch, and its place there


class TrialLayout:
    """The operators that have a worker on this host, and those that a change replaces.

    What targets run, where operators send, and with which states added ones begin, is as it is when it is made: they
    may switch while a trial of the present goes on.

    Args:
        ready: worker to the configuration that the change prepared for it.
        added: the operators that a change of the shape adds; ``None`` for a change of functions only.

    Attributes:
        targets: the operators that the change replaces, or adds.
        hide: the columns whose values are not to be shown.
    """

    def __init__(
        self, workers: Iterable[Worker], ready: Mapping[WorkerId, Ready], added: frozenset[str] | None = None
    ) -> None:
        self._ready = ready
        self._is_of_shape = added is not None
        self._places: dict[str, tuple[Worker, int]] = {}
        self._edges: dict[tuple[Worker, bool], tuple[OutEdge, ...]] = {}
        self._keys: dict[str, list[Any]] = {name: [] for name in added or ()}  # of added operators, some on this host
        self._states: dict[str, tuple[StateCopy, ...]] = {}
        self._made: dict[str, list[list[_Kept]]] = {}
        self._chains: dict[Worker, tuple[Instance, ...]] = {}
        for worker in sorted(workers, key=lambda one: one.wiring.id):
            self._chains[worker] = worker.instances
            now = tuple(edge for edge in worker.wiring.edges if not edge.is_closed)
            self._edges[worker, False] = now
            self._edges[worker, True] = worker.wiring_after.edges if self._is_of_shape else now
            for position, instance in enumerate(worker.instances):
                self._places.setdefault(instance.worker.operator, (worker, position))
                if (name := instance.worker.operator) in self._keys:
                    self._keys[name] += instance.state.newest(SAMPLE_KEYS)
                    self._states[name] = (*self._states.get(name, ()), *instance.copies(SAMPLE_KEYS))
        self.hide = next((worker.instances[0].hide for worker, _ in self._places.values()), frozenset[str]())
        replaced = {name for name in self._places if self.ready(name) is not None}
        present = {name: declared(self._instance(name)) for name in self._places}
        self._present = {name: (one.function, one.recreate) for name, one in present.items()}
        self.targets = frozenset(replaced.union(name for name in added or () if self._computes(name)))

    @property
    def stands(self) -> bool:
        """Whether no chain has been fused or split since."""
        return all(tuple(worker.instances) == tuple(then) for worker, then in self._chains.items())

    def _computes(self, operator: str) -> bool:
        """Whether an operator of this host may leave a row as another one."""
        worker, position = self._places.get(operator, (None, 0))
        execution = None if worker is None else worker.instances[position].operator.traits.execution
        return execution not in (None, Execution.PASS, Execution.READ, Execution.WRITE)

    def edges(self, worker: Worker, new: bool) -> tuple[OutEdge, ...]:
        """The out-edges of a worker: those after the change, or those of now."""
        return self._edges[worker, new]

    def place(self, operator: str) -> tuple[Worker, int] | None:
        """A worker of the operator and its position in the chain; ``None`` if there is none on this host."""
        return self._places.get(operator)

    def _instance(self, operator: str) -> Instance:
        worker, position = self._places[operator]
        return worker.instances[position]

    def ready(self, operator: str) -> Ready | None:
        """The configuration that the change prepared for the operator."""
        return self._ready.get(self._instance(operator).worker)

    def states(self, operator: str) -> tuple[StateCopy, ...]:
        """Copies of states that the operator has when it switches; of an added one, of those that it was given."""
        ready = self.ready(operator)
        if ready is not None:
            return ready.states
        return self._states.get(operator, ())

    def given(self, operator: str) -> list[Any]:
        """Some of the keys with which an added operator begins on this host."""
        return self._keys.get(operator, [])

    def present(self, instance: Instance) -> tuple[Any, Callable[[], Any] | None]:
        """The function that an operator runs without the change, and what makes another instance of it."""
        return self._present[instance.worker.operator]

    def is_timed(self, operator: str) -> bool:
        """Whether an operator gives rows when time has passed."""
        return operator in self._places and self._instance(operator).agenda is not None

    def made(self, operator: str) -> list[list[_Kept]]:
        """Where the rows are that the chain from this operator on has made last, if it stays as it is in another shape.

        The newest ones first, in each round one of each output. The same for all trials: the worker goes on meanwhile.
        """
        if operator not in self._made:
            place, made = self._places.get(operator), list[Iterator[_Kept]]()
            if place is not None and self._is_of_shape and self.chain(operator).isdisjoint(self.targets):
                # Both are copied in one step of the interpreter, so that the worker comes not in between.
                outputs = {branch: list(kept) for branch, kept in dict(place[0].newest_output).items()}
                made = [_newest(branch, kept) for branch, kept in outputs.items()]
            self._made[operator] = [[*filter(None, one)] for one in zip_longest(*made)]
        return self._made[operator]

    def chain(self, operator: str) -> set[str]:
        """The operator and those after it in its chain."""
        worker, position = self._places[operator]
        return {instance.worker.operator for instance in worker.instances[position:]}

    def taken(self, sink: str) -> pa.Schema:
        """The schema that a sink's worker has accepted so far."""
        return self._places[sink][0].reports.columns

    def ordered(self, starts: Iterable[str]) -> list[str]:
        """Operators, each after those of them that it is below."""
        return sorted(starts, key=lambda name: (-len(self.below([name])), name))

    def below(self, operators: Iterable[str]) -> set[str]:
        """These operators and all downstream operators that are reached through chains on this host."""
        found: set[str] = set()
        ahead = list(operators)
        while ahead:
            name = ahead.pop()
            if name not in found:
                found.add(name)
                worker, position = self._places.get(name, (None, 0))
                if worker is not None:
                    ahead += [instance.worker.operator for instance in worker.instances[position + 1 :]]
                    ahead += [edge.to for edge in self.edges(worker, new=True)]
        return found


@dataclass
class Tally:
    """What one operator did in a trial.

    Attributes:
        taken: number of rows that it took.
        given: number of rows that it gave, to an operator that takes them.
        ns: nanoseconds that it took for them, without those of other operators.
    """

    taken: int = 0
    given: int = 0
    ns: int = 0

    def add(self, other: Tally) -> None:
        """Add what it did for another tuple."""
        self.taken, self.given, self.ns = self.taken + other.taken, self.given + other.given, self.ns + other.ns


@dataclass
class Passage:
    """The results of one tuple.

    Attributes:
        tried: operators that ran; ``spared``: those that did not need to.
        writes: operators at the ends of chains to the columns that they wrote, by type name.
        arrived: sinks to the schemas in which rows arrived.
        edges: pairs of operators to the schema that passed between them.
        left: number of rows that are left where the trial ends: at sinks, and at operators that did not run.
        tallies: what each operator did.
        made: operator to the rows that it gave, of a trial that keeps them.
        came: the row in place of the tuple, of a trial that starts at what was made (see ``TrialLayout.made``).
    """

    tried: set[str] = field(default_factory=set)
    spared: set[str] = field(default_factory=set)
    writes: dict[str, dict[str, str]] = field(default_factory=dict)
    arrived: list[tuple[str, pa.Schema]] = field(default_factory=list)
    edges: dict[tuple[str, str], pa.Schema] = field(default_factory=dict)
    left: int = 0
    tallies: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    made: defaultdict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    came: dict[str, Any] | None = None


class TrialFailed(Exception):
    """An operator failed in a trial.

    Attributes:
        operator: the operator.
        reason: the exception.
        edge: sender and receiver of the chain's input, if it came from another chain.
        passage: the results so far.
        came: the tuple, as it came to the chain, if one has failed.
    """

    def __init__(
        self, operator: str, reason: BaseException, edge: tuple[str, str] | None, passage: Passage,
        came: Recent | None = None,
    ) -> None:  # fmt: skip
        super().__init__(f"{operator}: {reason}")
        self.came = came
        self.operator = operator
        self.reason = reason
        self.edge = edge
        self.passage = passage


class NotCopied(TrialFailed):
    """An operator's function could not be loaded and opened for a trial."""


def shown_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, without hidden columns."""
    shown = [name for name in batch.schema.names if name not in HIDDEN]
    found: list[dict[str, Any]] = batch.select(shown).to_pylist()
    return found


class Meter:
    """Tallies what the operators of a trial do; of nested steps the time counts for the innermost one.

    Args:
        clock: returns nanoseconds.
        keeps_rows: whether the rows that operators give are kept, and not only counted.

    Attributes:
        passage: the results of the tuple in hand.
        keeps_rows: see above.
    """

    def __init__(self, clock: Callable[[], int], keeps_rows: bool) -> None:
        self.passage = Passage()
        self.keeps_rows = keeps_rows
        self._clock = clock
        self._running: list[str] = []
        self._since = 0

    @contextmanager
    def taking(self, operator: str, rows: int) -> Iterator[None]:
        """A block in which an operator processes rows."""
        self.passage.tallies[operator].taken += rows
        self._pass()
        self._running.append(operator)
        try:
            yield
        finally:
            self._pass()
            self._running.pop()

    def _pass(self) -> None:
        now = self._clock()
        if self._running:
            self.passage.tallies[self._running[-1]].ns += now - self._since
        self._since = now

    def gave_row(self, operator: str, row: Row) -> None:
        """An operator inside a chain gives a row to the next one."""
        self.passage.tallies[operator].given += 1
        if self.keeps_rows:
            values = as_value(row.copy(), operator)
            self.passage.made[operator].append({name: values[name] for name in values if name not in HIDDEN})

    def gave(self, operator: str, batch: pa.RecordBatch) -> None:
        """An operator gives a batch of rows."""
        self.passage.tallies[operator].given += batch.num_rows
        if self.keeps_rows:
            self.passage.made[operator] += shown_rows(batch.slice(0, MOST_ROWS))


class Trial:
    """One configuration of a layout's operators: the new one (``new``), or the current one.

    Args:
        new: whether it is the configuration of the change.
        clock: returns nanoseconds.
        keeps_rows: whether the rows that each operator gives are part of the results.
    """

    def __init__(self, layout: TrialLayout, new: bool, clock: Callable[[], int], keeps_rows: bool = False) -> None:
        self._layout = layout
        self._new = new
        self._chains: dict[str, _Chain] = {}
        self._spared: dict[str, _Chain] = {}
        self._meter = Meter(clock, keeps_rows)

    def run(self, start: str, recent: Recent) -> Passage:
        """Process a tuple from the operator ``start`` down to the sinks."""
        passage = self._passage()
        self._pass_on("", start, recent, passage)
        return passage

    def finish(self) -> Passage:
        """Let all time pass, in the order of the flow: windows are closed, and what they make reaches the sinks."""
        passage = self._passage()
        for operator in self._layout.ordered(self._chains):
            for batch in self._chains[operator].firings():
                self._pass_on(FIRED, operator, Recent(batch), passage)
        return passage

    def unfound(self) -> str:
        """Which operator was given keys as no row has had them, of another type, in a sentence; empty if none was."""
        for chain in self._chains.values():
            for name, seen in chain.keys().items():
                given = self._layout.given(name)
                kinds, others = {kind: key for key in seen if (kind := _kind(key))}, {*filter(None, map(_kind, given))}
                if kinds and others and others.isdisjoint(kinds):
                    known = next(iter(kinds.values()))
                    return f"{name} was given states of keys such as {given[0]!r}, and recent rows have {known!r} there"
        return ""

    def _passage(self) -> Passage:
        self._meter.passage = Passage()
        return self._meter.passage

    def _pass_on(self, sender: str, operator: str, came: Recent, passage: Passage) -> None:
        """Pass a tuple through a chain, and what becomes of it through all chains below."""
        waiting: deque[tuple[str, str, Recent]] = deque([(sender, operator, came)])
        passes = Counter[str]()
        while waiting:
            sender, operator, came = waiting.popleft()
            for to, batch in self._pass(sender, operator, came, passage):
                if self._is_run(self._tail(operator), to, batch, passage) and passes[to] < MOST_PASSES:
                    passes[to] += 1
                    waiting.append((self._tail(operator), to, Recent(batch)))

    def _tail(self, operator: str) -> str:
        place = self._layout.place(operator)
        return operator if place is None else place[0].instances[-1].worker.operator

    def _is_run(self, sender: str, to: str, batch: pa.RecordBatch, passage: Passage) -> bool:
        place = self._layout.place(to)
        if place is None:
            passage.left += batch.num_rows
            return False
        worker = place[0]
        passage.edges[sender, to] = batch.schema
        if worker.instances[0].operator.traits.is_sink:
            passage.left += batch.num_rows
            passage.arrived.append((to, pa.schema([field for field in batch.schema if field.name not in HIDDEN])))
            return False
        names = {instance.worker.operator for instance in worker.instances}
        came = worker.came.get(sender)
        if is_costly(worker) and not names & self._layout.targets and came is not None and _equal(came, batch.schema):
            passage.spared |= names
            passage.left += batch.num_rows
            return False
        return True

    def _pass(self, sender: str, operator: str, came: Recent, passage: Passage) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Run a chain from this operator on; yields its results and their receivers."""
        edge = (sender, operator) if sender not in ("", FIRED) else None
        spared = self._spared_at(operator) if not sender and not came.facing else None
        try:
            chain = spared or self._chains.get(operator) or self._made(operator)
        except BaseException as error:
            if self._layout.chain(operator).isdisjoint(self._layout.targets):
                passage.left += came.batch.num_rows
                return  # not replaced; the answer names it among the operators that were not reached
            raise NotCopied(operator, error, edge, passage) from error
        try:
            produced = chain.process(came, sender) if spared is None else self._given(operator, came, passage)
            passage.tried |= chain.names if produced or spared is None else set()
            for branch, batch in produced:
                chain.outbox.add(branch, batch)  # fails where no key can be made of it
        except BaseException as error:
            name = error.operator if isinstance(error, OperatorError) and error.operator else operator
            raise TrialFailed(name, error, edge, passage, came) from error
        for branch, batch in produced:
            passage.writes.setdefault(chain.tail, {}).update(types_of(batch.schema))
            receivers = [out.to for out in chain.edges if out.branch == branch]
            if receivers:
                self._meter.gave(chain.tail, batch)
            for receiver in receivers:
                yield receiver, batch.slice(0, MOST_ROWS)

    def _spared_at(self, operator: str) -> _Chain | None:
        """A chain at which a trial starts and that does not run, since it has made something; ``None`` for others."""
        if operator not in self._spared and self._layout.made(operator):
            worker, position = self._layout.place(operator) or (None, 0)
            assert worker is not None, "it has made something on this host"
            chain = _Chain(worker, worker.instances[position:], self._layout.edges(worker, self._new), self._meter)
            self._spared[operator] = chain
        return self._spared.get(operator)

    def _given(self, operator: str, came: Recent, passage: Passage) -> Out:
        """What the chain has made, in place of this tuple; nothing if there are more tuples than that."""
        kept = next(iter(self._layout.made(operator)[came.place :]), [])
        given = [(branch, one_row(batch, index)) for branch, batch, index in kept]
        passage.came = next((shown_rows(batch)[0] for _, batch in given), {}) if self._meter.keeps_rows else {}
        return given

    def _made(self, operator: str) -> _Chain:
        place = self._layout.place(operator)
        assert place is not None  # only operators with a worker on this host are run
        worker, position = place
        copies = [self._copy(instance) for instance in worker.instances[position:]]
        self._chains[operator] = made = _Chain(worker, copies, self._layout.edges(worker, self._new), self._meter)
        return made

    def _copy(self, instance: Instance) -> Instance:
        """The operator with its own copy of the function, so that changes to the object's attributes do not persist."""
        ready = self._layout.ready(instance.worker.operator)
        present, recreate = self._layout.present(instance)
        function = present
        if ready is not None and self._new:
            function, recreate = ready.function, ready.recreate
        if instance.operator.traits.runs_user_code:  # of other operators, processing does not change their object
            if recreate is None:
                raise OperatorError(
                    f"no other function like that of {instance.worker} can be made", instance.worker.operator
                )
            function = following(present, recreate())
            open_function(function, instance.calls)
        copy = Instance(instance.worker, instance.operator, function, audit=False)
        copy.calls = instance.calls
        copy.names.load(instance.names.known)
        if states := self._layout.states(instance.worker.operator):
            transforms = (ready.transform,) if ready is not None and self._new and ready.transform is not None else ()
            copy.state.initial = partial(_next_state, cycle(states), transforms)
        return copy


def _newest(branch: int, batches: Sequence[pa.RecordBatch]) -> Iterator[_Kept]:
    """Where some of the last rows of an output are, in batches of which the newest comes first."""
    rows = ((branch, batch, index) for batch in batches for index in reversed(range(batch.num_rows)))
    return islice(rows, SAMPLES)


def _next_state(copies: Iterator[StateCopy], transforms: tuple[Transform, ...]) -> Any:
    """The initial state of a key in a trial: a copy of any key's state, since the tuples' own keys were not copied."""
    return transformed(next(copies).revive(), transforms)


def _kind(key: Any) -> Any:
    """What keys must have in common to be equal: of numbers that they are numbers; ``None`` for one with a null."""
    if isinstance(key, tuple):
        kinds = tuple(map(_kind, key))
        return None if None in kinds else kinds
    if isinstance(key, (int, float, Decimal)):
        return float
    return None if key is None else (type(key), getattr(key, "tzinfo", None) is None)


def _first_rows() -> Draw:
    """Takes at most ``MOST_ROWS`` rows from a sequence of iterables, without requesting more."""
    room = iter(range(MOST_ROWS))
    return lambda rows: (row for _, row in zip(room, rows))  # noqa: B905 (the shorter one ends it)


def _equal(one: pa.Schema, other: pa.Schema) -> bool:
    return types_of(one) == types_of(other)


class _Chain:
    """Copies of the operators of one chain, from a given position to its end."""

    def __init__(
        self, worker: Worker, instances: Sequence[Instance], edges: tuple[OutEdge, ...], meter: Meter
    ) -> None:  # fmt: skip
        self.worker = worker
        self.edges = tuple(replace(edge, is_closed=False) for edge in edges)  # rows are to have their keys
        self._meter = meter
        self.names = {instance.worker.operator for instance in instances}
        self.tail = instances[-1].worker.operator
        self.outbox = Outbox(self.edges)
        self._instances = tuple(instances)
        first = instances[0]
        self._passes = first.operator.traits.execution is Execution.PASS
        self._batched = first.operator.traits.runs_user_code and shape_of(first.function) is Shape.BATCH

    def keys(self) -> dict[str, list[Any]]:
        """Operator to keys of the rows that it has taken, if it keeps a state."""
        return {one.worker.operator: one.state.newest(SAMPLE_KEYS) for one in self._instances}

    def process(self, came: Recent, sender: str) -> Out:
        """The chain's results for rows, by branch."""
        if self._passes:
            return [(0, came.batch)]
        return self._batches(came.batch) if self._batched else self._rows(came, sender)

    def _batches(self, batch: pa.RecordBatch) -> Out:
        for instance in self._instances:
            with self._meter.taking(instance.worker.operator, batch.num_rows):
                batch = call_of_batch(instance)(batch)
            if not batch.num_rows:
                return []
            if instance is not self._instances[-1]:
                self._meter.gave(instance.worker.operator, batch)
        return [(0, batch)]

    def _metered(self, position: int, instance: Instance, step: Step) -> Step:
        """The step, with its time and the rows that come to it in the trial's tallies."""
        meter, name = self._meter, instance.worker.operator
        before = self._instances[position - 1].worker.operator if position else ""

        def metered(row: Row) -> None:
            if before:
                meter.gave_row(before, row)
            with meter.taking(name, 1):
                step(row)

        return metered

    def _rows(self, came: Recent, sender: str) -> Out:
        wiring = self.worker.wiring
        is_left = (sender or came.sender) == wiring.left
        rows = [came.row()] if came.written or came.whole else list(Columns(came.batch, Reads()).rows())
        columns = rows[0].columns
        fired = is_firing(came.batch) and not (came.written or came.whole)  # not what a chain has made of a firing
        if self._instances[0].agenda is not None:
            note_columns(self._instances[0], FIRED if fired else sender, columns.batch.schema)
        if self._instances[0].operator.traits.pairs and not fired:
            note_side(self._instances[0], is_left, columns.batch.schema)
        branches = [Output(self._assembled, lambda types: None) for _ in range(wiring.branches)]
        for instance in self._instances:
            instance.draw = _first_rows()
        side: Sides = lambda: "left" if is_left else "right"  # noqa: E731
        step = compile_chain(self._instances, branches, side, self._metered, fired)
        with self._instances[0].bound():
            for row in rows:
                step(row)
        for output in branches:
            output.types = joined_types(joined_columns(self._instances), columns.names)
            output.pack()
        return [(branch, batch) for branch, output in enumerate(branches) for batch in output.take()]

    def firings(self) -> Iterator[pa.RecordBatch]:
        """The batches that are due when all time has passed; each is to be processed before the next."""
        first = self._instances[0]
        if first.agenda is None or first.came is None:
            return
        if (recall := CALLS[first.operator.kind].recall) is not None:
            recall(first)
        first.agenda.advance(Antichain())
        while first.agenda.is_ripe:
            firing = first.agenda.take(limit=1)
            if firing.keys:
                yield firing_batch(first, firing, due_ns=0)
            first.agenda.done(firing)

    def _assembled(self, rows: Sequence[Row], types: Types) -> pa.RecordBatch:
        columns = rows[0].columns
        try:
            batch = assemble(rows, columns, types)
            check_names(tuple(name for name in batch.schema.names if name not in columns.hidden), columns.names)
            return batch
        except NOT_ARROW as error:
            raise culprit([self.tail], rows, error) from error


def difference(before: pa.Schema, after: pa.Schema) -> str:
    """Describe the difference between two schemas of a stream in words; empty if there is none.

    >>> difference(pa.schema({"a": pa.int64(), "b": pa.int64()}), pa.schema({"a": pa.string()}))
    "'a' is string instead of int64, 'b' is missing"
    """
    names = [field.name for field in before if field.name not in HIDDEN]
    changed = [
        f"{name!r} is {after.field(name).type} instead of {before.field(name).type}"
        for name in names
        if name in after.names and after.field(name).type != before.field(name).type
    ]
    return ", ".join([*changed, *(f"{name!r} is missing" for name in names if name not in after.names)])


def is_costly(worker: Worker) -> bool:
    """Whether a chain should not be run in a trial needlessly: it opens a model, or its tuples take long."""
    opens = (instance.operator.traits.runs_user_code and has_open(instance.function) for instance in worker.instances)
    return worker.slices.quota == 1 or any(opens)
