"""Drawn programs that are edited while they run, and what each row must have become.

A program is a list of statements, as a cell has them: each names a stream, made of earlier ones. An edit inserts one,
removes one, adds a branch with a sink or a source, cuts a sink, or changes a function; the program then declares
another dataflow. Each row carries its way, the operators that it has passed with their versions. So the rows at all
sinks that come of one row of a source show by which program it was processed: all of them by the same one.

>>> program = Program([Statement("S", "source"), Statement("A", "map", ("S",)), Statement("out", "sink", ("A",))])
>>> program.outputs("S", {"value": 7, "way": ""})
[('out', 'A0')]
>>> [statement.name for statement in program.edited(random.Random(2)).statements]
['S', 'N1', 'A', 'out']
>>> program.graph().sinks
('out',)

Seeded runs whose dataflow changes its shape while they run.

Hosts have the cores and the topologies of production (``threaded_hosts``), and the driver is production's. What is
asked for is a whole dataflow, as ``Run.apply`` takes it; functions count as changed if they are other objects.

>>> import fries_nb as fn
>>> def declared(*names):
...     flow = fn.Dataflow("g")
...     stream = flow.source("S", fn.rate(None, count=4))
...     for name in names:
...         stream = stream.map(name, lambda row, name=name: row | {"way": row["way"] + name})
...     stream.sink("out", fn.memory())
...     return flow.graph(workers=2)
>>> rows = {"S": [{"value": v, "way": ""} for v in range(60)]}
>>> cluster = ReshapingCluster(declared("A", "B"), rows, hosts=2, seed=3)
>>> change = cluster.reshape(declared("A", "N", "B"))
>>> cluster.run()
>>> cluster.outcomes[change].outcome, {row["way"] for row in cluster.rows("out")} <= {"AB", "ANB"}
('done', True)
"""

from __future__ import annotations

import contextlib
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
from msgspec import structs

from fries_nb.changes.queue_entries import rehearsed
from fries_nb.controller import events
from fries_nb.controller.commits import NOTHING_INHERITED
from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.dataflow.graph import Graph, resized
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.updates import Update
from fries_nb.errors import DataflowError
from fries_nb.host.region_spec import Additions
from fries_nb.planning.shape import shape_plan
from fries_nb.protocol.trace import Record, TraceFlow, flow_of, traced_of
from fries_nb.simulation.threaded_hosts import JoiningThreads

Row = dict[str, Any]

KINDS = ("map", "map", "keyed", "filter", "flat_map")
LOOPS = {"loop": "round", "once": "single round"}  # kind of a loop to that of the function of its body
LOOPING = (*KINDS, "loop", "loop", "once")


@dataclass(frozen=True)
class Statement:
    """One stream of a program."""

    name: str  # name of the operator
    # ``source``, ``map``, ``keyed`` (a map with a state for each key), ``filter``, ``flat_map``, ``union``, ``sink``,
    # ``loop``: of a flat map, after which a row is sent back until it has made its rounds; or ``once``: the same, and
    # one row leaves for each that enters
    kind: str
    inputs: tuple[str, ...] = ()  # the streams of which it is made
    version: int = 0  # version of its function

    def results(self, row: Row) -> list[Row]:
        """What its function makes of a row."""
        passed = row | {"way": f"{row['way']}{self.name}{self.version}"}
        if self.kind == "filter":
            return [row] if drawn_of(self.name, self.version, row["value"]) % 3 else []
        if self.kind == "flat_map":
            count = drawn_of(self.name, self.version, row["value"]) % 3
            return [passed | {"way": f"{passed['way']}.{number}"} for number in range(count)]
        if self.kind in LOOPS:
            made = replace(self, kind=LOOPS[self.kind]).results(row)
            return [one for result in made for one in ([result] if self.lets_out(result) else self.results(result))]
        if self.kind in LOOPS.values():
            begun = passed | {self.name: (row.get(self.name) or 0) + 1}
            doubles = self.kind == "round" and begun[self.name] == 1
            count = 1 + (doubles and not drawn_of(self.name, row["value"]) % 3)
            return [begun | {"way": f"{begun['way']}{'.' * number}"} for number in range(count)]
        return [passed] if self.kind in ("map", "keyed") else [row]

    def lets_out(self, row: Row) -> bool:
        """Whether a row has made its rounds of the loop."""
        rounds: int = row[self.name]
        return rounds > drawn_of(self.name, "rounds", row["value"]) % 5


def drawn_of(*of: object) -> int:
    """A number that depends on these values only."""
    return zlib.crc32(repr(of).encode())


class Mapped:
    """The function of a map, a filter or a flat map; with a state it counts the rows of each key."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement

    def __call__(self, row: Row) -> Any:
        """The result of the operator's kind."""
        if self.statement.kind == "route":
            return self.statement.lets_out(row)
        results = self.statement.results(row)
        if self.statement.kind == "filter":
            return bool(results)
        return results if self.statement.kind in ("flat_map", *LOOPS.values()) else results[0]


class CountingMap(Mapped):
    """The same with a state: each row gets the number of rows of its key so far."""

    def process(self, row: Row, state: dict[str, int]) -> Row:
        """The row, with its number behind those of operators before."""
        state["n"] = state.get("n", 0) + 1
        [result] = self.statement.results(row)
        return result | {"numbers": f"{row['numbers']}{self.statement.name}:{state['n']},"}


@dataclass(frozen=True)
class Program:
    """Statements, each of which uses earlier ones only."""

    statements: tuple[Statement, ...]  # the statements
    # name and version of each to its function; shared, so that equal statements have the same object
    functions: dict[tuple[str, int], Any]

    def __init__(self, statements: Any, functions: dict[tuple[str, int], Any] | None = None) -> None:
        object.__setattr__(self, "statements", tuple(statements))
        object.__setattr__(self, "functions", {} if functions is None else functions)

    @property
    def by_name(self) -> dict[str, Statement]:
        """The statements by name."""
        return {statement.name: statement for statement in self.statements}

    def graph(self) -> Graph:
        """The dataflow that it declares."""
        flow = DataflowBuilder("drawn")
        self.declare(flow, lambda name: rate(None, count=4))
        graph: Graph = flow.graph(workers=1)
        return graph

    def declare(self, flow: DataflowBuilder, read: Callable[[str], Any]) -> None:
        """Declare its streams in an empty dataflow.

        Args:
            flow: the dataflow.
            read: gives what the source of this name reads.
        """
        streams: dict[str, Any] = {}
        for statement in self.statements:
            streams[statement.name] = self._declared(flow, streams, statement, read)

    def _declared(
        self, flow: DataflowBuilder, streams: Mapping[str, Any], statement: Statement, read: Callable[[str], Any]
    ) -> Any:
        name, workers = statement.name, 1 + drawn_of(statement.name) % 3
        function = self.functions.setdefault((name, statement.version), self._function(statement))
        if statement.kind == "source":
            return flow.source(name, read(name), workers=workers)
        first = streams[statement.inputs[0]]
        match statement.kind:
            case "map":
                return first.map(name, function, workers=workers)
            case "keyed":
                return first.map(name, function, key="key", workers=workers)
            case "filter":
                return first.filter(name, function, workers=workers)
            case "flat_map":
                return first.flat_map(name, function, workers=workers)
            case "union":
                return first.union(name, *(streams[other] for other in statement.inputs[1:]), workers=workers)
            case "loop" | "once":
                return self._looped(first, statement, function, workers)
        return first.sink(name, memory(), workers=workers)

    def _looped(self, stream: Any, statement: Statement, function: Any, workers: int) -> Any:
        name = statement.name
        route = self.functions.setdefault((f"R{name}", 0), Mapped(replace(statement, kind="route", version=0)))

        def body(rows: Any) -> Any:
            return rows.flat_map(f"B{name}", function, workers=workers).split(f"R{name}", route, workers=workers)

        return stream.iterate(name, body, workers=workers, one_to_one=statement.kind == "once")

    def _function(self, statement: Statement) -> Any:
        if statement.kind in LOOPS:
            return Mapped(replace(statement, kind=LOOPS[statement.kind]))
        return CountingMap(statement) if statement.kind == "keyed" else Mapped(statement)

    def outputs(self, source: str, row: Row) -> list[tuple[str, str]]:
        """Sink and way of each row that comes of a row of a source, sorted."""
        rows: dict[str, list[Row]] = {}
        for statement in self.statements:
            if statement.kind == "source":
                rows[statement.name] = [row] if statement.name == source else []
                continue
            taken = [one for name in statement.inputs for one in rows[name]]
            rows[statement.name] = [result for one in taken for result in statement.results(one)]
        sinks = (statement.name for statement in self.statements if statement.kind == "sink")
        return sorted((sink, one["way"]) for sink in sinks for one in rows[sink])

    # ---- edits

    def edited(self, chance: random.Random) -> Program:
        """Another program, after one to three edits."""
        program = self
        for _ in range(chance.choice((1, 1, 2, 3))):
            program = program._edit(chance)
        return program

    def swapped(self, chance: random.Random) -> Program:
        """Another program, in which two operators have changed places, and perhaps more was edited."""
        pairs = [(one, self.by_name[one.inputs[0]]) for one in self.statements if _is_single(one)]
        pairs = [(one, above) for one, above in pairs if _is_single(above)]
        if not pairs:
            return self
        below, above = chance.choice(pairs)
        names = {below.name: above.name, above.name: below.name}
        places = {above.name: replace(below, inputs=above.inputs), below.name: replace(above, inputs=(below.name,))}
        moved = [
            places.get(one.name) or replace(one, inputs=tuple(names.get(of, of) for of in one.inputs))
            for one in self.statements
        ]
        program = Program(moved, self.functions)
        return program._edit(chance) if chance.random() < 0.5 else program

    def _edit(self, chance: random.Random) -> Program:
        edits = ("insert", "insert", "remove", "branch", "cut", "version", "source", "unsource", "retarget")
        what = chance.choice(edits)
        found = next(iter(getattr(self, f"_{what}")(chance)), None)
        edited = self if found is None else Program(found, self.functions)._pruned()
        with contextlib.suppress(DataflowError):  # an operator with two copies of one stream, for example
            edited.graph()
            return edited
        return self

    def _fresh(self) -> str:
        numbers = [int(name[1:]) for name, _ in self.functions if name[:1] == "N" and name[1:].isdigit()]
        return f"N{max(numbers, default=0) + 1}"

    def _new(self, chance: random.Random, *inputs: str) -> Statement:
        name, kind = self._fresh(), chance.choice(KINDS)
        self.functions.setdefault((name, 0), self._function(Statement(name, kind)))
        return Statement(name, kind, inputs)

    def _insert(self, chance: random.Random) -> Iterator[list[Statement]]:
        """An operator in front of another one."""
        place = chance.choice([at for at, one in enumerate(self.statements) if one.inputs])
        before = self.statements[place]
        of = chance.choice(before.inputs)
        new = self._new(chance, of)
        inputs = tuple(new.name if name == of else name for name in before.inputs)
        yield [*self.statements[:place], new, replace(before, inputs=inputs), *self.statements[place + 1 :]]

    def _remove(self, chance: random.Random) -> Iterator[list[Statement]]:
        """An operator, whose consumers get its input."""
        middle = [one for one in self.statements if _is_single(one)]
        if middle:
            gone = chance.choice(middle)
            kept = [one for one in self.statements if one is not gone]
            moved = [_renamed(one, gone.name, gone.inputs[0]) for one in kept]
            if all(len(set(one.inputs)) == len(one.inputs) for one in moved):
                yield moved

    def _branch(self, chance: random.Random) -> Iterator[list[Statement]]:
        """An operator and a sink behind a stream."""
        of = chance.choice([one.name for one in self.statements if one.kind != "sink"])
        new = self._new(chance, of)
        sink = f"out{new.name}"
        self.functions.setdefault((sink, 0), None)
        yield [*self.statements, new, Statement(sink, "sink", (new.name,))]

    def _cut(self, chance: random.Random) -> Iterator[list[Statement]]:
        """A sink, with all that led only there."""
        sinks = [one for one in self.statements if one.kind == "sink"]
        if len(sinks) > 1:
            gone = chance.choice(sinks)
            yield [one for one in self.statements if one is not gone]

    def _version(self, chance: random.Random) -> Iterator[list[Statement]]:
        """Another function of an operator."""
        changeable = [one for one in self.statements if one.kind in ("map", "keyed", "filter", "flat_map", *LOOPS)]
        if changeable:
            old = chance.choice(changeable)
            last = max([old.version, *(version for name, version in self.functions if name == old.name)])
            new = replace(old, version=last + 1)
            self.functions[new.name, new.version] = self._function(new)
            yield [new if one is old else one for one in self.statements]

    def _source(self, chance: random.Random) -> Iterator[list[Statement]]:
        """A source that is joined to a stream."""
        place = chance.choice([at for at, one in enumerate(self.statements) if one.inputs])
        before, name = self.statements[place], self._fresh()
        self.functions.setdefault((name, 0), None)
        both = f"U{name}"
        source, union = Statement(f"S{name}", "source"), Statement(both, "union", (before.inputs[0], f"S{name}"))
        moved = replace(before, inputs=(both, *before.inputs[1:]))
        yield [*self.statements[:place], source, union, moved, *self.statements[place + 1 :]]

    def _unsource(self, chance: random.Random) -> Iterator[list[Statement]]:
        """A source, which leaves a union."""
        unions = [one for one in self.statements if len(one.inputs) > 1]
        if unions:
            union = chance.choice(unions)
            rest = union.inputs[:-1]
            kept = [replace(one, inputs=rest) if one is union else one for one in self.statements]
            if len(rest) > 1:
                yield kept
            else:
                yield [_renamed(one, union.name, rest[0]) for one in kept if one.name != union.name]

    def _retarget(self, chance: random.Random) -> Iterator[list[Statement]]:
        """A consumer gets an earlier stream in place of its own."""
        places = [at for at, one in enumerate(self.statements) if one.inputs]
        place = chance.choice(places)
        one = self.statements[place]
        earlier = [other.name for other in self.statements[:place] if other.kind != "sink"]
        options = [name for name in earlier if name not in one.inputs]
        if options:
            moved = replace(one, inputs=(chance.choice(options), *one.inputs[1:]))
            yield [*self.statements[:place], moved, *self.statements[place + 1 :]]

    def _pruned(self) -> Program:
        """Without what leads to no sink."""
        used: set[str] = set()
        for one in reversed(self.statements):
            if one.kind == "sink" or one.name in used:
                used.update((one.name, *one.inputs))
        return Program([one for one in self.statements if one.name in used], self.functions)


def _is_single(one: Statement) -> bool:
    """Whether it is an operator with one input, and no loop."""
    return len(one.inputs) == 1 and one.kind not in ("sink", *LOOPS)


def _renamed(one: Statement, was: str, now: str) -> Statement:
    return replace(one, inputs=tuple(now if name == was else name for name in one.inputs))


def drawn_program(chance: random.Random, kinds: Sequence[str] = KINDS) -> Program:
    """A program of one or two sources and some operators of these kinds."""
    statements = [Statement(f"S{number}", "source") for number in range(chance.choice((1, 1, 2)))]
    for number in range(chance.randint(2, 5)):
        inputs = chance.sample([one.name for one in statements], min(len(statements), chance.choice((1, 1, 2))))
        kind = "union" if len(inputs) > 1 else chance.choice(kinds)
        statements.append(Statement(f"A{number}", kind, tuple(inputs)))
    used = {name for one in statements for name in one.inputs}
    ends = [one.name for one in statements if one.name not in used]
    statements += [Statement(f"out{number}", "sink", (name,)) for number, name in enumerate(ends)]
    return Program(statements)


class ReshapingCluster(JoiningThreads):
    """A cluster whose shape is changed on request; the arguments are those of ``Cluster``.

    The rows of sources that are added later are given from the start.
    """

    often = 0.0

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.shapes: dict[str, Graph] = {}  # id of each change of the shape to the dataflow after it
        super().__init__(*args, **settings)
        self._first = self.graph

    def reshape(
        self, after: Graph, order: bool = True, returns: bool = False, guarded: bool = False,
        given: Mapping[str, Mapping[Any, Any]] | None = None, inherits: Mapping[str, str] = NOTHING_INHERITED,
        givers: Sequence[str] = (),
    ) -> str:  # fmt: skip
        """Request that the dataflow becomes another one; returns the id of the change, a key of ``outcomes``.

        Args:
            after: the dataflow after the change.
            order: see ``shape_plan``.
            returns: whether it is the dataflow before the last change of the shape, which is rolled back.
            guarded: whether it is rolled back if the new dataflow fails, however late.
            given: added operator to the states by key with which it begins.
            inherits: operator to the one with whose state at the marker it begins, or goes on.
            givers: see ``shape_plan``.

        Raises:
            PlanError: there is no plan for it.
        """
        before = self.graph
        both = [name for name in after if name in before]
        found = {name: after.operator(name).function for name in both}
        changed = {name: one for name, one in found.items() if one is not before.operator(name).function}
        changed = {name: one for name, one in changed.items() if not _is_endpoint(after, name)}
        planned = shape_plan(before, after, list(changed), order, givers)
        added = {name: after.operator(name).function for name in after if name not in before}
        functions = {
            name: cloudpickle.dumps(one) for name, one in added.items() if one and not _is_endpoint(after, name)
        }
        sinks = {sink: self.store.sinks[sink] for sink in added if after.operator(sink).traits.is_sink}
        packed = cloudpickle.dumps(Additions(functions, {}, {}))  # hosts have the ports of sinks by themselves
        additions = Additions(functions, {}, sinks, packed)
        name = f"s{len(self.shapes) + 1}"
        self.shapes[name], self.shapes[f"{name}.back"] = after, before
        payloads = {target: cloudpickle.dumps(Update(one)) for target, one in changed.items()}
        states = {operator: cloudpickle.dumps(states) for operator, states in (given or {}).items()}
        shape = events.ShapeChange(after, additions, name.encode(), returns=returns, given=states, inherits=inherits)
        guard = None
        if guarded:
            plan = replace(planned.plan, targets=frozenset(one for one in planned.plan.targets if one in after))
            guard = events.Guard(plan, True, shape=events.ShapeChange(before, fingerprint=f"{name}.back".encode()))
        fair = frozenset() if inherits else rehearsed(planned.plan.targets, before, after)
        self._say(events.ChangeRequested(name, planned.plan, payloads, fair, guard=guard, force=True, shape=shape))
        return name

    def records(self) -> list[Record]:
        """The trace so far, with the first dataflow and each that was made of it."""
        _, *records = super().records()
        workers = {(one.operator, one.worker) for one in records if not isinstance(one, TraceFlow)}
        workers |= {(name, index) for name, count in self.graph.sizes.items() for index in range(count)}
        traced = Counter(operator for operator, _ in workers)
        made = [one.change for one in self.journal if one.shape]
        flows = [("", self._first), *((change, self.shapes[change]) for change in made)]
        over = self.state == "finished"
        described = [flow_of(graph, finished=over, shape=change) for change, graph in flows]
        return [*(structs.replace(flow, workers=traced_of(flow, traced)) for flow in described), *records]

    def _see(self, instruction: events.Instruction) -> None:
        declared = self._plan.graph
        super()._see(instruction)
        match instruction:
            case events.ChangeTopology():
                self._plan = replace(self._plan, graph=declared)
            case events.TopologyChanged(topology) if topology.after is not None:
                self._plan = replace(self._plan, graph=declared)
                self.graph = declared
            case events.ShapeDecided() | events.ShapeUndone():
                self._decided()

    def _decided(self) -> None:
        """Whatever starts again from now on has the dataflow after the last change that is decided."""
        decided = [one.change for one in self.journal if one.shape]
        if decided:
            self.graph = resized(self.shapes[decided[-1]], self._plan.graph.sizes)
            self._plan = replace(self._plan, graph=self.graph)

    def _start_again(self, *args: Any) -> None:
        self.store.leave_all_but(self.graph.by_name)
        super()._start_again(*args)

    def kill_driver(self) -> None:
        """Kill the driver with all hosts; the run is resumed with the dataflow that was decided last."""
        self._decided()
        super().kill_driver()


def _is_endpoint(graph: Graph, name: str) -> bool:
    return graph.operator(name).traits.holds is Holds.ENDPOINT
