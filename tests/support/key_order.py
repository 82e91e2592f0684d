"""The order of the rows of a key, in runs in which keys move from worker to worker."""

from __future__ import annotations

from collections import defaultdict

from fries_nb.dataflow.hidden_columns import TRANSACTION
from fries_nb.protocol.trace import ROW_BITS
from fries_nb.simulation.stamp_functions import stamps


def keeps_the_order_of_keys(played):
    """Rows of one split and key are processed in the split's order by every keyed operator, however far downstream."""
    places = defaultdict(list)
    for row in played.cluster.rows("out"):
        for stamp in stamps(row["trail"]):
            if stamp.place:
                key = stamp.operator, row["customer"], row[TRANSACTION] >> ROW_BITS
                places[key].append((row["number"], stamp.place))
    for key, found in places.items():
        counts = [place for _, place in sorted(found)]
        assert counts == sorted(counts), f"{key} lost its order: {sorted(found)}"
