"""A layered layout (Sugiyama), for machines without Graphviz and for graphs too large for it.

An operator is placed in the layer after all of its inputs; an edge that spans several layers gets a dummy node in each.
Nodes within layers are ordered by the barycentre of their neighbours, in four sweeps.

>>> placed = in_layers([80, 80, 80], 40, [(0, 1), (1, 2), (0, 2)], rightward=True)
>>> [round(box.x) for box in placed.boxes], len(placed.ways[2].points)
([0, 128, 256], 7)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from fries_nb.report.edge_paths import Box, EdgePath, Placed, Spot

_GAP = 48.0  # between layers
_SPACE = 22.0  # between neighbours of a layer
_LANE = 12.0  # width of a dummy node
_ARROW = 8.0


def in_layers(
    sizes: Sequence[float], height: float, edges: Sequence[tuple[int, int]], rightward: bool, label: float = 0.0
) -> Placed:
    """Place boxes on layers; the edges must be acyclic.

    Args:
        sizes: width of each box in pixels.
        height: height of all boxes in pixels.
        edges: pairs of indices of boxes.
        rightward: whether layers follow each other to the right, or else downward.
        label: width in pixels that is reserved for labels on edges; 0 for none.
    """
    depth = _depths(len(sizes), edges)
    chains = _chains(depth, edges)
    links = [link for chain in chains for link in pairwise(chain)]
    layers = _ordered(depth, links)
    # Sizes along the streams and across them; a dummy node has no length.
    along = [(size if rightward else height) for size in sizes] + [0.0] * (len(depth) - len(sizes))
    across = [(height if rightward else size) for size in sizes] + [_LANE] * (len(depth) - len(sizes))
    gap, space = (max(_GAP, label + 14), _SPACE) if rightward else (_GAP, _SPACE + label * 0.6)
    centres, length, breadth = _centres(layers, along, across, gap, space)

    def spot(along_it: float, across_it: float) -> Spot:
        return (along_it, across_it) if rightward else (across_it, along_it)

    boxes = []
    for place, size in enumerate(sizes):
        x, y = spot(*centres[place])
        boxes.append(Box(x - size / 2, y - height / 2, size, height))
    ways = []
    for chain in chains:
        stops = [(centres[place][0] + along[place] / 2, centres[place][1]) for place in chain[:-1]]
        end = (centres[chain[-1]][0] - along[chain[-1]] / 2, centres[chain[-1]][1])
        curve = _curve([*stops, (end[0] - _ARROW, end[1])])
        way = EdgePath(tuple(spot(*point) for point in curve), spot(*end))
        beside = (way.middle[0] + label / 2, way.middle[1])
        ways.append(way if rightward or not label else EdgePath(way.points, way.tip, beside))
    width, tall = spot(length, breadth + (0.0 if rightward else label))
    return Placed(width, tall, tuple(boxes), tuple(ways))


def _depths(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    depth, waiting = [0] * count, [0] * count
    after: list[list[int]] = [[] for _ in range(count)]
    for tail, head in edges:
        after[tail].append(head)
        waiting[head] += 1
    ready = [place for place in range(count) if not waiting[place]]
    for tail in ready:
        for head in after[tail]:
            depth[head] = max(depth[head], depth[tail] + 1)
            waiting[head] -= 1
            if not waiting[head]:
                ready.append(head)
    return depth


def _chains(depth: list[int], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Each edge as a path of nodes one layer apart; adds the dummy nodes to ``depth``."""
    chains = []
    for tail, head in edges:
        passing = list(range(len(depth), len(depth) + depth[head] - depth[tail] - 1))
        depth.extend(range(depth[tail] + 1, depth[head]))
        chains.append([tail, *passing, head])
    return chains


def _ordered(depth: Sequence[int], links: Sequence[tuple[int, int]]) -> list[list[int]]:
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for place, level in enumerate(depth):
        layers[level].append(place)
    before: list[list[int]] = [[] for _ in depth]
    after: list[list[int]] = [[] for _ in depth]
    for tail, head in links:
        before[head].append(tail)
        after[tail].append(head)
    rank = {place: float(index) for layer in layers for index, place in enumerate(layer)}
    for sweep in range(4):
        neighbours, turn = (before, layers) if sweep % 2 == 0 else (after, layers[::-1])
        for layer in turn:
            middle = {
                place: sum(rank[near] for near in neighbours[place]) / len(neighbours[place])
                if neighbours[place] else rank[place] for place in layer
            }  # fmt: skip
            layer.sort(key=middle.__getitem__)
            rank.update((place, float(index)) for index, place in enumerate(layer))
    return layers


def _centres(
    layers: Sequence[Sequence[int]], along: Sequence[float], across: Sequence[float], gap: float, space: float
) -> tuple[dict[int, Spot], float, float]:
    """The centre of each node as (along, across), and the size of the picture."""
    breadths = [sum(across[place] + space for place in layer) - space for layer in layers]
    breadth, start = max(breadths, default=0.0), 0.0
    centres = {}
    for layer, own in zip(layers, breadths, strict=True):
        length = max(along[place] for place in layer)
        side = (breadth - own) / 2
        for place in layer:
            centres[place] = (start + length / 2, side + across[place] / 2)
            side += across[place] + space
        start += length + gap
    return centres, max(0.0, start - gap), breadth


def _curve(stops: Sequence[Spot]) -> list[Spot]:
    """A smooth path through these points that leaves and enters along the direction of the layers."""
    points = [stops[0]]
    for (a, b), (c, d) in pairwise(stops):
        points += [((a + c) / 2, b), ((a + c) / 2, d), (c, d)]
    return points
