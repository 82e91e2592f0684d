"""What a host must know to take part in a run: the same for all hosts, shipped by Spark."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import OperatorError
from fries_nb.spark.keys import HostKeys
from fries_nb.spark.reading import SourcePlan


@dataclass(frozen=True)
class Options:
    """How to run a graph; ``fries_nb.Dataflow.run`` explains them.

    Attributes:
        budget: bytes that may wait in front of one host's workers, all channels together.
        silence_s: a host from which nothing is heard for so long is lost; without a controller for so long, it leaves.
        port: of the controller; 0 for any free one.
    """

    hosts: int
    budget: int
    audit: bool
    chaining: bool
    commit_interval_s: float | None
    silence_s: float
    port: int


@dataclass(frozen=True)
class Region:
    """One run, as its hosts see it.

    Attributes:
        run: the run's id, for names of files.
        incarnation: of the run when the stage was submitted.
        graph: the graph, without functions; see ``with_functions``.
        functions: for each operator that has one, the pickled function.
        sources: for each source what its readers need (see ``reading``).
        sinks: for each sink the directory that it writes to.
        controller: address of the control server.
        keys: the hosts' keys.
        interface: what hosts listen at for each other.
    """

    run: str
    incarnation: int
    graph: Graph
    functions: Mapping[str, bytes] = field(repr=False)
    sources: Mapping[str, SourcePlan]
    sinks: Mapping[str, str]
    controller: str
    keys: HostKeys
    interface: str
    options: Options

    def with_functions(self) -> Graph:
        """The graph with a copy of each function (chains depend on what the functions are).

        Raises:
            OperatorError: a function cannot be unpickled on this host.
        """
        operators = []
        for operator in self.graph.operators:
            payload = self.functions.get(operator.name)
            try:
                operators.append(operator if payload is None else replace(operator, function=pickle.loads(payload)))
            except Exception as error:
                raise OperatorError(
                    f"the function of {operator.name} cannot be unpickled on a host: {type(error).__name__}: {error}; "
                    "is a module of yours missing there?",
                    operator.name,
                ) from error
        return Graph(self.graph.name, tuple(operators), self.graph.edges)
