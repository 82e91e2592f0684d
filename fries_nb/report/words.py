"""Explanations for readers of a report: schedulers, and the columns of tables."""

from __future__ import annotations

from fries_nb.report.markup import Html, defined, joined, listed, tag

SCHEDULERS = {
    "fries": "The message to switch goes past all waiting data, straight to the first operators of the smallest part "
    "of the dataflow that must change together; from there a marker travels along with the data. So the change takes "
    "milliseconds however long the queues are, and no tuple meets both the old and the new operators.",
    "epoch": "A marker enters at the sources and travels with the data through the whole dataflow; each operator "
    "switches when the marker reaches it. No tuple meets both versions here either, but the marker waits in every "
    "queue behind the data that came before it, so the change takes as long as the queues are.",
    "naive": "Each operator that changes is told directly, past the queues, and switches at once. That is fast, but a "
    "tuple on its way between two of them may be processed by the old version of one and the new version of the "
    "other, and its result is right by neither.",
    "multiversion": "Each tuple bears a tag from the sources on: old, or new. From the change on the operators run "
    "both versions side by side, by the tag, until the last old tuple has left. Nothing is mixed and nobody waits for "
    "a marker, at the price of two configurations in memory at once.",
    "restart": "A checkpoint is taken, the whole job is ended, and it is started again from the checkpoint with the "
    "new operators. Nothing is mixed, but for as long as that takes nothing flows.",
    "minibatch": "The sources hold until all that they have sent has left the dataflow; then the operators switch and "
    "the sources go on. Nothing is mixed; the price is a dataflow that runs empty.",
}
JUDGE = (
    "The judge reads a trace of everything that was done to every tuple, and asks whether whole tuples and whole "
    "changes, one after the other in some order, would have come to the same."
)
TERMS = {
    "delay": "Time from the request to the moment when the last worker has switched.",
    "prepare": "Part of the delay: the new functions are shipped and opened while the old ones work on.",
    "commit": "Part of the delay: from the first message to switch to the last worker that has switched.",
    "old tuples": "Tuples that the operators to be changed still processed by their old functions meanwhile.",
    "waiting before": "Tuples that waited in front of the slow operator when the change was requested.",
    "p99": "99 of 100 tuples took no longer than this from the time they were due until they reached the sink: before "
    "the change, and after it when what had queued up is worked off, or when that was waited for long enough.",
}


def schedulers(names: tuple[str, ...]) -> Html:
    """Definitions of these schedulers."""
    return defined((name.capitalize(), SCHEDULERS[name]) for name in names)


def terms(names: tuple[str, ...]) -> Html:
    """Definitions of these column headings."""
    return listed(joined([tag("b", name), f": {TERMS[name]}"]) for name in names)
