"""The panel of operators: what runs now at each of them, since when, and how busy it is."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from time import localtime, strftime

from fries_nb.controller.metrics import OperatorMetrics
from fries_nb.notebook.run_moment import RunMoment
from fries_nb.notebook.table_view import TableView
from fries_nb.report.layout import shortened
from fries_nb.running.function_versions import RunningFunction
from fries_nb.topology.running_chains import ChainedOperators

_NAMED = 3
"""Number of operators of a chain that is named with all of them."""
_COLUMNS = (
    "operator", "state", "#busy", "#back-pressured", "#queued", "#tuples/s", "#workers", "function", "version", "since"
)  # fmt: skip
"""What tells where it hurts comes first: a narrow page cuts the last ones."""


class OperatorPanel(TableView):
    """A row for each operator.

    Its function and the change that installed it, the share of time in which its workers are busy and in which a full
    output holds them back, its rate, and its queue. The time of a chain is measured as a whole, so its operators have
    one busy share, which is marked as that of the chain.
    """

    def __init__(self) -> None:
        super().__init__("Operators", _COLUMNS)
        self._shown: tuple[object, ...] = ()

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run, if something has changed."""
        functions, paused, state = moment.run.functions(), moment.run.paused, moment.run.state
        chains = moment.run.chains()
        shown = (functions, tuple(paused), state, moment.flowing, moment.topology.epoch, chains)
        if shown == self._shown:
            return
        chained, metrics, counts = chain_texts(chains), moment.flowing.operators, moment.topology.workers
        self.fill({
            one.name: (
                one.name,
                _state(moment, one.name),
                *_measured(metrics.get(one.name), chained.get(one.name, "")),
                str(len(counts.get(one.name, ())) or one.workers),
                *_running(functions.get(one.name)),
            )
            for one in moment.run.graph.operators
        })  # fmt: skip
        self._shown = shown  # not before, since an update that failed is made again


@lru_cache(maxsize=1024)
def clock_time(at_s: float) -> str:
    """A time of day, here, for seconds since the Unix epoch."""
    return strftime("%H:%M:%S", localtime(at_s))


def share(part: float) -> str:
    """A share of time in percent.

    >>> share(0.0), share(0.004), share(0.62)
    ('0 %', '< 1 %', '62 %')
    """
    return "< 1 %" if 0 < part < 0.005 else f"{100 * part:.0f} %"


def chain_texts(chains: Iterable[ChainedOperators]) -> dict[str, str]:
    """Operator to the chain that it is part of, for those that are; of a long chain the ends are named.

    >>> chain_texts([ChainedOperators(("FM", "MC"), (0, 1), 2)])
    {'FM': 'chain FM → MC', 'MC': 'chain FM → MC'}
    >>> chain_texts([ChainedOperators(("A", "B", "C", "D"), (0,), 2)])["B"]
    'chain A → ... → D'
    """
    texts: dict[str, str] = {}
    for one in chains:
        names = one.operators if len(one.operators) <= _NAMED else (one.operators[0], "...", one.operators[-1])
        texts |= dict.fromkeys(one.operators, f"chain {' → '.join(map(shortened, names))}")
    return texts


def _state(moment: RunMoment, operator: str) -> str:
    """The run's state, unless the operator is paused; of a failed run only one has failed."""
    if not moment.over and operator in moment.run.paused:
        return "paused"
    state = moment.run.state
    return state if state != "failed" or moment.run.failed_at in ("", operator) else "ended"


def _running(function: RunningFunction | None) -> tuple[str, str, str]:
    if function is None:
        return "", "", ""
    return function.function, function.version or "initial", clock_time(function.since_s)


def _measured(metrics: OperatorMetrics | None, chain: str) -> tuple[str, str, str, str]:
    if metrics is None:
        return "", "", "", ""
    busy = f"{share(metrics.busy)} ({chain})" if chain else share(metrics.busy)
    return busy, share(metrics.blocked), f"{metrics.queued:,}", f"{metrics.rate:,.0f}"
