"""The judge: the paper's schedules, its laws against a brute-force oracle, workers, several updates."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.audit import Mixed, judge
from fries_nb.errors import TraceError
from fries_nb.protocol.trace import Choices, Ran, RanMany, Record, TraceFlow, Updated, Wrote


def schedule(text: str) -> list[Record]:
    """Reads "t1:FM u:FM@1": transactions begin with t, updates with u, @ gives the worker."""
    records: list[Record] = []
    for word in text.split():
        name, _, place = word.partition(":")
        operator, _, worker = place.partition("@")
        kind = Ran if name.startswith("t") else Updated
        records.append(kind(name, operator, int(worker or 0)))
    return records


# ACCEPTANCE, "Audit"; Fries, sections 4.2, 5.1 and 6.1.
S1 = "t:FC u:FM t:FM u:MC t:MC"
S2 = "u:FM u:MC t:FC t:FM t:MC"
S3 = "t:FC t:FM u:FM u:MC t:MC"
S4 = "t1:X u:C t1:C t2:X u:D t2:D"
S5 = "t:FMX u:FMX t:FMX"


@pytest.mark.parametrize("text", [S1, S2, S4, "t:FM", "u:FM", "t1:FM u:FM t2:FM"])
def test_serializable(text):
    """The paper's good schedules, and the trivial ones, have neither mixed transactions nor a cycle."""
    verdict = judge(schedule(text))
    assert (verdict.serializable, verdict.mixed, verdict.cycle) == (True, (), ())


@pytest.mark.parametrize(
    ("text", "old", "new", "at"),
    [(S3, ("FM",), ("MC",), ("FM", "MC")), (S5, ("FMX",), ("FMX",), ("FMX", "FMX"))],
)
def test_not_serializable(text, old, new, at):
    """The paper's bad schedules: t must precede u at one operator, and follow it at the other."""
    verdict = judge(schedule(text))
    assert not verdict.serializable
    assert verdict.mixed == (Mixed("t", "u", old, new),)
    assert (verdict.cycle, verdict.cycle_at) == (("t", "u"), at)
    assert (verdict.transactions, verdict.updates) == (1, 1)


def test_an_operation_is_compared_at_its_own_worker_only():
    """FM[1] switches long before FM[0]; t1 and t2 each meet one version whatever the wall clock says."""
    assert judge(schedule("u:FM@1 t1:FM@0 t2:FM@1 t2:MC@1 t1:MC@0 u:FM@0 u:MC@0")).mixed == (
        Mixed("t2", "u", ("MC",), ("FM",)),
    )
    assert judge(schedule("u:FM@1 t1:FM@0 t2:FM@1 t1:FM@0 u:FM@0")).serializable


def test_a_transaction_may_mix_two_workers_of_one_operator():
    """One tuple of t before the switch of FM[0], another after that of FM[1]: mixed, at FM both times."""
    verdict = judge(schedule("u:FM@1 t:FM@0 t:FM@1 u:FM@0"))
    assert verdict.mixed == (Mixed("t", "u", ("FM",), ("FM",)),)


def test_a_worker_that_ended_before_the_update_ran_the_old_configuration():
    """FM[0] has no record of u, FM[1] has: what FM[0] did is before u, so t mixes at MC."""
    assert judge(schedule("t:FM@0 u:FM@1 u:MC t:MC")).mixed == (Mixed("t", "u", ("FM",), ("MC",)),)
    assert judge(schedule("t:FM@0 u:FM@1 t:MC u:MC")).serializable


def test_targets_tell_of_an_operator_that_ended_altogether():
    """No worker of FM lived to see u; only the caller can know that u changes FM."""
    assert judge(schedule("t:FM u:MC t:MC")).serializable
    verdict = judge(schedule("t:FM u:MC t:MC"), targets=[("u", "FM"), ("u", "MC")])
    assert verdict.mixed == (Mixed("t", "u", ("FM",), ("MC",)),)


def test_two_updates_that_are_fine_alone_may_not_be_so_together():
    """t1 between u1 and u2 one way round, t2 the other way round: nothing mixed, a cycle of four."""
    records = schedule("t1:A u1:A u2:B t1:B t2:C u2:C u1:D t2:D")
    verdict = judge(records)
    assert verdict.mixed == ()
    assert verdict.cycle in (("t1", "u1", "t2", "u2"), ("t2", "u2", "t1", "u1"))
    for one in ("u1", "u2"):
        assert judge(record for record in records if getattr(record, "id", one) == one).serializable


def test_two_updates_of_one_operator_conflict_with_each_other():
    """A is left with u2's function and B with u1's: no serial order ends so, although no tuple came between."""
    verdict = judge(schedule("u1:A u2:A u2:B u1:B"))
    assert sorted(verdict.cycle) == ["u1", "u2"]
    assert judge(schedule("u1:A u2:A u1:B u2:B")).serializable


def test_many_operations_in_one_record_count_as_many():
    """A RanMany is its transactions in a row, and number 7 is not the text "7"."""
    records = [RanMany((7, 8, 9), "FM"), Updated(1, "FM"), Updated(1, "MC"), RanMany((9,), "MC"), Ran("7", "MC")]
    verdict = judge(iter(records))
    assert verdict.mixed == (Mixed(9, 1, ("FM",), ("MC",)),)
    assert verdict.cycle == ("9", "1")
    assert verdict.transactions == 4


def test_an_update_twice_at_one_worker_is_refused():
    """A function update switches a worker once; most likely the worker numbers were left out."""
    with pytest.raises(TraceError, match=r"'u' is applied twice at FM\[0\].*worker"):
        judge(schedule("u:FM t:FM u:FM"))


def test_a_cycle_is_found_among_very_many_good_transactions():
    """300,000 operations, five updates, one transaction that mixes: found, and the groups stay few."""
    records: list[Record] = []
    for change in range(5):
        block = tuple(range(change * 20_000, (change + 1) * 20_000))
        for operator in ("FC", "FM", "MC"):
            records += [RanMany(block[worker::4], operator, worker) for worker in range(4)]
        records += [Updated(change, operator, worker) for operator in ("FM", "MC") for worker in range(4)]
    assert judge(records).serializable
    assert judge(records).transactions == 100_000
    verdict = judge([*records, Ran(30_000, "MC", 0)])
    assert [(mixed.transaction, mixed.update) for mixed in verdict.mixed] == [(30_000, n) for n in (1, 2, 3, 4)]


OPERATIONS = st.tuples(
    st.sampled_from(["t1", "t2", "t3", "u1", "u2", "u3"]), st.sampled_from("AB"), st.sampled_from([0, 0, 1])
)


@st.composite
def schedules(draw):
    """Up to 14 operations of three transactions and three updates on two operators of two workers."""
    records = []
    for name, operator, worker in draw(st.lists(OPERATIONS, min_size=1, max_size=14)):
        record = (Ran if name[0] == "t" else Updated)(name, operator, worker)
        if isinstance(record, Ran) or record not in records:
            records.append(record)
    return records


def oracle(records: list[Record]) -> bool:
    """Tries every serial order of transactions and updates (Fries, definitions 4.6 to 4.9, word by word)."""
    updates = {(r.id, r.operator) for r in records if isinstance(r, Updated)}
    workers = {(r.operator, r.worker) for r in records}
    ends = [Updated(u, o, w) for u, o in updates for p, w in workers if p == o and Updated(u, o, w) not in records]
    name = {record: record.transaction if isinstance(record, Ran) else record.id for record in [*records, *ends]}
    pairs = {
        (name[first], name[second])
        for first, second in combinations([*records, *ends], 2)
        if (first.operator, first.worker) == (second.operator, second.worker)
        and not (isinstance(first, Ran) and isinstance(second, Ran))
        # Of a worker that ended, nothing says in which order it would have switched.
        and not (isinstance(first, Updated) and second in ends)
    }
    return any(
        all(order.index(first) < order.index(second) for first, second in pairs)
        for order in permutations(set(name.values()))
    )


@given(schedules())
def test_the_verdict_is_that_of_trying_every_serial_order(records):
    """Conflict-serializable exactly if some serial order keeps every conflict's order; a cycle is given if not."""
    verdict = judge(records)
    assert verdict.serializable == oracle(records)
    assert verdict.serializable == (verdict.cycle == ())
    assert not (verdict.serializable and verdict.mixed)


@given(schedules(), st.randoms(use_true_random=False))
def test_the_interleaving_of_workers_does_not_matter(records, random):
    """Any merge that keeps the order of each worker gets the same verdict and finds the same mixed transactions."""
    queues: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        queues.setdefault((record.operator, record.worker), []).append(record)
    merged = []
    while queues:
        place = random.choice(sorted(queues))
        merged.append(queues[place].pop(0))
        if not queues[place]:
            del queues[place]
    one, other = judge(records), judge(merged)
    assert one.serializable == other.serializable
    assert set(one.mixed) == set(other.mixed)
    assert len(one.cycle) == len(other.cycle)


@given(schedules())
def test_the_cycle_is_a_proof(records):
    """Every step of the cycle is a conflict of the trace, in that order, at the operator named."""
    verdict = judge(records)
    following = verdict.cycle[1:] + verdict.cycle[:1]
    for earlier, later, operator in zip(verdict.cycle, following, verdict.cycle_at, strict=True):
        assert any(
            precedes(
                [(r.transaction if isinstance(r, Ran) else r.id) for r in records if at(r, operator, worker)],
                earlier,
                later,
            )
            for worker in (0, 1)
        )


def at(record: Record, operator: str, worker: int) -> bool:
    """Whether this operator at this worker made the record."""
    return (record.operator, record.worker) == (operator, worker)


def precedes(names: list[str], earlier: str, later: str) -> bool:
    """At one worker: the one is there, and the other comes after it or is an update that never came."""
    if earlier not in names:
        return False
    if later[0] == "u" and later not in names:
        return True
    return later in names[names.index(earlier) :]


@pytest.mark.parametrize(("before", "mixed"), [(("u1",), 0), ((), 1)])
def test_all_tuples_of_a_resumed_run_follow_the_changes_of_its_checkpoint(before: tuple[str, ...], mixed: int) -> None:
    """With one more worker, FC[1], which records what the others have recorded in the trace of the killed driver."""
    records = [
        TraceFlow({"FC": 2, "FM": 1}, (), resumed=True, before=before),
        *(Wrote("FC", 0, 3, 1, 0, "u1"), Updated("u2", "FC", 0), Wrote("FC", 0, 3, 2, 0, "u2")),
        *(Updated("u1", "FC", 1), Updated("u2", "FC", 1), Ran("t", "FC", 1, "u2"), Wrote("FC", 1, 1, 2, 0, "u2")),
        *(Wrote("FM", 0, 5, 1, 0, "u1"), Updated("u2", "FM", 0), Ran("t", "FM", 0, "u2")),
        Wrote("FM", 0, 6, 2, 0, "u2"),
    ]
    verdict = judge(records, [("u1", "FM")] if mixed else [])
    assert (verdict.serializable, len(verdict.mixed)) == (not mixed, mixed)


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_canary_that_was_rolled_back_concerns_no_tuple_behind_it(is_restored: bool) -> None:
    """Whichever of its operators other changes have; a tuple that meets its version all the same is a mixture."""
    first, back, later = ({0: 5}, 0.99), ({0: 9}, 0.0), ({0: 20}, 1.0)
    records: list[Record] = []
    for name in "MC":
        records += [Ran(1, name, function=""), Updated("u1", name, steps=(first,)), Ran(7, name, function="u1")]
        ended = Choices((("u1", (first, back), ""),), name) if is_restored else Updated("u1", name, steps=(first, back))
        records += [ended, Ran(25, name, function="") if name == "M" else Updated("u2", name, steps=(later,))]
    records += [Updated("u2", "N", steps=(later,)), Ran(25, "C", function="u2"), Ran(25, "N", function="u2")]
    assert judge(records).serializable
    assert [one.transaction for one in judge([*records, Ran(25, "M", function="u1")]).mixed] == [25]
