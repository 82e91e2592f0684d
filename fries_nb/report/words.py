"""Explanations for readers of a report: schedulers, and the columns of tables."""

from __future__ import annotations

from fries_nb.report.markup import Html, defined, joined, listed, tag

SCHEDULERS = {
    "fries": "The message to switch overtakes all queued data and goes to the first operators of the smallest part "
    "of the dataflow that must change together; from there a marker travels along with the data. So the change takes "
    "milliseconds however long the queues are, and no tuple is processed by both old and new operators.",
    "epoch": "A marker enters at the sources and travels with the data through the whole dataflow; each operator "
    "switches when the marker reaches it. This is consistent as well, but the marker waits in every queue behind "
    "earlier data, so the change takes as long as the queues.",
    "naive": "Each operator that changes receives the message directly, past the queues, and switches at once. That is "
    "fast, but a tuple between two of them may be processed by the old version of one and the new version of the "
    "other, and its result is correct for neither.",
    "multiversion": "Each tuple carries a tag from the sources on: old or new. From the change on the operators run "
    "both versions side by side, by the tag, until the last old tuple has left. This is consistent without waiting for "
    "a marker; the cost is two configurations in memory at once.",
    "restart": "A checkpoint is taken, the whole job is ended, and it is restarted from the checkpoint with the new "
    "operators. This is consistent, but no data flows meanwhile.",
    "minibatch": "The sources hold until all tuples that they have sent have left the dataflow; then the operators "
    "switch and the sources continue. This is consistent; the cost is an empty dataflow.",
}
JUDGE = (
    "The audit reads a trace of all operations on all tuples, and checks whether processing whole tuples and whole "
    "changes one after the other, in some order, would have had the same result."
)
TERMS = {
    "delay": "Time from the request to the moment when the last worker has switched.",
    "prepare": "Part of the delay: the new functions are shipped and opened while the old ones keep working.",
    "commit": "Part of the delay: from the first message to the switch of the last worker.",
    "old tuples": "Tuples that the changed operators still processed with their old functions meanwhile.",
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
