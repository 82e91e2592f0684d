"""Declaring a dataflow: the graph that results, types inferred, mistakes refused where they are made."""

from __future__ import annotations

import pyarrow as pa
import pytest

import fries_nb as fn
import fries_nb.dataflow as df
from fries_nb.dataflow import (
    DataflowBuilder,
    Edge,
    Emits,
    Graph,
    Kind,
    Operator,
    Partitioning,
    memory,
    parquet,
    rate,
    replay,
)
from fries_nb.dataflow.interchange import graph_from_json, graph_to_json
from fries_nb.errors import DataflowError


def same(row):
    """A function of a row."""
    return row


def many(row):
    """A generator of rows."""
    yield row


class Keyed:
    """An operator with state."""

    def process(self, row, state):
        """Returns the row."""
        return row


@pytest.fixture
def flow() -> DataflowBuilder:
    """A dataflow with a source."""
    return DataflowBuilder("fraud")


@pytest.fixture
def payments(flow):
    """Its source's stream."""
    return flow.source("payments", rate(1_000), identity="ID")


def edges(flow: DataflowBuilder) -> list[str]:
    """Edges as text."""
    return [f"{edge.source} > {edge.to} {edge.partitioning}" for edge in flow.graph().edges]


def test_the_running_example(flow, payments):
    """Figure 1: keyed operators get hash edges on their keys, others forward; workers default to the run's."""
    fc = payments.map("FC", Keyed(), key="CUSTOMER_ID")
    fm = fc.map("FM", Keyed(), key=["TERMINAL_ID", "DAY"], workers=4)
    fm.map("MC", same).sink("scored", parquet("out"))
    graph = flow.graph(workers=3)
    assert graph.edges == (
        Edge("payments", "FC", Partitioning.HASH, ("CUSTOMER_ID",)),
        Edge("FC", "FM", Partitioning.HASH, ("TERMINAL_ID", "DAY")),
        Edge("FM", "MC"),
        Edge("MC", "scored"),
    )
    assert [operator.workers for operator in graph.operators] == [1, 3, 4, 3, 3]
    assert [operator.kind for operator in graph.operators] == [Kind.SOURCE, Kind.MAP, Kind.MAP, Kind.MAP, Kind.SINK]
    assert graph.operator("FM").key == ("TERMINAL_ID", "DAY")
    df.check_runnable(graph)


def test_types_are_inferred(flow, payments):
    """One-to-many: flat_map, unnest, replicate, a generator. Edge-wise: replicate. All else one-to-one."""
    one, two = payments.map("M", same).map("G", many).flat_map("F", same).unnest("U", "items").replicate("RE")
    left, right = one.filter("FI", bool).split("SP", bool)
    left.union("UN", two.map("T", same), right.map("R", same)).sink("S", memory())
    operators = flow.graph().by_name
    multiplying = {name for name, operator in operators.items() if operator.emits is Emits.ONE_TO_MANY}
    assert multiplying == {"G", "F", "U", "RE"}
    assert {name for name, operator in operators.items() if operator.edgewise_one_to_one} == {"RE"}
    assert (operators["U"].function, operators["SP"].branches) == ("items", 2)


def test_two_consumers_are_shown_as_a_replicate(flow, payments):
    """X > Replicate(X) > consumers: hash keys stay with the consumers, and the copies run beside X."""
    x = payments.map("X", same, workers=5)
    x.map("A", same, key="K")
    x.map("B", same)
    graph = flow.graph()
    assert edges(flow) == [
        "payments > X forward", "X > Replicate(X) forward", "Replicate(X) > A hash", "Replicate(X) > B forward",
    ]  # fmt: skip
    copy = graph.operator("Replicate(X)")
    assert (copy.workers, copy.kind, copy.emits, copy.edgewise_one_to_one) == (
        5, Kind.REPLICATE, Emits.ONE_TO_MANY, True,
    )  # fmt: skip


def test_one_consumer_needs_no_replicate(flow, payments):
    """The edge is direct until a second consumer comes."""
    payments.map("A", same)
    assert edges(flow) == ["payments > A forward"]
    payments.map("B", same)
    assert edges(flow)[0] == "payments > Replicate(payments) forward"


def test_a_declared_replicate_is_enough(flow, payments):
    """All its handles are one operator, however often they are consumed; a copy of a copy is not inserted."""
    one, two, _ = payments.replicate("RE", n=3)
    for number, stream in enumerate((one, two, one)):
        stream.map(f"C{number}", same)
    assert edges(flow)[1:] == ["RE > C0 forward", "RE > C1 forward", "RE > C2 forward"]


def test_branches_of_a_split(flow, payments):
    """Edges carry the number of the branch; a branch with two consumers gets its own Replicate."""
    first, second, third = payments.split("SP", int, into=3)
    third.map("A", same)
    first.map("B", same)
    second.map("C", same)
    second.map("D", same)
    branches = {edge.to: edge.branch for edge in flow.graph().out_edges("SP")}
    assert branches == {"A": 2, "B": 0, "Replicate(SP[1])": 1}


def test_a_self_join_hashes_both_sides(flow, payments):
    """The left stream's edge comes first, and the key is what is joined on."""
    a, b = payments.replicate("RE")
    a.map("A", same).self_join("SJ", b.map("B", same), on="ID")
    assert [(edge.source, edge.partitioning, edge.key) for edge in flow.graph().in_edges("SJ")] == [
        ("A", Partitioning.HASH, ("ID",)), ("B", Partitioning.HASH, ("ID",)),
    ]  # fmt: skip
    assert (flow.graph().operator("SJ").key, flow.graph().operator("SJ").function) == (("ID",), "_right")


@pytest.mark.parametrize(
    ("above", "on", "unique"),
    [
        (lambda stream: stream, "ID", True),
        (lambda stream: stream.filter("X", bool), "ID", True),
        (lambda stream: stream.split("X", bool)[1], "ID", True),
        (lambda stream: stream, "OTHER", False),
        (lambda stream: stream, ["ID", "OTHER"], False),
        (lambda stream: stream.unnest("X", "items"), "ID", False),
        (lambda stream: stream.flat_map("X", same), "ID", False),
        (lambda stream: stream.map("X", many), "ID", False),
        (lambda stream: stream.union("X", stream.map("Y", same)), "ID", False),
    ],
)
def test_when_a_self_join_is_unique_per_transaction(flow, payments, above, on, unique):
    """On the source's own identity, with nothing above that multiplies it."""
    a, b = above(payments).replicate("RE")
    a.map("A", same).self_join("SJ", b.map("B", same), on=on)
    assert flow.graph().operator("SJ").unique_per_transaction is unique


@pytest.mark.parametrize("side", ["A", "B"])
def test_a_multiplying_side_is_not_unique(flow, payments, side):
    """Either side counts."""
    a, b = payments.replicate("RE")
    left, right = a.map("A", many if side == "A" else same), b.map("B", many if side == "B" else same)
    left.self_join("SJ", right, on="ID")
    assert not flow.graph().operator("SJ").unique_per_transaction


def test_identity_goes_on_below_a_unique_join(flow, payments):
    """Its output has at most one row for a source tuple again."""
    a, b = payments.replicate("RE")
    joined = a.map("A", same).self_join("SJ", b.map("B", same), on="ID")
    c, d = joined.replicate("RE2")
    c.map("C", same).self_join("SJ2", d.map("D", same), on="ID")
    assert flow.graph().operator("SJ2").unique_per_transaction


@pytest.mark.parametrize("unique", [True, False])
def test_uniqueness_can_be_declared(flow, unique):
    """The user's word stands, either way."""
    a, b = flow.source("S", rate(1), identity="ID").replicate("RE")
    a.map("A", same).self_join("SJ", b.map("B", same), on="OTHER" if unique else "ID", unique=unique)
    assert flow.graph().operator("SJ").unique_per_transaction is unique


def test_streams_of_two_sources_share_no_identity(flow, payments):
    """Equal column names do not make them the same tuples."""
    other = flow.source("other", rate(1), identity="ID")
    payments.self_join("SJ", other, on="ID")
    assert not flow.graph().operator("SJ").unique_per_transaction


def test_a_stream_is_found_by_name(flow, payments):
    """Another cell goes on from it; unknown names suggest the closest."""
    assert flow.stream("payments") is payments
    payments.split("SP", bool)
    assert flow.stream("SP[1]").branch == 1
    with pytest.raises(DataflowError, match=r"no stream 'payment'; .*did you mean 'payments'"):
        flow.stream("payment")


BAD = {
    "duplicate name": (lambda f, s: [s.map("A", same), s.map("A", same)], "two operators are named 'A'"),
    "empty name": (lambda f, s: s.map("", same), "name is a non-empty string; got ''"),
    "name no string": (lambda f, s: s.map(3, same), "name is a non-empty string; got 3"),
    "missing function": (lambda f, s: s.map("A", None), "operator 'A': no function was given"),
    "not callable": (lambda f, s: s.map("A", 5), "operator 'A': got 5, which cannot be called"),
    "class": (lambda f, s: s.map("A", Keyed), r"got the class Keyed; expected an instance of it, Keyed\("),
    "no parameter": (lambda f, s: s.map("A", lambda: 1), "takes 0 parameters; expected one to be called with"),
    "two parameters": (lambda f, s: s.map("A", lambda a, b: 1), "takes 2 parameters"),
    "state without key": (lambda f, s: s.map("A", Keyed()), "keeps state per key.*expected key="),
    "key not a string": (lambda f, s: s.map("A", same, key=3), "has the key 3; expected a column name"),
    "key list of no strings": (lambda f, s: s.map("A", same, key=["K", 3]), "expected a column name"),
    "empty key": (lambda f, s: s.map("A", same, key=[]), "expected column names"),
    "key twice": (lambda f, s: s.map("A", same, key=["K", "K"]), "each once"),
    "workers 0": (lambda f, s: s.map("A", same, workers=0), "workers=0; expected 1 or more"),
    "workers true": (lambda f, s: s.map("A", same, workers=True), "workers=True; expected 1 or more"),
    "split into 1": (lambda f, s: s.split("A", bool, into=1), "into=1; expected a number of streams, 2 or more"),
    "split generator": (lambda f, s: s.split("A", many), "split 'A' got a generator"),
    "filter generator": (lambda f, s: s.filter("A", many), "filter 'A' got a generator"),
    "replicate 1": (lambda f, s: s.replicate("A", n=1), "n=1; expected a number of copies, 2 or more"),
    "union of one": (lambda f, s: s.union("A"), "has one input"),
    "union with itself": (lambda f, s: s.union("A", s), "two direct copies of 'payments'; put an operator"),
    "join of copies": (lambda f, s: s.self_join("A", s, on="ID"), "two direct copies"),
    "replicas into one": (lambda f, s: (lambda a, b: a.union("A", b))(*s.replicate("R")), "two direct copies of 'R'"),
    "branches into one": (lambda f, s: (lambda a, b: a.union("A", b))(*s.split("R", bool)), "two direct copies of 'R'"),
    "input no stream": (lambda f, s: s.union("A", "FC"), "got 'FC' as an input; expected a stream"),
    "join with no stream": (lambda f, s: s.self_join("A", "FC", on="ID"), "got 'FC' as an input"),
    "other flow": (
        lambda f, s: s.union("A", DataflowBuilder("other").source("x", rate(1))),
        "stream 'x' belongs to another dataflow, 'other'; expected one of 'fraud'",
    ),
    "sink consumed": (lambda f, s: s.sink("A", memory()).map("B", same), "'A' is a sink, and nothing follows"),
    "join on nothing": (lambda f, s: s.self_join("A", s.map("B", same), on=None), "needs the columns to join on"),
    "suffix": (lambda f, s: s.self_join("A", s.map("B", same), on="K", suffix=""), "suffix=''"),
    "batched split": (lambda f, s: s.split("A", df.batched(lambda batch: 0)), "a router of one row"),
    "unnest no column": (lambda f, s: s.unnest("A", 3), "takes the name of a list column; got 3"),
    "source no description": (lambda f, s: f.source("A", "file"), "got 'file'; expected replay"),
    "source identity": (lambda f, s: f.source("A", rate(1), identity=["K"]), "expected the name of one column"),
    "source cohort": (lambda f, s: f.source("A", rate(1), cohort=""), "cohort=''; expected the name of one column"),
    "no such cohort": (
        lambda f, s: f.source("A", fn.replay(pa.table({"card": [1]})), cohort="cards"),
        "source 'A' has cohort='cards', but no such column; expected one of card; did you mean 'card'",
    ),
    "sink no description": (lambda f, s: s.sink("A", "file"), "got 'file'; expected a sink: memory"),
    "copy's name taken": (
        lambda f, s: [s.map("Replicate(payments)", same), s.map("A", same), f.graph()],
        r"two operators are named 'Replicate\(payments\)'",
    ),
    "flow's name": (lambda f, s: DataflowBuilder(""), "dataflow's name is a non-empty string"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_refused_at_the_declaration(flow, payments, case):
    """Each with what was got, what was expected, and the operator's name."""
    mistake, said = BAD[case]
    with pytest.raises(DataflowError, match=said):
        mistake(flow, payments)


def test_a_refused_declaration_leaves_nothing_behind(flow, payments):
    """The name stays free, and the stream is as it was."""
    with pytest.raises(DataflowError):
        payments.union("A", payments)
    payments.map("A", same).sink("S", memory())
    assert edges(flow) == ["payments > A forward", "A > S forward"]


def test_repr_names_what_is_there(flow, payments):
    """Short enough for the end of a notebook cell."""
    assert repr(payments) == "Stream('payments')"
    assert repr(flow) == "Dataflow('fraud', operators=['payments'])"


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda f: None, "has no source; expected at least one"),
        (lambda f: f.source("S", rate(1)), "has no sink; expected at least one"),
        (
            lambda f: (lambda s: [s.map("A", same), s.sink("K", memory())])(f.source("S", rate(1))),
            "nothing consumes 'A', and its rows would be lost",
        ),
        (
            lambda f: f.source("S", rate(1)).split("SP", bool)[0].sink("K", memory()),
            r"nothing consumes 'SP\[1\]', and its rows would be lost",
        ),
    ],
)
def test_what_cannot_run(flow, declare, said):
    """No source, no sink, rows that go nowhere: refused before anything starts, though legal to look at."""
    declare(flow)
    with pytest.raises(DataflowError, match=said):
        df.check_runnable(flow.graph())


@pytest.mark.parametrize(
    ("middle", "ways", "said"),
    [
        (Operator("M"), [("S", "M"), ("M", "K")], "operator 'M' has no function to run"),
        (Operator("M", function=same), [("S", "K"), ("M", "K")], "operator 'M' has no input"),
    ],
)
def test_what_cannot_run_though_it_has_ends(middle, ways, said):
    """An operator without a function, as in a graph read from JSON, or one that nothing feeds."""
    ends = Operator("S", kind=Kind.SOURCE, function=rate(1)), Operator("K", kind=Kind.SINK, function=memory())
    with pytest.raises(DataflowError, match=said):
        df.check_runnable(Graph("f", (*ends, middle), tuple(Edge(*way) for way in ways)))


def test_sources_take_descriptions(flow, tmp_path):
    """Both kinds, and workers of their own."""
    flow.source("A", replay(tmp_path / "payments.parquet", rate=5), workers=2)
    assert flow.graph(workers=7).operator("A").workers == 2


def test_an_operator_can_be_kept_out_of_chains(flow):
    """Whichever of the four runs the user's function; anything but a truth value is refused."""
    stream = flow.source("S", rate(1)).map("M", same, chain=False).flat_map("F", same, chain=False)
    first, second = stream.filter("K", bool, chain=False).split("SP", bool, chain=False)
    first.map("A", same).sink("one", memory())
    second.sink("two", memory())
    graph = flow.graph()
    assert [operator.name for operator in graph.operators if not operator.chain] == ["M", "F", "K", "SP"]
    assert graph_from_json(graph_to_json(graph)).operator("M").chain is False
    with pytest.raises(DataflowError, match="operator 'B' has chain='no'; expected True or False"):
        flow.stream("A").map("B", same, chain="no")


@pytest.mark.parametrize("workers", [1_025, 100_000])
def test_more_workers_than_there_are_bins_of_keys_are_refused(workers) -> None:
    """Declared, or as the run's default; an operator of a plan, which is not run, may have any number."""
    flow = fn.Dataflow("many")
    rows = flow.source("S", fn.rate(1))
    words = f"'A' has workers={workers}; expected 1,024 at most, as many as there are bins of keys"
    with pytest.raises(DataflowError, match=words):
        rows.map("A", lambda row: row, workers=workers)
    rows.map("A", lambda row: row).sink("out", fn.memory())
    with pytest.raises(DataflowError, match=words):
        flow.graph(workers)
    assert flow.graph(1_024).operator("A").workers == 1_024
