"""What the checks of interleavings are made of: what a run that was played says of versions and source tuples."""

from __future__ import annotations

from collections import Counter, defaultdict

from fries_nb.protocol.checkpoints import in_effect
from fries_nb.protocol.trace import ROW_BITS, RanMany
from fries_nb.simulation.readers import transaction_of_row
from fries_nb.simulation.stamp_functions import converted, counted


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
    checksum, version, seen = 0, None, set()
    for count, (_, now) in enumerate(state["log"], start=1):
        checksum = _convert(checksum, ranks, version, now, switches)
        assert version is None or ranks[version] <= ranks[now], f"{name} went back from version {version} to {now}"
        version, checksum = now, counted(checksum, now)
        seen.add((version, count, checksum))
    checksum = _convert(checksum, ranks, version, instance.function.version, switches)
    assert checksum == state["checksum"], f"{name}: a state was not transformed as it should have been"
    return seen


def _convert(checksum, ranks, before, after, switches):
    """The checksum after all transformations between two versions, before which the key was there already."""
    for wish in switches:
        if before is not None and ranks[before] < ranks[wish.version] <= ranks[after]:
            checksum = converted(checksum, wish.version)
    return checksum
