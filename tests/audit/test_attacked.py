"""The audit under attack: traces that miss records, switches without effect, outputs that were lost or doubled."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fries_nb as fn
from fries_nb.audit import Astray, StatedCounts, judge, read_trace
from fries_nb.errors import TraceError
from fries_nb.operators import instance as instances
from fries_nb.operators.executors import RowExecutor
from fries_nb.protocol.messages import Data
from fries_nb.protocol.trace import Link, Ran, RanMany, TraceFlow, Updated, Wrote, flow_of, to_line
from fries_nb.simulation import Cluster, stamp_functions
from fries_nb.simulation.drawn_flows import source_rows
from fries_nb.simulation.stamp_functions import Mark
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.outbox import Outbox

ROWS = {"S0": source_rows("S0", 40)}


def flow():
    """A filter, a one-to-many and a split between marks: what may drop, multiply and route a tuple."""
    declared = fn.Dataflow("attacked")
    rows = stamp_functions.mark(stamp_functions.source(declared), "FM").filter("F", lambda row: row["number"] % 5)
    rows = rows.flat_map("D", lambda row: [row] * (row["number"] % 3))
    odd, even = rows.split("P", lambda row: row["number"] % 2, 2)
    both = stamp_functions.mark(odd, "X").union("U", stamp_functions.mark(even, "Y"))
    stamp_functions.mark(both, "MC").sink("out", fn.memory())
    return declared.graph(workers=2)


def played(seed=1, chaining=True, **options):
    """A whole run with a change of FM and MC; its records."""
    cluster = Cluster(flow(), ROWS, seed=seed, hosts=2, window=500, chaining=chaining, **options)
    cluster.hold(cluster.supply.sources)
    cluster.until(lambda: cluster.supply.read >= 20)
    change = cluster.request({name: Mark(name, 0, 1) for name in ("FM", "MC")})
    cluster.until(lambda: change in cluster.outcomes)
    assert cluster.outcomes[change].outcome == "done", cluster.outcomes[change].error
    cluster.release()
    cluster.run()
    assert cluster.state == "finished", cluster.error
    return cluster.records()


@pytest.mark.parametrize("chaining", [False, True], ids=["alone", "in chains"])
@pytest.mark.parametrize("seed", range(5))
def test_what_a_filter_drops_and_a_flat_map_multiplies_is_neither_lost_nor_doubled(seed, chaining):
    """A whole trace: complete and serializable."""
    verdict = judge(played(seed, chaining))
    assert (verdict.serializable, verdict.claim, verdict.updates) == (True, StatedCounts.COMPLETE, 1)


def test_a_trace_that_goes_through_a_file_is_judged_alike(tmp_path):
    """One line a record; read again where something is astray."""
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(to_line, played())))
    assert judge(read_trace(path)).claim is StatedCounts.COMPLETE


def test_any_record_that_is_left_out_is_missed():
    """Each record of the trace in turn; the error names the operator and both numbers."""
    records = played()
    for place, record in enumerate(records[1:], start=1):
        if isinstance(record, Wrote) and not record.ended:
            continue  # the next count says as much
        with pytest.raises(TraceError, match=rf"^the trace is (incomplete|damaged): .*\b{record.operator}\b.*\d+.*\d+"):
            judge(records[:place] + records[place + 1 :])


def resumed(seed):
    """Driven by another process from a checkpoint on, with a change behind it that was decided and reached nobody."""
    cluster = Cluster(flow(), ROWS, seed=seed, hosts=2, window=500, checkpoints=True, commit_interval_ns=10**6)
    cluster.hold(cluster.supply.sources)
    cluster.until(lambda: cluster.store.records and all(one.processed for one in cluster.instances("MC")))
    cluster.checkpoint()
    cluster.until(lambda: None not in cluster.asked.values())
    cluster.request({name: Mark(name, 0, 1) for name in ("FM", "MC")})
    cluster.until(lambda: cluster.journal)
    cluster.kill_driver()
    cluster.release()
    cluster.run()
    assert cluster.state == "finished", cluster.error
    return [flow_of(cluster.graph, resumed=True, finished=True), *cluster.store.resumed()]


@pytest.mark.parametrize("seed", range(5))
def test_the_trace_of_a_resumed_run_is_complete_without_what_the_dead_driver_had(seed):
    """Its workers go on counting from the checkpoint, also where a change that was decided since comes first."""
    records = resumed(seed)
    verdict = judge(records)
    assert (verdict.serializable, verdict.claim, verdict.updates) == (True, StatedCounts.COMPLETE, 1)
    for place, record in enumerate(records[1:], start=1):
        if not isinstance(record, Wrote):
            with pytest.raises(TraceError, match=r"^the trace is (incomplete|damaged)"):
                judge(records[:place] + records[place + 1 :])


@pytest.mark.parametrize("operator", ["S0", "FM", "F", "MC", "out"])
def test_an_operator_that_is_left_out_is_missed(operator):
    """All that its workers wrote, their counts included."""
    records = [record for record in played() if getattr(record, "operator", "") != operator]
    with pytest.raises(TraceError, match=rf"incomplete: {operator} has \d workers?, of which 0 said how much"):
        judge(records)


def test_operations_that_nobody_wrote_are_refused():
    """A record doubled, one made up behind the end."""
    records = played()
    again = next(record for record in records if isinstance(record, RanMany) and record.operator == "MC")
    with pytest.raises(TraceError, match=rf"MC\[{again.worker}\] wrote [\d,]+ records"):
        judge([*records[: records.index(again)], again, *records[records.index(again) :]])
    with pytest.raises(TraceError, match=r"damaged: it holds \d+ records of MC\[0\], which wrote \d+"):
        judge([*records, Ran(1, "MC", 0)])


@pytest.mark.parametrize("records", [[], [Wrote("FM")], played()[:1]], ids=["nothing", "a count", "a flow"])
def test_an_empty_trace_is_no_proof(records):
    """One sentence."""
    with pytest.raises(TraceError, match=r"^the trace is empty: it holds no operation, so it proves nothing$"):
        judge(records)


def test_a_schedule_by_hand_claims_nothing():
    """Without a flow and counts there is nothing that could be missed."""
    assert judge([Ran("t", "FM"), Updated("u", "FM")]).claim is StatedCounts.NONE


# ---- a broken build: the trace is whole, and tells on it


def _switch_in_name_only(instance, change, before=""):
    instance.apply_change(change, instance.prepared.pop(change).transform, before)
    return True


def _no_second_rebuild(execution, original=RowExecutor.rebuild):
    if not hasattr(execution, "_first"):
        original(execution)


def _once(monkeypatch, kind, name, spoil):
    """Break the method at the first call for which ``spoil`` does something."""
    original, done = getattr(kind, name), []

    def broken(self, *args):
        if done:
            return original(self, *args)
        spoiled = spoil(self, *args)
        if spoiled is None:
            return original(self, *args)
        done.append(spoiled)
        for each in spoiled:
            original(self, *each)
        return None

    monkeypatch.setattr(kind, name, broken)


@pytest.mark.parametrize(
    ("kind", "method", "broken"),
    [(instances.Instance, "switch", _switch_in_name_only), (RowExecutor, "rebuild", _no_second_rebuild)],
    ids=["the function stays", "the execution is not rebuilt"],
)
def test_a_switch_without_effect_is_found(monkeypatch, kind, method, broken):
    """Every worker says that it has switched, and runs what it ran before: serializable it is not."""
    monkeypatch.setattr(kind, method, broken)
    verdict = judge(played(chaining=False))
    assert not verdict.serializable
    assert not verdict.mixed
    assert {stale.operator for stale in verdict.stale} == {"FM", "MC"}
    assert {(stale.update, stale.ran) for stale in verdict.stale} == {("u1", "")}


def _lose_a_batch(inbox, channel, frame):
    return [] if channel.receiver.operator == "X" and isinstance(frame, Data) else None


def _double_a_batch(inbox, channel, frame):
    if channel.receiver.operator != "X" or not isinstance(frame, Data):
        return None
    return [(channel, frame), (channel, replace(frame, size=0))]


def _lose_an_output(outbox, branch, batch):
    return [(branch, batch.slice(1))] if outbox._edges[0].to in ("MC", "U") and batch.num_rows > 1 else None


def _double_an_output(outbox, branch, batch):
    twice = pa.concat_batches([batch, batch.slice(0, 1)])
    return [(branch, twice)] if outbox._edges[0].to in ("MC", "U") else None


@pytest.mark.parametrize(
    ("kind", "method", "spoil", "found"),
    [
        (Inbox, "put", _lose_a_batch, "lost"),
        (Inbox, "put", _double_a_batch, "doubled"),
        (Outbox, "add", _lose_an_output, "lost"),
        (Outbox, "add", _double_an_output, "doubled"),
    ],
    ids=["a frame lost", "a frame doubled", "an output lost", "an output doubled"],
)
def test_an_output_that_is_lost_or_doubled_is_found(monkeypatch, kind, method, spoil, found):
    """Once, somewhere between two operators: named with the source tuple, both operators and both numbers."""
    _once(monkeypatch, kind, method, spoil)
    verdict = judge(played(chaining=False))
    assert not verdict.serializable
    assert not verdict.stale
    [one, *_] = getattr(verdict, found)
    assert isinstance(one.transaction, int)
    assert (one.received < one.sent) is (found == "lost")
    assert one.receiver in ("X", "MC", "U")


def test_a_row_that_a_step_swallows_is_lost_and_one_that_it_is_told_to_drop_is_not(monkeypatch):
    """A sieve drops by its own word; a map that returns a row and does not emit it has lost it."""
    from fries_nb.operators import steps

    original = steps.row_map_step

    def swallowing(instance, behind):
        if instance.worker.operator != "FM":
            return original(instance, behind)
        [emit] = behind.emits
        return original(instance, replace(behind, emits=[lambda row: None if row["number"] == 7 else emit(row)]))

    assert judge(played()).serializable
    monkeypatch.setattr(steps, "row_map_step", swallowing)
    verdict = judge(played())
    assert [(one.sender, one.receiver, one.sent, one.received) for one in verdict.lost] == [("FM", "F", 1, 0)]


@pytest.mark.parametrize("kept", ["1", 1, 2**63, -1])
@pytest.mark.parametrize("lost", ["01", "a", 7, 2**62])
def test_one_tuple_lost_and_another_doubled_do_not_even_out(kept, lost):
    """Whatever identifies them: a name that reads like a number is none."""
    flow = TraceFlow({"src": 1, "out": 1}, (Link("src", "out"),), finished=True)
    ran = [Ran(kept, "src"), Ran(lost, "src"), Ran(kept, "out"), Ran(kept, "out")]
    verdict = judge([flow, *ran, Wrote("src", ran=2, ended=True), Wrote("out", ran=2, ended=True)])
    assert verdict.lost == (Astray(lost, "src", "out", 1, 0),)
    assert verdict.doubled == (Astray(kept, "src", "out", 1, 2),)
    whole = [RanMany((kept, lost), "src"), Ran(lost, "out"), Ran(kept, "out")]
    assert judge([flow, *whole, Wrote("src", ran=2, ended=True), Wrote("out", ran=2, ended=True)]).serializable


def test_a_source_that_takes_a_tuple_twice_is_found():
    """All is consistent behind it, and the source tuple runs twice."""
    flow = TraceFlow({"src": 1, "out": 1}, (Link("src", "out"),), finished=True)
    ran = [RanMany((1, 2, 1), name) for name in ("src", "out")]
    verdict = judge([flow, *ran, Wrote("src", ran=3, ended=True), Wrote("out", ran=3, ended=True)])
    assert not verdict.serializable
    assert verdict.doubled == (Astray(1, "", "src", 1, 2),)


IDS = st.sampled_from(
    [0, 1, -1, 2**61 - 1, 2**62, 2**63, 2**64 + 1, -(2**63) - 1, "", "0", "1", "01", " 1", "1_0", "a"]
)


@given(st.lists(IDS, unique=True, min_size=2), st.randoms(use_true_random=False), st.booleans())
def test_a_lost_tuple_does_not_make_up_for_a_doubled_one(transactions, random, many):
    """However alike they are when read as numbers, and whichever are noted together."""
    lost, doubled = random.sample(transactions, 2)
    came = [*(one for one in transactions if one != lost), doubled]

    def ran(operator, those):
        return [RanMany(tuple(those), operator)] if many else [Ran(one, operator) for one in those]

    declared = TraceFlow({"A": 1, "B": 1}, (Link("A", "B"),), finished=True)
    ended = [Wrote(name, ran=len(transactions), ended=True) for name in "AB"]
    right = [declared, *ran("A", transactions), *map(partial(Ran, operator="B"), transactions), *ended]
    assert judge(right).serializable
    verdict = judge([declared, *ran("A", transactions), *ran("B", came), *ended])
    assert verdict.lost == (Astray(lost, "A", "B", sent=1, received=0),)
    assert verdict.doubled == (Astray(doubled, "A", "B", sent=1, received=2),)
