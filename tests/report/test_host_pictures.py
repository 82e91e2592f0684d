"""The picture of hosts and bins: every host and every bin is there, in words as well as in colours."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.controller.topology_status import HostCount, TopologyStatus
from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
from fries_nb.protocol.partitioning import BINS, RoutingTable
from fries_nb.protocol.topology import Topology
from fries_nb.report import run_page
from fries_nb.report.host_rows import before_now, hosts_svg, phrase_of, read_aloud, runs_of
from fries_nb.report.markup import BLUE
from fries_nb.running.results import Place, Story
from fries_nb.telemetry.metrics import MetricsSnapshot, OperatorMetrics


def keyed(workers: int, hosts: int) -> TopologyStatus:
    """A source and a keyed operator on so many hosts."""
    operators = Operator("S"), Operator("K", key=("k",), workers=workers)
    graph = Graph("pair", operators, (Edge("S", "K", Partitioning.HASH, ("k",)),))
    return TopologyStatus.of(Topology.dealt(graph, hosts), tuple(range(hosts)))


@given(parts=st.lists(st.integers(0, 3), min_size=16, max_size=16))
def test_each_bin_is_in_one_run_of_its_owner(parts: list[int]) -> None:
    """In order, without gaps, whatever the table."""
    owners = [owner for owner in parts for _ in range(BINS // 16)]
    status = replace(keyed(4, 2), tables={"K": RoutingTable.of(owners)})
    runs = runs_of(status, "K")
    assert [owner for first, behind, owner, _ in runs for _ in range(first, behind)] == owners
    assert all(host == status.workers["K"][owner] for _, _, owner, host in runs)
    widths = re.findall(r'class="bins h\d" x="[\d.]+" y="[\d.]+" width="([\d.]+)"', hosts_svg(status, {}))
    assert len(widths) == len(runs)


@pytest.mark.parametrize("width", [360.0, 760.0])
def test_a_host_has_a_row_with_its_workers_and_its_rate(width: float) -> None:
    """Its number is also on its bins, so colours are not needed; the whole is read aloud."""
    svg = hosts_svg(keyed(3, 3), {0: 1_200.0, 1: 7.0, 2: 0.0}, width=width)
    for words in ("host 0", "host 1", "host 2", "2 workers", "1 worker", "1,200 tuples/s", "7 tuples/s"):
        assert f">{words}<" in svg
    assert re.findall(r'class="in[^"]*"[^>]*>(\d)<', svg) == ["0", "1", "2"]
    assert "341 at K[2] on host 2" in svg
    assert f".h0 {{ fill: {BLUE} }}" in svg


def test_nine_hosts_and_more_have_pale_colours_and_the_rest_is_counted() -> None:
    """Eight colours can be told apart, and a panel has an end."""
    svg = hosts_svg(keyed(13, 13), {})
    assert 'class="bins h0 again"' in svg
    assert "1 more host<" in svg


def test_a_rescale_under_way_is_told_with_what_is_left() -> None:
    """Hosts that join are in the picture from when they have workers."""
    status = replace(keyed(2, 2), hosts=(0,), wanted=2, phase="balancing", bins_left=300, moved_bytes=3 << 20)
    assert phrase_of(status) == "from 1 to 2 hosts: balancing, 300 bins left, 3.0 MiB moved"
    assert status.hosts_now == (0, 1)
    assert "host 1: 1 worker" in read_aloud(status, {})


def test_strips_of_before_are_above_those_of_now() -> None:
    """With the number of hosts."""
    topologies = [HostCount.of(*one) for one in ((100.0, keyed(1, 1)), (104.2, keyed(2, 2)), (150.0, keyed(1, 1)))]
    before = before_now(topologies)
    assert [label for label, _ in before] == ["1 host", "2 hosts"]
    svg = hosts_svg(topologies[-1].topology, {}, before)
    assert svg.index(">1 host<") < svg.index(">2 hosts<") < svg.index(">now<")
    assert before_now([]) == []


def test_the_report_has_the_hosts_of_before_and_now() -> None:
    """Also the caption says which strip is which."""
    topologies = [HostCount.of(*one) for one in ((100.0, keyed(1, 1)), (104.2, keyed(2, 2)))]
    status = topologies[-1].topology
    graph = Graph("one", (Operator("S"),), ())
    snapshot = MetricsSnapshot({"S": OperatorMetrics()})
    story = Story(
        graph, Place(1.0, 1, 1), "finished", "", "", (), (), (), snapshot, None, topology=status, topologies=topologies
    )
    page = run_page(story)
    assert "<h2>Hosts</h2>" in page
    assert ">1 host<" in page
    assert "The strips above" in page
    assert "The strips above" not in run_page(replace(story, topologies=()))
    assert "<h2>Hosts</h2>" not in run_page(replace(story, topology=None))
