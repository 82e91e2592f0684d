"""What must hold of every interleaving: the checks that the property tests and the sabotage tests share.

None of them looks at how the runtime came to its result: rows are compared with a reference in plain Python, versions
are read off the rows, the trace is judged by the audit.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict

from soak import SOAK

from fries_nb.audit import judge
from fries_nb.dataflow.columns import TRANSACTION
from fries_nb.errors import FriesError
from fries_nb.operators.row_versions import declared
from fries_nb.protocol.checkpoints import in_effect
from fries_nb.protocol.trace import ROW_BITS, Ran, RanMany, Updated, flow_of
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.readers import transaction_of_row
from fries_nb.simulation.scenarios import draw_focused, draw_pausing, draw_scenario, draw_troubled, play
from fries_nb.simulation.stamp_functions import converted, counted, reverted, stamps, without_versions


def transactions_of(record):
    """The source tuples of a data operation."""
    return record.transactions if isinstance(record, RanMany) else (record.transaction,)


def is_whole(played):
    """All that there was to read has come out."""
    return played.cluster.state == "finished" and played.scenario.ending == "end"


def is_reshaped(played):
    """The run was resumed with other numbers of workers, or workers came or went."""
    return played.cluster.graph != played.scenario.graph or has_grown(played)


def has_grown(played):
    """Workers came or went while it ran, which the head of a trace does not tell."""
    return bool(getattr(played.cluster, "adopted", ()))


def had_ended(outcome, worker):
    """Of a worker that there was not at the time, whether all of its operator had."""
    alike = [one for other, one in outcome.per_worker.items() if other.operator == worker.operator]
    return outcome.per_worker[worker].ended if worker in outcome.per_worker else all(one.ended for one in alike)


def wish_of(played, number):
    """What was asked for as this version."""
    [wish] = [wish for wish in played.changes.values() if wish.version == number]
    return wish


def ranks_of(played):
    """Version to its place among those that were decided: a fix is decided in front of changes asked for before."""
    decided = [played.changes[decided.change].version for decided in in_effect(played.cluster.journal)]
    return {version: rank for rank, version in enumerate([0, *decided])}


def transaction_of(played, row):
    """The source tuple that a row of the reference stems from."""
    scenario = played.scenario
    source, _, rest = row["id"].partition(":")
    position = int(rest.replace("/", ".").split(".")[0])
    workers = scenario.graph.operator(source).workers
    return transaction_of_row(scenario.graph.sources.index(source), workers, position)


def rows_by_transaction(played):
    """(transaction, sink) -> how many rows a whole run has there."""
    expected, sinks = played.scenario.expected, played.scenario.graph.sinks
    return Counter((transaction_of(played, row), sink) for sink in sinks for row in expected.at[sink])


def check_cut(committed, whole):
    """What is committed is all that the first tuples of each split led to, and nothing else."""
    last = defaultdict(lambda: -1)
    for identity, _ in committed:
        last[identity >> ROW_BITS] = max(last[identity >> ROW_BITS], identity)
    wanted = {key: count for key, count in whole.items() if key[0] <= last[key[0] >> ROW_BITS]}
    assert wanted == dict(committed), "an epoch is no consistent cut of the sources"


def replay(played, instance, state):
    """(version, count, checksum) after each tuple of a key, by the log; checks the checksum in the end."""
    name, ranks = instance.worker.operator, ranks_of(played)
    wishes = [played.changes[decided.change] for decided in in_effect(played.cluster.journal)]
    switches = [wish for wish in wishes if name in wish.targets and wish.transforms and wish.broken != name]
    withdrawn = {played.changes[one.change].version for one in in_effect(played.cluster.journal) if one.is_withdrawn}

    def form_of(version):
        """The transformations that a state of this version has gone through."""
        past = (wish.version for wish in switches if ranks[wish.version] <= ranks[version])
        return [one for one in past if one == version or one not in withdrawn]

    checksum, version, seen = 0, None, set()
    for count, (_, now) in enumerate(state["log"], start=1):
        checksum = checksum if version is None else _convert(checksum, form_of(version), form_of(now))
        in_turns = any(decided.steps for decided in played.cluster.journal)
        in_order = version is None or in_turns or ranks[version] <= ranks[now]
        assert in_order, f"{name} went back from version {version} to {now}"
        version, checksum = now, counted(checksum, now)
        seen.add((version, count, checksum))
    if version is not None:
        checksum = _convert(checksum, form_of(version), form_of(declared(instance).function.version))
    assert checksum == state["checksum"], f"{name}: a state was not transformed as it should have been"
    return seen


def _convert(checksum, before, after):
    """The checksum after all transformations back from one form, and then to another one."""
    for version in reversed([one for one in before if one not in after]):
        checksum = reverted(checksum, version)
    for version in [one for one in after if one not in before]:
        checksum = converted(checksum, version)
    return checksum


def try_seed(seed, draw=draw_scenario, cluster=Cluster, laws=None):
    """Play the scenario of a seed and check it; a failure names the call that replays it, to be made in tests/."""
    scenario, how = draw(seed), f"{draw.__name__}, {cluster.__name__}"
    try:
        played = play(scenario, cluster)
        for law in laws or LAWS:
            law(played)
    except (AssertionError, FriesError) as error:
        raise AssertionError(f"seed {seed}: {error}\n(replay: try_seed({seed}, {how})) {scenario}") from error
    return played


def try_troubled(seed):
    """Likewise, with kills, full disks and poison, and any scheduler."""
    return try_seed(seed, draw_troubled)


def try_focused(seed):
    """Likewise, with keyed state that is changed in mid-stream."""
    return try_seed(seed, draw_focused)


def try_pausing(seed):
    """Likewise, with operators that pause on a tuple while several are changed together."""
    return try_seed(seed, draw_pausing)


def lacking(runs, wanted, play, least=1, most=0, shown=()):
    """What was met less than ``least`` times in so many runs, of which each keeps the laws: none for want of a case.

    ``play`` plays a seed with its laws, and counts what that has met. For what is rare those that are known to show it
    are played, and then up to ``most``.
    """
    met, rare = Counter(), dict.fromkeys(wanted, 0)
    for count, seed in enumerate(dict.fromkeys((*range(runs * SOAK), *shown, *range(runs * SOAK, most)))):
        if count >= runs * SOAK and not rare:
            break
        met.update(play(seed))
        rare = {what: met[what] for what in wanted if met[what] < least}
    return rare


def ends_well(played):
    """The run came to the end that was asked for, and every change to one outcome (twice would have raised)."""
    cluster, scenario = played.cluster, played.scenario
    legal = {"finished", *(["stopped"] if scenario.ending == "stop" else [])}
    if any(wish.how == "poison" for wish in played.changes.values()):
        legal.add("failed")
    if any(words in cluster.error for words in FATAL):
        assert scenario.cluster["faults"].full_disk
        legal.add("failed")
    assert cluster.state in legal, f"{cluster.state}: {cluster.error} {cluster.details}"
    assert cluster.outcomes.keys() | cluster.orphans == set(played.changes)
    assert not cluster.outcomes.keys() & cluster.orphans
    answers = Counter(request for ended in cluster.ended for request in ended.requests)
    assert answers == Counter(cluster.asked.keys()), "a checkpoint was asked for in vain, or answered twice"
    for change, outcome in cluster.outcomes.items():
        assert bool(outcome.error) != (outcome.outcome == "done"), outcome
        if cluster.state == "finished" and not played.changes[change].how and outcome.outcome != "done":
            assert any(words in outcome.error for words in EXCUSES), outcome


FATAL = ("the last checkpoint could not be kept",)
EXCUSES = (
    *("ended", "finished", "stopped", "cannot digest"),
    *("the run failed", "was lost", "starts the run again", "is paused on a tuple", "no space left on device"),
    "is being rolled back by its guard",
)


def journals_decisions(played):
    """A change that was decided is in the journal, once; one that was aborted is not; one taken back has failed.

    One that cannot be opened or unpickled is found out beforehand, though the workers of its target have ended: a
    recovery may go back to before they had.
    """
    journaled = Counter(entry.change for entry in played.cluster.journal if entry.payloads or entry.step_of)
    taken_back = [entry.change for entry in played.cluster.journal if entry.is_revoked]
    outcomes = played.cluster.outcomes
    decided = {change for change, outcome in outcomes.items() if outcome.outcome != "aborted"}
    assert set(journaled.values()) <= {1}, f"journaled twice: {journaled}"
    untried = [change for change in journaled if played.changes[change].how in ("open", "unpickle")]
    assert not untried, f"{untried} were decided and cannot be prepared"
    assert decided <= journaled.keys() <= decided | played.cluster.orphans
    assert len(set(taken_back)) == len(taken_back)
    assert journaled.keys() >= set(taken_back)
    assert all(outcomes[change].outcome == "failed" for change in taken_back if change in outcomes)


def is_lossless(played):
    """What came out is what the reference says, path by path; of a run cut short, what it says of a part of it."""
    scenario, cluster = played.scenario, played.cluster
    expected = scenario.expected
    for sink in scenario.graph.sinks:
        found = Counter((row["id"], without_versions(row["trail"])) for row in cluster.rows(sink))
        wanted = Counter((row["id"], row["trail"]) for row in expected.at[sink])
        if is_whole(played):
            assert found == wanted, f"{sink} lacks {wanted - found}, has too much {found - wanted}"
        else:
            assert found <= wanted, f"{sink} has too much {found - wanted}"


def commits_cuts(played):
    """Each part is committed at most once; each epoch completes a consistent cut of the sources.

    A cut holds, of every source worker, all that its first so many tuples led to and nothing of a later one. (The
    first tuples that lead to nothing, and so to no row, are in it as well.)
    """
    cluster, sinks = played.cluster, played.scenario.graph.sinks
    parts = Counter((sink, part) for epoch in cluster.epochs for sink, files in epoch.items() for part in files)
    assert not [part for part, count in parts.items() if count > 1], "a part was committed twice"
    if cluster.state == "finished":
        closed = {(id_.operator, part) for id_, port in cluster.ports.items() for part in port.parts}
        assert parts.keys() >= closed, "a part was never committed"
        assert cluster.recoveries or has_grown(played) or parts.keys() == closed
    whole, committed = rows_by_transaction(played), Counter()
    for epoch in cluster.epochs:
        for sink in sinks:
            committed.update((row[TRANSACTION], sink) for row in cluster.store.rows_of(sink, epoch.get(sink, ())))
        check_cut(committed, whole)


def never_mixes(played):
    """The audit finds no transaction that met old and new, none that went astray, and no switch without effect.

    The trace is serializable if there is one change alone, or if each goes through the whole dataflow: several that do
    not, as fixes of an operator that is paused, may be ordered one way here and another there.
    """
    if has_grown(played) or not is_reshaped(played):  # else that of the resumed run is judged
        _never_mixes(played, played.cluster.records())


def passes_the_audit_of_a_resumed_run(played):
    """So does the trace of the driver that has resumed the run, which lacks what the dead one had in memory."""
    cluster = played.cluster
    if "the driver was killed" in cluster.recoveries and not has_grown(played):
        flow = flow_of(cluster.graph, True, cluster.state == "finished", cluster.store.before)
        _never_mixes(played, [flow, *cluster.store.resumed()])


def _never_mixes(played, records):
    if not any(isinstance(record, (Ran, RanMany, Updated)) for record in records):
        return  # it ended before the first tuple, and an empty trace proves nothing
    verdict = judge(records)
    assert not verdict.mixed, f"mixed: {verdict.mixed[:3]}"
    assert not verdict.stale, f"switched in name only: {verdict.stale[:3]}"
    assert not verdict.lost, f"lost: {verdict.lost[:3]}"
    assert not verdict.doubled, f"doubled: {verdict.doubled[:3]}"
    through_all = {wish.scheduler for wish in played.changes.values()} <= WHOLE and not played.scenario.stops
    # What is old since a canary was taken back comes behind what was new in it, and the audit takes it for older.
    through_all = through_all and not any(one.is_withdrawn for one in in_effect(played.cluster.journal))
    if len(played.changes) == 1 or through_all:
        assert verdict.serializable, f"not serializable: {verdict.cycle}"
    ahead = {frozenset((decided.change, decided.before)) for decided in played.cluster.journal if decided.before}
    assert not any(pair <= set(verdict.cycle) for pair in ahead), f"ordered both ways: {verdict.cycle}"


WHOLE = {"epoch", "multiversion", "minibatch", "restart", "cut"}


def shows_one_version(played):
    """Without the audit: all rows of a source tuple were made wholly before or wholly after each change."""
    sides, ranks = defaultdict(set), ranks_of(played)
    withdrawn = {played.changes[one.change].version for one in in_effect(played.cluster.journal) if one.is_withdrawn}
    for sink in played.scenario.graph.sinks:
        for row in played.cluster.rows(sink):
            for stamp in stamps(row["trail"]):
                assert stamp.version in ranks, f"{row['trail']} shows {stamp.version}, whose change has changed nothing"
                for number, rank in ranks.items():
                    if number and number not in withdrawn and stamp.operator in wish_of(played, number).targets:
                        sides[row[TRANSACTION], number].add(ranks[stamp.version] >= rank)
    assert not [key for key, seen in sides.items() if len(seen) > 1], "rows of one transaction show two versions"


def shows_what_it_ran(played):
    """The version that a row shows of an operator is one by which, as the trace says, the operator met its tuple."""
    if is_reshaped(played):
        return  # a worker's trace goes on with the version that another one had reached
    version_of = {change: wish.version for change, wish in played.changes.items()}
    now, ran, by_row = defaultdict(int), defaultdict(set), set()
    for record in played.cluster.records():
        worker = getattr(record, "operator", ""), getattr(record, "worker", 0)
        if isinstance(record, Updated):
            now[worker] = version_of[record.id]
            by_row.update([worker] if record.steps else [])
        elif isinstance(record, (Ran, RanMany)):
            version = version_of.get(record.function, 0) if worker in by_row else now[worker]
            for transaction in transactions_of(record):
                ran[transaction, record.operator].add(version)
    for sink in played.scenario.graph.sinks:
        for row in played.cluster.rows(sink):
            for stamp in stamps(row["trail"]):
                assert stamp.version in ran[row[TRANSACTION], stamp.operator], f"{row['trail']}: the trace knows better"


def really_switches(played):
    """Of a change that is done, each target worker runs the new function, unless it had ended before."""
    cluster, may_run = played.cluster, defaultdict(lambda: {0})
    for decided in in_effect(cluster.journal):
        wish, outcome = played.changes[decided.change], cluster.outcomes.get(decided.change)
        is_done = outcome is not None and outcome.outcome == "done"
        assert not is_done or {worker.operator for worker in outcome.per_worker} == set(wish.targets), outcome
        for name in wish.targets:
            for instance in cluster.instances(name):
                if is_done and not decided.is_withdrawn and not had_ended(outcome, instance.worker):
                    bad = name == wish.broken and wish.how != "poison"
                    assert not bad, f"{instance.worker} runs a function that cannot be prepared"
                    may_run[instance.worker] = {wish.version}
                else:
                    may_run[instance.worker] = may_run[instance.worker] | {wish.version}
    if cluster.state == "finished":
        for name in played.scenario.flow.changeable:
            for instance in cluster.instances(name):
                version = getattr(instance.function, "version", 0)
                spent = instance.worker in cluster.hosts.spent  # it meets no tuple, by whatever function
                assert spent or version in may_run[instance.worker], (
                    f"{instance.worker} runs version {version}, expected {may_run[instance.worker]}"
                )


def keeps_state(played):
    """Key by key: every tuple counted once, versions in order, and the state transformed once for every change.

    The checksum mixes in the version of each tuple and each transformation at its place, so it tells that the switch
    fell between the tuples that the log says, and so do the checksums that the rows show. (The state of a worker that
    had ended when a checkpoint was taken is not restored, since nobody needs it.)
    """
    if played.cluster.state != "finished":
        return
    scenario, cluster = played.scenario, played.cluster
    shown = defaultdict(set)
    for sink in scenario.graph.sinks:
        for row in cluster.rows(sink):
            for stamp in stamps(row["trail"]):
                shown[stamp.operator, row["customer"]].add((stamp.version, stamp.place, stamp.checksum))
    for name in scenario.flow.keyed:
        logged = defaultdict(Counter)
        for instance in cluster.instances(name):
            for states in instance.state.bins().values():
                for key, state in states.items():
                    logged[key].update(id_ for id_, _ in state["log"])
                    replayed = replay(played, instance, state)
                    assert shown[name, key] <= replayed, f"{name} {key}: {shown[name, key] - replayed}"
        wanted = defaultdict(Counter)
        for row in scenario.expected.at[name]:
            wanted[row["customer"]][row["id"]] += 1
        assert cluster.recoveries or not is_whole(played) or logged.keys() == wanted.keys(), f"{name} lost a key"
        for key, ids in logged.items():
            kept = ids == wanted[key] if is_whole(played) else ids <= wanted[key]
            assert kept, f"{name} did not count each of {key} once: {ids - wanted[key]}, {wanted[key] - ids}"


def keeps_order(played):
    """Tuples that one worker sends to another are processed there in the order in which they left.

    Where two versions run side by side, the trace has the old one's tuples in front of the new one's, so that it tells
    nothing of this.
    """
    if any(wish.scheduler in ("multiversion", "cut") for wish in played.changes.values()) or is_reshaped(played):
        return
    ran = defaultdict(list)
    for record in played.cluster.records():
        if isinstance(record, (Ran, RanMany)):
            ran[record.operator, record.worker].extend(transactions_of(record))
    graph = played.scenario.graph
    for edge in graph.edges:
        if len(graph.in_edges(edge.to)) > 1:
            continue
        apart = key_in_order(played, edge.to)
        place = {}
        for index in range(graph.operator(edge.source).workers):
            for position, transaction in enumerate(ran[edge.source, index]):
                place[transaction] = None if transaction in place else (index, position)
        for index in range(graph.operator(edge.to).workers):
            last = defaultdict(int)
            for transaction in ran[edge.to, index]:
                if place.get(transaction) is not None:
                    sender, position = place[transaction]
                    line = sender, apart(transaction)
                    assert position >= last[line], f"{edge.source}[{sender}] -> {edge.to}[{index}] lost its order"
                    last[line] = position


def key_in_order(played, operator):
    """Of a source tuple, what it must be in order with: all others, or those of its key, or none but itself."""
    one = played.scenario.graph.operator(operator)
    if one.awaiting is None or one.awaiting.ordered:
        return lambda transaction: None
    if not one.key:
        return lambda transaction: transaction
    keys = defaultdict(set)
    expected = played.scenario.expected
    for row in (*expected.at[operator], *expected.poison.get(operator, ())):
        keys[transaction_of(played, row)].add(row["customer"])
    return lambda transaction: min(keys[transaction], default=transaction)


def leaves_nothing(played):
    """In the end nothing waits, nothing is blocked, every credit is back where it came from."""
    cluster = played.cluster
    if cluster.state != "finished":
        return
    assert not cluster.controller.on_the_way
    for id_, worker in cluster.workers.items():
        assert worker.ended, f"{id_} has not ended"
        assert not worker._inbox.tuples, f"{id_} has {worker._inbox.tuples} tuples left"
        assert not worker._held, f"{id_} still holds"
        assert not worker._stalled, f"{id_} is still stalled"
        kept = [str(instance.worker) for instance in worker.instances if instance.prepared]
        hears = cluster.hosts.host_of(id_) not in cluster.hosts.dead  # that a change was aborted at the end
        assert not (kept and hears), f"{kept} still keep what they prepared"
        assert not worker._alignment.blocked, f"{id_} still blocks {worker._alignment.blocked}"
        for channel in worker.outbox._channels.values():
            assert not channel.queue, f"{channel.channel} has frames left"
            assert not channel.outstanding, f"{channel.channel} is owed {channel.outstanding} bytes"


def traces_everything(played):
    """Each operator met each tuple once, says the trace: of what a recovery has undone, nothing is in it."""
    if not is_whole(played):
        return
    scenario, traced = played.scenario, Counter()
    for record in played.cluster.records():
        if isinstance(record, (Ran, RanMany)):
            traced.update((record.operator, transaction) for transaction in transactions_of(record))
    wanted = Counter(
        (name, transaction_of(played, row))
        for place in (scenario.expected.at, scenario.expected.poison)
        for name, rows in place.items()
        for row in rows
    )
    found = Counter({key: count for key, count in traced.items() if key[0] in scenario.expected.at})
    assert found == wanted, f"not in the trace: {wanted - found}; too often: {found - wanted}"


def sets_poison_aside(played):
    """The dead letters of an operator are just the rows that it cannot digest, each once."""
    expected = played.scenario.expected
    for name in played.scenario.letters:
        found = Counter(json.loads(row["tuple"])["id"] for row in played.cluster.rows(name))
        wanted = Counter(row["id"] for row in expected.poison[name])
        assert found == wanted if is_whole(played) else found <= wanted, f"{name}: {found} instead of {wanted}"


def numbers_epochs(played):
    """Epochs are committed in order, each once, and a checkpoint's only behind its record, as it says."""
    store = played.cluster.store
    numbers = [epoch for epoch, _ in store.committed]
    assert numbers == sorted(set(numbers)), f"epochs committed: {numbers}"
    records = [record.epoch for record in store.records]
    assert records == sorted(set(records)), f"records kept: {records}"
    if played.scenario.cluster.get("checkpoints"):
        kept = {record.epoch: record.sinks for record in store.records}
        assert all(kept.get(epoch) == files for epoch, files in store.committed), "committed what no record names"


LAWS = (
    ends_well,
    journals_decisions,
    is_lossless,
    commits_cuts,
    never_mixes,
    passes_the_audit_of_a_resumed_run,
    shows_one_version,
    shows_what_it_ran,
    really_switches,
    keeps_state,
    keeps_order,
    leaves_nothing,
    traces_everything,
    sets_poison_aside,
    numbers_epochs,
)
