"""The protocol of claims over a simulated store, in every order of its steps.

A store keeps files and lists them. A list takes time: what is written or deleted while it goes on may be in it or not,
as on an object store that lists page by page. Between any two steps every contender may stop for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain, combinations
from typing import NamedTuple

from fries_nb.storage.claims import Claim, ClaimVerdict, Listing, Step, contend

Seen = frozenset[Claim | int]  # claims, and the numbers of attempts that have begun


class Contender(NamedTuple):
    """One who wants the place: what its lists showed so far (a step without one showed nothing), and whether it died.

    ``certain`` and ``possible`` are what the list will show and may show that is going on.
    """

    own: Claim
    seen: tuple[Seen, ...] = ()
    listing: bool = False
    certain: Seen = frozenset()
    possible: Seen = frozenset()
    dead: bool = False

    def next(self, patience: int) -> Step | ClaimVerdict:
        """What it wants to do now, or how it ended."""
        return _next(self.own, self.seen, patience)


@cache
def _next(own: Claim, shown: tuple[Seen, ...], patience: int) -> Step | ClaimVerdict:
    steps = contend(own, patience)
    step = next(steps)
    try:
        for seen in shown:
            claims = frozenset(one for one in seen if isinstance(one, Claim))
            step = steps.send(Listing(claims, frozenset(one for one in seen if isinstance(one, int))))
    except StopIteration as ended:
        verdict: ClaimVerdict = ended.value
        return verdict
    return step


class World(NamedTuple):
    """What lies in the store, and all contenders."""

    store: Seen
    contenders: tuple[Contender, ...]


def _written(world: World, what: Claim | int) -> World:
    contenders = tuple(each._replace(possible=each.possible | {what}) for each in world.contenders)
    return World(world.store | {what}, contenders)


def _deleted(world: World, what: Claim) -> World:
    contenders = tuple(
        each._replace(certain=each.certain - {what}, possible=each.possible | {what}) if what in each.certain else each
        for each in world.contenders
    )
    return World(world.store - {what}, contenders)


def _changed(world: World, index: int, contender: Contender) -> World:
    return world._replace(contenders=(*world.contenders[:index], contender, *world.contenders[index + 1 :]))


def _outcomes(world: World, index: int, patience: int) -> Iterator[World]:
    """What can follow if this contender takes its next step."""
    one = world.contenders[index]
    step = one.next(patience)
    if isinstance(step, ClaimVerdict):
        if step.rival is None and one.own.number not in world.store:
            yield _written(world, one.own.number)  # it begins
        return
    if step is Step.LIST and not one.listing:
        yield _changed(world, index, one._replace(listing=True, certain=world.store, possible=frozenset()))
        return
    if step is Step.LIST:
        extra = [
            frozenset(some) for some in chain(*(combinations(one.possible, n) for n in range(len(one.possible) + 1)))
        ]
        for some in extra:
            yield _changed(world, index, Contender(one.own, (*one.seen, one.certain | some)))
        return
    after = _changed(world, index, Contender(one.own, (*one.seen, frozenset())))
    if step is Step.WRITE:
        after = _written(after, one.own)
    elif step is Step.WITHDRAW:
        after = _deleted(after, one.own)
    yield after


def explore(
    claims: list[Claim], patience: int, deaths: int, check: Callable[[World, list[ClaimVerdict | None]], None]
) -> int:
    """Check every world that can come about; returns how many there are.

    ``check`` is given the world and how each contender ended (``None``: it has not); a dead one has not.
    """
    begun = World(frozenset(), tuple(map(Contender, claims)))
    known, ahead = {begun}, [begun]
    while ahead:
        world = ahead.pop()
        ends = [each.next(patience) for each in world.contenders]
        check(world, [end if isinstance(end, ClaimVerdict) else None for end in ends])
        for index, each in enumerate(world.contenders):
            if each.dead:
                continue
            after = list(_outcomes(world, index, patience))
            if sum(one.dead for one in world.contenders) < deaths:
                after.append(_changed(world, index, each._replace(dead=True)))
            for one in after:
                if one not in known:
                    known.add(one)
                    ahead.append(one)
    return len(known)
