"""The contract of kinds: what the table of traits says of each is so, and a new kind is one entry in each table."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from kind_examples import KIND_EXAMPLES, ROWS, Counted, graph_of, plain

import fries_nb
from fries_nb.audit import judge
from fries_nb.dataflow import (
    Aggregation,
    DataflowBuilder,
    Graph,
    JoinTable,
    Ordering,
    Sink,
    Source,
    Update,
    as_updates,
    batched,
    check_runnable,
    check_updates,
    emits_of,
    graph_from_json,
    graph_to_json,
    memory,
    new_table,
    rate,
)
from fries_nb.dataflow.columns import COHORT, TRANSACTION
from fries_nb.dataflow.operators import check_function
from fries_nb.dataflow.regions import regions
from fries_nb.dataflow.traits import TRAITS, ColumnsOut, Emits, Execution, Holds, Kind, OperatorTraits, Returns
from fries_nb.errors import DataflowError, PlanError
from fries_nb.operators.instance import FAILURES, Instance, failure
from fries_nb.operators.kinds import CALLS, OperatorCall
from fries_nb.operators.rows import Row
from fries_nb.operators.steps import Behind, Step, call_of
from fries_nb.protocol.partitioning import cohorts, cohorts_of
from fries_nb.protocol.topology import chains
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.faults import Faults

HELD: dict[Holds, Callable[[Any], bool]] = {
    Holds.FUNCTION: lambda held: callable(held) or callable(held.process),
    Holds.TABLE: lambda held: isinstance(held, JoinTable),
    Holds.COLUMN: lambda held: isinstance(held, str),
    Holds.SUFFIX: lambda held: isinstance(held, str),
    Holds.ENDPOINT: lambda held: isinstance(held, Source | Sink),
    Holds.QUERY: lambda held: isinstance(held, Aggregation | Ordering),
    Holds.DURATION: lambda function: isinstance(function, int | float),
    Holds.NOTHING: lambda held: held is None,
}
USER_CODE = [kind for kind, traits in TRAITS.items() if traits.runs_user_code]
DECLARED = [kind for kind in TRAITS if kind is not Kind.COMPARISON]  # that, only a shadow brings along
each_kind = pytest.mark.parametrize("kind", DECLARED)


def cluster_of(graph: Graph, seed: int = 1, times: int = 1) -> Cluster:
    """A seeded run of two hosts, with every source reading ``ROWS``, so many times."""
    return Cluster(graph, dict.fromkeys(graph.sources, ROWS * times), seed=seed, hosts=2)


def by_sink(cluster: Cluster) -> dict[str, list[Any]]:
    """The rows that left ``X``, at each sink."""
    return {sink: plain(cluster.rows(sink)) for sink in cluster.graph.sinks if sink[0] in "XZ"}


def new_function(kind: Kind, graph: Graph) -> Update:
    """What ``X`` is changed to, as it is shipped."""
    update = Update(KIND_EXAMPLES[kind].new)
    holds_table = TRAITS[kind].holds is Holds.TABLE
    return replace(update, function=new_table(graph.operator("X"), update)) if holds_table else update


def test_every_kind_has_an_entry_in_each_table() -> None:
    """Those that a worker calls say how; and each has an example here."""
    assert TRAITS.keys() == set(Kind)
    assert KIND_EXAMPLES.keys() == set(DECLARED)
    assert CALLS.keys() == {kind for kind, traits in TRAITS.items() if traits.execution is Execution.CALL}
    assert {kind for kind, call in CALLS.items() if call.fit} == {kind for kind in TRAITS if TRAITS[kind].batched}


@each_kind
def test_a_kind_is_declared_as_its_traits_say(kind: Kind) -> None:
    """The builder makes an operator that can run, and that is what the table says."""
    graph, traits = graph_of(kind), TRAITS[kind]
    operator = graph.operator("X")
    check_runnable(graph)
    assert (operator.kind, operator.traits) == (kind, traits)
    assert HELD[traits.holds](operator.function)
    assert operator.emits is traits.emits or traits.heads_loop  # a loop as a whole may emit many
    assert operator.blocking is (traits.execution is Execution.SPARK)
    assert (operator.branches > 1) is traits.routes
    assert operator.edgewise_one_to_one is traits.copies
    assert bool(operator.key) is (traits.keeps_state or traits.timed)
    assert (len(graph.in_edges("X")) == 0) is traits.is_source
    assert (len(graph.out_edges("X")) == 0) is traits.is_sink


@each_kind
def test_a_graph_with_the_kind_goes_through_json(kind: Kind) -> None:
    """What planning reads of it comes back."""
    written = graph_to_json(graph_of(kind))
    assert graph_to_json(graph_from_json(written)) == written


@each_kind
@pytest.mark.parametrize("seed", [1, 2])
def test_a_kind_runs_on_two_hosts(kind: Kind, seed: int) -> None:
    """All rows that are to leave it do, with the columns that the table says; the audit finds nothing."""
    graph, expected = graph_of(kind), KIND_EXAMPLES[kind].expected
    if TRAITS[kind].execution is Execution.SPARK:
        whole = cluster_of(graph, seed)
        whole.run()
        assert whole.state == "failed"
        assert "Spark SQL runs it between two regions" in whole.error
        first, second = regions(graph)
        assert list(second.inputs) == ["X"]
        expected, graph = ROWS, first.graph
    cluster = cluster_of(graph, seed)
    cluster.run()
    assert (cluster.state, cluster.error) == ("finished", "")
    assert expected is not None
    assert sorted(row for rows in by_sink(cluster).values() for row in rows) == plain(expected)
    assert judge(cluster.records()).serializable
    columns, came = set(expected[0]), set(ROWS[0])
    if kind not in (Kind.DEDUP, Kind.DEDUP_WITHIN, Kind.SELF_JOIN):  # these have a map of their own in front
        assert columns == came or TRAITS[kind].columns is not ColumnsOut.SAME
        assert columns > came or TRAITS[kind].columns is not ColumnsOut.MORE


@each_kind
def test_rows_of_a_kind_carry_identities_and_cohorts_without_an_audit(kind: Kind) -> None:
    """Those of an audit, in each attempt of a run whose hosts die; what time brings out has the cohort of its key."""
    if TRAITS[kind].execution is Execution.SPARK:
        return
    graph, options = graph_of(kind), {"seed": 3, "hosts": 2, "checkpoints": True, "commit_interval_ns": 3_000_000}
    rows: dict[str, list[Row]] = {}
    for name, more in {
        "audited": {"audit": True},
        "with": {"identities": True, "faults": Faults(hazard=0.02, host_kills=2)},
        "without": {},
    }.items():
        cluster = Cluster(graph, dict.fromkeys(graph.sources, ROWS * 3), **options, **({"audit": False} | more))
        cluster.run()
        rows[name] = [row for sink in graph.sinks for row in cluster.rows(sink)]
    assert not any(TRANSACTION in row or COHORT in row for row in rows["without"])
    # which row is the first of its key, fills a window, is the second of a pair, or of several at one time the first to
    # be brought out, depends on the order of events
    is_by_order = kind in (
        Kind.DEDUP, Kind.DEDUP_WITHIN, Kind.COUNT_WINDOW, Kind.JOIN_WITHIN, Kind.JOIN_WINDOW, Kind.JOIN_LATEST
    )  # fmt: skip
    names = ("x", "k", "time", "n") if is_by_order else ("x", "k", "time", "n", TRANSACTION, COHORT)
    same = [Counter(tuple(row.get(name) for name in names) for row in rows[one]) for one in ("audited", "with")]
    assert same[0] == same[1]
    for row in rows["with"]:
        key = row["x"] % 4 if row.get("x", -1) >= 0 else row["k"]
        of_key = int(cohorts_of([pa.array([key])])[0])
        of_identity = int(cohorts(pa.RecordBatch.from_pydict({TRANSACTION: [row[TRANSACTION]]}))[0])
        assert row[COHORT] in ((of_key, of_identity) if kind in (Kind.SOURCE, Kind.UNION) else (of_key,))


@each_kind
def test_a_kind_is_changed_while_it_runs_or_refused(kind: Kind) -> None:
    """As the table says; a changed one is another one to the rows that come later."""
    graph, example, traits = graph_of(kind), KIND_EXAMPLES[kind], TRAITS[kind]
    assert (example.new is not None) is traits.is_changeable
    if not traits.is_changeable:
        with pytest.raises(PlanError, match="runs no function that could be changed"):
            check_updates(graph, as_updates({"X": lambda row: row}))
        return
    update = new_function(kind, graph)
    check_updates(graph, {"X": update})
    cluster = cluster_of(graph, times=10)
    cluster.until(lambda: any(instance.processed for instance in cluster.instances("X")))
    change = cluster.request({"X": update}, rehearse=True)
    cluster.run()
    assert (cluster.outcomes[change].outcome, cluster.state) == ("done", "finished"), cluster.outcomes[change].error
    verdict = judge(cluster.records())
    assert verdict.serializable
    assert not verdict.lost
    unchanged = cluster_of(graph, times=10)
    unchanged.run()
    assert by_sink(cluster) != by_sink(unchanged)


@each_kind
def test_a_kind_shares_a_worker_or_has_one_of_its_own(kind: Kind) -> None:
    """One that is chained does so with the operator before it or behind it; one that routes ends its chain."""
    [chain] = [chain for chain in chains(graph_of(kind)) if "X" in chain]
    assert (len(chain) > 1) is TRAITS[kind].chained
    assert chain[-1] == "X" or not TRAITS[kind].routes


@pytest.mark.parametrize("kind", USER_CODE)
def test_a_kind_takes_the_functions_that_its_traits_say(kind: Kind) -> None:
    """Functions of a batch, and generators."""

    def generates(row: Any) -> Iterator[Any]:
        yield row

    def accepts(function: Any) -> bool:
        try:
            check_function("X", function, (), kind)
        except DataflowError:
            return False
        return True

    traits = TRAITS[kind]
    if traits.timed:
        assert accepts(Counted())
        assert not accepts(lambda row: row)
        return
    assert accepts(lambda row: row)
    assert accepts(batched(lambda batch: batch)) is traits.batched
    assert accepts(generates) is (traits.returns is not Returns.ANSWER)
    if accepts(generates):
        assert emits_of(kind, generates) is Emits.ONE_TO_MANY
    assert emits_of(kind, lambda row: row) is traits.emits


def test_no_other_module_asks_for_a_kind_by_name() -> None:
    """But those that declare operators."""
    package = Path(fries_nb.__file__).parent
    modules = ("traits", "builder", "streams", "stream_joins", "loops", "regions", "graph", "interchange")
    declare = {*(f"dataflow/{module}.py" for module in modules), "simulation/drawn_flows.py", "labs/coverings.py"}
    declare.add("planning/shadow.py")
    named = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Kind"
        and node.attr in Kind.__members__
    }  # fmt: skip
    assert named - declare <= {"operators/kinds.py", "dataflow/operators.py"}


class NewKind(StrEnum):
    """What is not known to the package."""

    UNLESS = "unless"


def unless_step(instance: Instance, behind: Behind) -> Step:
    """The row, if the predicate is false of it."""
    emit, call = behind.valued(instance)[0], call_of(instance)

    def step(row: Row) -> None:
        try:
            drop = bool(call(row))
        except FAILURES as error:
            raise failure(instance, error) from error
        if not drop:
            emit(row)
        elif instance.audit:
            instance.log.dropped.append(row.columns.transactions()[row.index])

    return step


@pytest.fixture
def unless(monkeypatch: pytest.MonkeyPatch) -> Kind:
    """A kind that two entries make known: the filter's opposite."""
    kind = cast("Kind", NewKind.UNLESS)
    traits = OperatorTraits(
        execution=Execution.CALL, holds=Holds.FUNCTION, returns=Returns.ANSWER, columns=ColumnsOut.SAME, chained=True
    )
    monkeypatch.setitem(cast("dict[Kind, OperatorTraits]", TRAITS), kind, traits)
    monkeypatch.setitem(cast("dict[Kind, OperatorCall]", CALLS), kind, OperatorCall(unless_step))
    return kind


def flow_with(kind: Kind, function: Any, on_error: Any = "fail") -> Graph:
    """A source, a map, the operator ``X`` of the kind, another map, and a sink."""
    flow = DataflowBuilder("new")
    stream = flow.source("S", rate(None, count=1), identity="x").map("A", lambda row: row)
    stream.filter("X", function, on_error=on_error).map("B", lambda row: row).sink("Z0", memory())
    graph = flow.graph(2)
    operators = tuple(replace(one, kind=kind) if one.name == "X" else one for one in graph.operators)
    return Graph(graph.name, operators, graph.edges)


@pytest.mark.parametrize("seed", range(4))
def test_a_new_kind_runs_and_is_changed_with_its_neighbours(unless: Kind, seed: int) -> None:
    """It is chained, audited and switched together with a map, like any other."""
    graph = flow_with(unless, lambda row: row["x"] % 2)
    assert ("A", "X", "B") in chains(graph)
    check_runnable(graph)
    update = {"X": lambda row: True, "B": lambda row: row | {"v": 2}}
    check_updates(graph, as_updates(update))
    cluster = cluster_of(graph, seed, times=10)
    cluster.until(lambda: all(instance.processed > 1 for instance in cluster.instances("X")))
    change = cluster.request(update)
    cluster.run()
    assert (cluster.outcomes[change].outcome, cluster.state) == ("done", "finished"), cluster.outcomes[change].error
    verdict = judge(cluster.records())
    assert verdict.serializable
    assert not verdict.lost
    rows = cluster.rows("Z0")
    assert rows
    assert all(row["x"] % 2 == 0 and "v" not in row for row in rows)  # what came later was dropped, all of it


def test_a_new_kind_has_the_error_policies(unless: Kind) -> None:
    """A tuple that it fails on is a dead letter; the others go on."""
    cluster = cluster_of(flow_with(unless, lambda row: 1 // (row["x"] - 5), memory()))
    cluster.run()
    assert cluster.state == "finished"
    assert len(cluster.rows("X")) == 1
    assert len(cluster.rows("Z0")) == sum(1 // (row["x"] - 5) == 0 for row in ROWS if row["x"] != 5)
