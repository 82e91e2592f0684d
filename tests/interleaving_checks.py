"""What must hold of every interleaving: the checks that the property tests and the sabotage tests share.

None of them looks at how the runtime came to its result: rows are compared with a reference in plain Python, versions
are read off the rows, the trace is judged by the audit.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict

from fries_nb.audit import judge
from fries_nb.errors import FriesError
from fries_nb.messages import TRANSACTION
from fries_nb.testing.functions import converted, counted, stamps, without_versions
from fries_nb.testing.scenarios import draw_scenario, play
from fries_nb.trace import RanMany, Updated

SOAK = int(os.environ.get("FRIES_SOAK", "1"))


def try_seed(seed, laws, **options):
    """Play the scenario of a seed and check it; a failure names the seed.

    To replay one: `from interleaving_checks import *; try_seed(seed, LAWS)`, in tests/.
    """
    scenario = draw_scenario(seed, **options)
    try:
        played = play(scenario)
        for law in laws:
            law(played)
    except (AssertionError, FriesError) as error:
        raise AssertionError(f"seed {seed}: {error}\n(replay: try_seed({seed}, LAWS)) {scenario}") from error
    return played


def caught(seeds, laws=None, attempt=None):
    """The first of these seeds for which the checks fail, ``None`` if they hold for all."""
    for seed in seeds:
        try:
            (attempt or (lambda seed: try_seed(seed, laws or LAWS)))(seed)
        except (AssertionError, FriesError):
            return seed
    return None


# ---- the laws


def ends_well(played):
    """The run came to the end that was asked for, and every change to one outcome (twice would have raised)."""
    cluster, ending = played.cluster, played.scenario.ending
    legal = {"finished", *(["stopped"] if ending == "stop" else [])}
    if any(wish.how == "poison" for wish in played.changes.values()):
        legal.add("failed")
    assert cluster.state in legal, f"{cluster.state}: {cluster.error} {cluster.details}"
    assert set(cluster.outcomes) == set(played.changes)
    for change, outcome in cluster.outcomes.items():
        assert bool(outcome.error) != (outcome.outcome == "done"), outcome
        if cluster.state == "finished" and not played.changes[change].how and outcome.outcome != "done":
            assert "ended" in outcome.error or "finished" in outcome.error, outcome


def journals_decisions(played):
    """A change that was decided is in the journal, once; one that was aborted is not."""
    journaled = Counter(decided.change for decided in played.cluster.journal)
    outcomes = played.cluster.outcomes
    assert journaled == Counter(change for change, outcome in outcomes.items() if outcome.outcome != "aborted")


def is_lossless(played):
    """What came out is what the reference says, path by path; of a run cut short, what it says of a part of it."""
    scenario, cluster = played.scenario, played.cluster
    expected = scenario.expected
    for sink in scenario.graph.sinks:
        found = Counter((row["id"], without_versions(row["trail"])) for row in cluster.rows(sink))
        wanted = Counter((row["id"], row["trail"]) for row in expected.at[sink])
        if _whole(played):
            assert found == wanted, f"{sink} lacks {wanted - found}, has too much {found - wanted}"
        else:
            assert found <= wanted, f"{sink} has too much {found - wanted}"


def commits_cuts(played):
    """Each part is committed at most once; each epoch completes a consistent cut of the sources.

    A cut holds, of every source worker, all that its first so many tuples led to and nothing of a later one. (The
    first tuples that lead to nothing, and so to no row, are in it as well.)
    """
    cluster = played.cluster
    parts = Counter((sink, part) for epoch in cluster.epochs for sink, files in epoch.items() for part in files)
    assert not [part for part, count in parts.items() if count > 1], "a part was committed twice"
    if cluster.state == "finished":
        closed = {(id_.operator, part) for id_, port in cluster.ports.items() for part in port.parts}
        assert set(parts) == closed, "a part was never committed"
    whole, committed = _rows_by_transaction(played), Counter()
    for epoch in cluster.epochs:
        for sink, files in epoch.items():
            committed.update((row[TRANSACTION], sink) for row in cluster.rows_of(sink, files))
        _check_cut(committed, whole)


def never_mixes(played):
    """The audit finds no transaction that met old and new; with one change alone, the trace is serializable."""
    verdict = judge(played.cluster.records())
    assert not verdict.mixed, f"mixed: {verdict.mixed[:3]}"
    if len(played.changes) == 1:
        assert verdict.serializable, f"not serializable: {verdict.cycle}"


def shows_one_version(played):
    """Without the audit: all rows of a source tuple were made wholly before or wholly after each change."""
    sides = defaultdict(set)
    unchanged = {number: _unchanged(played, number) for number, _ in _numbered(played)}
    for sink in played.scenario.graph.sinks:
        for row in played.cluster.rows(sink):
            for stamp in stamps(row["trail"]):
                for number, wish in _numbered(played):
                    if stamp.operator in wish.targets and not unchanged[number]:
                        sides[row[TRANSACTION], number].add(stamp.version >= number)
                    assert stamp.version != number or not unchanged[number], (
                        f"{row['trail']} shows version {number}, whose change has changed nothing"
                    )
    assert not [key for key, seen in sides.items() if len(seen) > 1], "rows of one transaction show two versions"


def shows_what_it_ran(played):
    """The version that a row shows of an operator is one by which, as the trace says, the operator met its tuple."""
    version_of = {change: wish.version for change, wish in played.changes.items()}
    now, ran = defaultdict(int), defaultdict(set)
    for record in played.cluster.records():
        if isinstance(record, Updated):
            now[record.operator, record.worker] = version_of[record.id]
        else:
            for transaction in _transactions(record):
                ran[transaction, record.operator].add(now[record.operator, record.worker])
    for sink in played.scenario.graph.sinks:
        for row in played.cluster.rows(sink):
            for stamp in stamps(row["trail"]):
                assert stamp.version in ran[row[TRANSACTION], stamp.operator], f"{row['trail']}: the trace knows better"


def really_switches(played):
    """Of a change that is done, each target worker runs the new function, unless it had ended before."""
    versions = defaultdict(int)
    for change, wish in played.changes.items():
        outcome = played.cluster.outcomes[change]
        if outcome.outcome != "done":
            continue
        assert {worker.operator for worker in outcome.per_worker} == set(wish.targets), outcome
        for worker, how in outcome.per_worker.items():
            if not how.ended:
                bad = worker.operator == wish.broken and wish.how != "poison"
                assert not bad, f"{worker} runs a function that cannot be prepared"
                versions[worker] = wish.version
    if played.cluster.state == "finished":
        for name in played.scenario.flow.changeable:
            for instance in played.cluster.instances(name):
                assert instance.function.version == versions[instance.worker], (
                    f"{instance.worker} runs version {instance.function.version}, expected {versions[instance.worker]}"
                )


def keeps_state(played):
    """Key by key: every tuple counted once, versions in order, and the state transformed once for every change.

    The checksum mixes in the version of each tuple and each transformation at its place, so it tells that the switch
    fell between the tuples that the log says, and so do the checksums that the rows show.
    """
    if played.cluster.state != "finished":
        return
    scenario, cluster = played.scenario, played.cluster
    expected = scenario.expected
    shown = defaultdict(set)
    for sink in scenario.graph.sinks:
        for row in cluster.rows(sink):
            for stamp in stamps(row["trail"]):
                shown[stamp.operator, row["customer"]].add((stamp.version, stamp.place, stamp.checksum))
    for name in scenario.flow.keyed:
        logged = Counter()
        for instance in cluster.instances(name):
            for states in instance.state.bins().values():
                for key, state in states.items():
                    logged.update((id_, key) for id_, _ in state["log"])
                    replayed = _replay(played, instance, state)
                    assert shown[name, key] <= replayed, f"{name} {key}: {shown[name, key] - replayed}"
        wanted = Counter((row["id"], row["customer"]) for row in expected.at[name])
        assert logged == wanted if _whole(played) else logged <= wanted, f"{name} did not count each once"


def keeps_order(played):
    """Tuples that one worker sends to another are processed there in the order in which they left."""
    ran = defaultdict(list)
    for record in played.cluster.records():
        if not isinstance(record, Updated):
            ran[record.operator, record.worker].extend(_transactions(record))
    graph = played.scenario.graph
    for edge in graph.edges:
        if len(graph.in_edges(edge.to)) > 1:
            continue
        place = {}
        for index in range(graph.operator(edge.source).workers):
            for position, transaction in enumerate(ran[edge.source, index]):
                place[transaction] = None if transaction in place else (index, position)
        for index in range(graph.operator(edge.to).workers):
            last = defaultdict(int)
            for transaction in ran[edge.to, index]:
                if place.get(transaction) is not None:
                    sender, position = place[transaction]
                    assert position >= last[sender], f"{edge.source}[{sender}] -> {edge.to}[{index}] lost its order"
                    last[sender] = position


def leaves_nothing(played):
    """In the end nothing waits, nothing is blocked, every credit is back where it came from."""
    cluster = played.cluster
    if cluster.state != "finished":
        return
    assert not cluster.controller.on_the_way
    for id_, worker in cluster.workers.items():
        assert worker.ended, f"{id_} has not ended"
        assert not worker._inbox.tuples, f"{id_} has {worker._inbox.tuples} tuples left"
        assert not worker._alignment.blocked, f"{id_} still blocks {worker._alignment.blocked}"
        for channel in worker._outbox._channels.values():
            assert not channel.queue, f"{channel.channel} has frames left"
            assert not channel.outstanding, f"{channel.channel} is owed {channel.outstanding} bytes"


LAWS = (
    ends_well,
    journals_decisions,
    is_lossless,
    commits_cuts,
    never_mixes,
    shows_one_version,
    shows_what_it_ran,
    really_switches,
    keeps_state,
    keeps_order,
    leaves_nothing,
)


# ---- what they are made of


def _transactions(record):
    return record.transactions if isinstance(record, RanMany) else (record.transaction,)


def _whole(played):
    return played.cluster.state == "finished" and played.scenario.ending == "end"


def _numbered(played):
    return [(wish.version, wish) for wish in played.changes.values()]


def _unchanged(played, number):
    """Whether the change of this number is known to have switched nobody."""
    [change] = [change for change, wish in played.changes.items() if wish.version == number]
    outcome = played.cluster.outcomes[change]
    never_reached = outcome.outcome == "failed" and "ended before the change reached" in outcome.error
    return outcome.outcome == "aborted" or never_reached


def _rows_by_transaction(played):
    """(transaction, sink) -> how many rows a whole run has there."""
    scenario = played.scenario
    expected = scenario.expected
    number_of = {name: number for number, name in enumerate(scenario.graph.sources)}
    rows = Counter()
    for sink in scenario.graph.sinks:
        for row in expected.at[sink]:
            source, _, rest = row["id"].partition(":")
            position = int(rest.replace("/", ".").split(".")[0])
            workers = scenario.graph.operator(source).workers
            worker = number_of[source] * 64 + position % workers
            rows[(worker << 48) + position // workers, sink] += 1
    return rows


def _check_cut(committed, whole):
    last = defaultdict(lambda: -1)
    for transaction, _ in committed:
        last[transaction >> 48] = max(last[transaction >> 48], transaction)
    wanted = {key: count for key, count in whole.items() if key[0] <= last[key[0] >> 48]}
    assert wanted == dict(committed), "an epoch is no consistent cut of the sources"


def _replay(played, instance, state):
    """(version, count, checksum) after each tuple of a key, by the log; checks the checksum in the end."""
    name, worker = instance.worker.operator, instance.worker
    switches = [
        wish
        for change, wish in played.changes.items()
        if (how := played.cluster.outcomes[change].per_worker.get(worker)) is not None
        and not how.ended
        and wish.transforms
        and wish.broken != name
    ]
    checksum, version, seen = 0, None, set()
    for count, (_, now) in enumerate(state["log"], start=1):
        checksum = _convert(checksum, version, now, switches)
        assert version is None or version <= now, f"{worker} went back from version {version} to {now}"
        version, checksum = now, counted(checksum, now)
        seen.add((version, count, checksum))
    checksum = _convert(checksum, version, instance.function.version, switches)
    assert checksum == state["checksum"], f"{name}: a state was not transformed as it should have been"
    return seen


def _convert(checksum, before, after, switches):
    """The checksum after all transformations between two versions, before which the key was there already."""
    for wish in switches:
        if before is not None and before < wish.version <= after:
            checksum = converted(checksum, wish.version)
    return checksum
