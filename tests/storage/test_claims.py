"""Who holds a checkpoint place: at most one, somebody in the end, and what an old holder writes late harms nobody."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain, combinations
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

import pytest
from place_setting import decided, graph, kept, silence
from stopping_files import watch

from fries_nb.errors import CheckpointError, PlaceHeldError
from fries_nb.protocol.checkpoints import Checkpoint, Restoration
from fries_nb.storage.checkpoint_store import CheckpointStore
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


# ---- the tests


def test_a_resumed_place_numbers_on_and_the_old_attempt_writes_no_more(tmp_path: Path) -> None:
    """Two drivers at one place: the later one has it; what the earlier one decides would be lost, so it is told."""
    old = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    old.decide(decided("u1"))
    silence()
    new = CheckpointStore.resume(old.path, graph())
    assert (old.incarnation, new.incarnation) == (1, 2)
    by = rf"is held by process {os.getpid()} on {re.escape(socket.gethostname())}, since 2.* UTC \(attempt 2\)"
    with pytest.raises(PlaceHeldError, match=by):
        old.decide(decided("u9"))
    with pytest.raises(PlaceHeldError, match=by):
        old.keep(Checkpoint("r1", 9, 1, {}))
    with pytest.raises(PlaceHeldError, match=by):
        old.keep_source("s", 9)
    with pytest.raises(PlaceHeldError, match=by):
        old.begin(2)
    new.decide(decided("u2"))
    record = kept(new, 1)
    old.tidy()
    for _ in range(2):
        assert CheckpointStore.load(old.path)[1] == Restoration(record, (decided("u1"), decided("u2")))
        assert new.source("s", int) is None
        new.release()
        new = CheckpointStore.resume(old.path, graph())
    assert not old.is_own
    assert new.is_own


def test_a_place_whose_run_goes_on_is_not_taken_over(tmp_path: Path) -> None:
    """It says which process holds it; once the run has ended, the place is free, though its process goes on."""
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    with pytest.raises(PlaceHeldError, match=rf"held by process {os.getpid()} on .* that run is alive, so stop it or"):
        CheckpointStore.resume(place.path, graph())
    place.begin(2)
    with pytest.raises(PlaceHeldError, match=r"\(attempt 2\)"):
        CheckpointStore.resume(place.path, graph())
    place.release()
    assert CheckpointStore.resume(place.path, graph()).incarnation == 3


@pytest.mark.parametrize("remove", [shutil.rmtree, lambda path: path.rename(path.with_name("moved"))])
def test_a_directory_that_goes_away_is_told_at_the_next_write(tmp_path: Path, remove: Callable[[Path], object]) -> None:
    """A write makes it anew, without the dataflow and the attempt: nothing could be resumed from it."""
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    kept(place, 1)
    remove(tmp_path / "c")
    for write in (lambda: place.decide(decided("u1")), lambda: kept(place, 2)):
        with pytest.raises(CheckpointError, match=r"cannot be written: it was deleted or moved while the run used it"):
            write()
    assert not place.is_own


def test_a_newer_attempt_outlives_the_withdrawal_of_an_old_one(tmp_path: Path) -> None:
    """A run that could not start empties its place, unless somebody has taken it over meanwhile."""
    old = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    silence()
    new = CheckpointStore.resume(old.path, graph())
    record = kept(new, 1)
    old.withdraw()
    assert CheckpointStore.load(new.path)[1].checkpoint == record
    new.withdraw()
    assert list((tmp_path / "c").iterdir()) == []
    CheckpointStore.claim(old.path, graph(), "r2")


# ---- the protocol, in every order of its steps


def check_world(world: World, ends: list[ClaimVerdict | None]) -> None:
    """At most one has an attempt; and if all that live have ended, one has it, or will claim the next number."""
    won = [each.own.number for each, end in zip(world.contenders, ends, strict=True) if end == ClaimVerdict()]
    assert len(won) == len(set(won)), world
    alive = [end for each, end in zip(world.contenders, ends, strict=True) if not each.dead]
    if None not in alive and not any(each.dead for each in world.contenders):
        assert won or any(end is not None and end.silent for end in alive), world


@pytest.mark.parametrize(
    ("claims", "patience", "deaths", "worlds"),
    [
        ([Claim(1, "a"), Claim(1, "b")], 3, 2, 700),
        ([Claim(1, "a"), Claim(1, "b"), Claim(1, "c")], 1, 1, 5_000),
        ([Claim(1, "b"), Claim(1, "a"), Claim(2, "c")], 1, 1, 5_000),
    ],
)
def test_in_every_order_of_steps_one_gets_the_place_and_no_second(
    claims: list[Claim], patience: int, deaths: int, worlds: int
) -> None:
    """Writes, lists that take time, withdrawals and deaths, in every order."""
    assert explore(claims, patience, deaths, check_world) > worlds


# ---- real processes


def test_a_directory_that_is_made_while_it_is_listed_is_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Arrow lists, finds nothing there, looks what is there, and finds a directory: by then another process made it."""
    looked: list[str] = []

    def made_meanwhile(operation: str) -> None:
        if operation == "list" and not looked.count(operation):
            looked.append(operation)
            raise FileNotFoundError("Cannot list directory")

    with monkeypatch.context() as patch:
        watch(patch, made_meanwhile)
        place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    assert looked
    assert place.incarnation == 1


ROUNDS = 25


def contend_for(path: str, together: Barrier, said: SimpleQueue[tuple[int, int, int, str]]) -> None:
    """Resume one place after the other, or begin there, each at the same moment as the others; keep what was got."""
    for number in range(ROUNDS):
        begun = CheckpointStore.is_there(f"{path}/{number}")
        together.wait()
        try:
            at = f"{path}/{number}"
            place = CheckpointStore.resume(at, graph()) if begun else CheckpointStore.claim(at, graph(), "r1")
        except CheckpointError as error:
            said.put((number, os.getpid(), 0, str(error)))
        else:
            said.put((number, os.getpid(), place.incarnation, ""))
    together.wait()  # nobody ends while others ask whether it is alive


def test_of_processes_that_resume_at_once_one_gets_the_place(tmp_path: Path) -> None:
    """Three, released at one barrier, again and again; those that did not get it say which process has it.

    Of every third place nothing is there: they begin a run, and the late ones find that it is taken.
    """
    for number in range(ROUNDS):
        if number % 3:
            CheckpointStore.claim(str(tmp_path / str(number)), graph(), "r1").release()
    spawned = multiprocessing.get_context("spawn")
    together, said = spawned.Barrier(3), spawned.SimpleQueue()
    processes = [spawned.Process(target=contend_for, args=(str(tmp_path), together, said)) for _ in range(3)]
    for process in processes:
        process.start()
    answers = [said.get() for _ in range(3 * ROUNDS)]
    for process in processes:
        process.join()
    for number in range(ROUNDS):
        of_round = [answer for answer in answers if answer[0] == number]
        winners = [(pid, incarnation) for _, pid, incarnation, _ in of_round if incarnation]
        assert len(winners) == 1, of_round
        assert winners[0][1] >= (2 if number % 3 else 1)
        for _, pid, incarnation, error in of_round:
            if not incarnation and not ("holds a run of flow" in error and number % 3 == 0):
                named = re.search(r"is held by process (\d+) on .*, since 2.* UTC", error)
                assert named, error
                assert int(named[1]) in {other.pid for other in processes} - {pid}
