"""Tokens: what is counted is what states hold, whatever fails, is copied, moves or is lost."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections import Counter

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from progress_observer import unshrunk

from fries_nb.errors import ProtocolError, TokenError
from fries_nb.progress.progress_graph import ChangeBatch, GraphLocation, moving
from fries_nb.progress.tokens import Lost, SavedTokens, TokenBook, TokenKeepers, token_counts

HERE = GraphLocation("W")


def booked(operator="W", trial=False):
    """A book, and the changes that it counts."""
    changes = ChangeBatch()
    return TokenBook(operator, changes, trial), changes


def counted(changes):
    """What a slice hands over, as time to net change."""
    return {change.time: change.delta for change in changes.take()}


class Keeper:
    """A worker with one operator whose state has tokens by name; a failing tuple is undone with its tokens."""

    def __init__(self) -> None:
        self.book, self.changes = booked()
        self.state: dict = {}
        self.counts: Counter = Counter()

    def tuple(self, data) -> None:
        """A few uses of tokens, after which the tuple fails perhaps."""
        before, mark, times = pickle.dumps(self.state), self.book.mark(), dict(self.book.times)
        with self.book.bound():
            for _ in range(data.draw(st.integers(0, 4))):
                self.use(data)
            if data.draw(st.booleans()):
                self.state = None if data.draw(st.booleans()) else self.state  # handles may go before it is undone
                self.book.undo(mark)
                assert self.book.times == times
                self.state = pickle.loads(before)

    def use(self, data) -> None:
        """Something that a function can do."""
        how = data.draw(st.sampled_from(["keep", "downgrade", "drop", "delayed", "lose", "copy"]))
        name, step = data.draw(st.sampled_from("abc")), data.draw(st.integers(0, 2))
        if how == "keep" or name not in self.state:
            self.state[name] = self.book.keep(step, (step, 5))
        elif how == "downgrade":
            self.state[name].downgrade(self.state[name].time + step)
        elif how == "delayed":
            self.state[data.draw(st.sampled_from("abc"))] = self.state[name].delayed(self.state[name].time + step)
        elif how == "drop":
            self.state.pop(name).drop()
        elif how == "lose":
            del self.state[name]
        else:
            self.state = copy.deepcopy(self.state)

    def end_slice(self) -> None:
        """What is lost is given up, and all is counted."""
        held = set(self.state.values())
        for lost in self.book.take_lost():
            assert lost.operator == "W"
        self.counts.update({change.time: change.delta for change in self.changes.take()})
        assert +self.counts == Counter(self.book.time_of(token) for token in held)
        assert min(self.counts.values(), default=0) >= 0

    def move(self) -> None:
        """All bins go to another worker, and their states are unpickled there."""
        state, sent = pickle.dumps(self.state), self.changes
        moved = self.book.release(self.book.saved())
        assert Counter({one.time: one.delta for one in token_counts("W", moved.values())}) == +self.counts
        assert self.book.times == {}
        self.book, self.changes = booked()
        self.book.receive(moved)
        self.changes.extend(sent.take())
        assert not self.changes, "what has arrived counts as before"
        with self.book.bound():
            self.state = pickle.loads(state)


@given(st.data())
def test_what_is_counted_is_what_the_state_holds(data):
    """At the end of every slice: whatever was kept, moved on, dropped, lost or copied, in tuples that fail or not."""
    keeper = Keeper()
    for _ in range(data.draw(st.integers(1, 6))):
        for _ in range(data.draw(st.integers(0, 3))):
            keeper.tuple(data)
        keeper.end_slice()
        if data.draw(st.booleans()):
            keeper.move()


def _undo_first_to_last(book, mark):
    """The oldest entry is undone first."""
    undone = book._journal[mark:]
    del book._journal[mark:]
    for id, time in undone:
        book._write(id, book.times.get(id), time)


def _undo_times_alone(book, mark):
    """Times are undone, not what was counted."""
    while len(book._journal) > mark:
        id, time = book._journal.pop()
        book.times.update({id: time}) if time else book.times.pop(id, None)


def _lost_for_good(book, lost=TokenBook.take_lost):
    """A token counts as lost although its state was unpickled since."""
    book._handles.clear()
    return lost(book)


MUTANTS = {
    "first to last": ("undo", _undo_first_to_last),
    "counts stay": ("undo", _undo_times_alone),
    "nothing undone": ("undo", lambda book, mark: None),
    "lost for good": ("take_lost", _lost_for_good),
    "never lost": ("lost", lambda book, id: None),
    "released by half": ("release", lambda book, bins: {bin: book.saved()[bin] for bin in bins}),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_of_the_book_is_needed(name, monkeypatch):
    """Without any one of them some state holds what is not counted, or the other way round."""
    monkeypatch.setattr(TokenBook, *MUTANTS[name])
    with pytest.raises((AssertionError, TokenError)):
        unshrunk(test_what_is_counted_is_what_the_state_holds)()


# ---- copies


def test_a_copy_of_a_token_is_the_token():
    """A state that is copied, deep-copied or pickled refers to the same one."""
    book, _ = booked()
    with book.bound():
        token = book.keep(3, (0, 4))
        copies = [copy.copy(token), copy.deepcopy({"in": [token]})["in"][0], pickle.loads(pickle.dumps(token))]
    assert all(one is token for one in copies)


def test_a_dropped_token_stays_dropped_in_copies():
    """A state that was pickled before a token was dropped does not bring it back."""
    book, changes = booked()
    with book.bound():
        token = book.keep(3, (0, 4))
        pickled = pickle.dumps(token)
        token.drop()
        del token
        again = pickle.loads(pickled)
        with pytest.raises(TokenError, match="this token was dropped"):
            again.downgrade(5)
    assert (book.take_lost(), counted(changes)) == ([], {})


def test_a_state_with_tokens_has_no_meaning_elsewhere():
    """Unpickled outside of its operator, it is a clear error."""
    book, _ = booked()
    with book.bound():
        pickled = pickle.dumps(book.keep(3, (0, 4)))
    with pytest.raises(TokenError, match="unpickled outside of its operator"):
        pickle.loads(pickled)


def test_a_trial_has_tokens_of_its_own():
    """Functions of a dry run use copies of states, and what they do to tokens is not counted for the real ones."""
    book, changes = booked()
    with book.bound():
        token, spent = book.keep(3, (0, 4)), book.keep(3, (0, 5))
        spent.drop()
        pickled = pickle.dumps([token, spent])
    counted(changes)
    trial, _ = booked(trial=True)
    with trial.bound():
        copied, gone = pickle.loads(pickled)
        copied.downgrade(9)
        later = copied.delayed(10)
        assert later._id not in book.times
        copied.drop()
        assert pickle.loads(pickle.dumps(copied)) is copied
        with pytest.raises(TokenError, match="this token was dropped"):
            gone.drop()
    assert (token.time, counted(changes), trial.has(later)) == (4, {}, True)


# ---- bins that move


def test_a_bin_that_moves_takes_its_numbers_along():
    """Tokens that are kept after it differ from those before; the handles of the old worker are of no use."""
    one, changes = booked()
    with one.bound():
        first, other = one.keep(3, (0, 4)), one.keep(8, (0, 6))
    assert counted(changes) == {(0, 4): 1, (0, 6): 1}
    moved = one.release([3, 5])
    assert (moved, one.release([3])) == ({3: SavedTokens({0: (0, 4)}, 1)}, {})
    assert set(changes.take()) == {(HERE, (0, 4), -1), (moving("W"), (0, 4), 1)}
    two, there = booked()
    two.receive(moved)
    assert set(there.take()) == {(HERE, (0, 4), 1), (moving("W"), (0, 4), -1)}
    with two.bound():
        found, new = two.find((3, 0)), two.keep(3, (0, 7))
    assert (found.time, new._id.number, counted(there)) == (4, 1, {(0, 7): 1})
    with one.bound(), pytest.raises(TokenError, match="this token was dropped"):
        first.drop()
    with two.bound(), pytest.raises(TokenError, match="this token belongs to W"):
        two.drop(other)
    with pytest.raises(ProtocolError, match="the tokens of bin 3 of W came to a worker that has that bin"):
        two.load(moved)
    one.receive(two.release([3]))
    assert (first.time, one.take_lost()) == (4, [Lost("W", 7)])


def test_saved_tokens_count_the_same_in_any_division():
    """The first counts of the next run do not depend on how bins are dealt to workers."""
    bins = [SavedTokens({0: (0, 4), 1: (0, 4)}, 2), SavedTokens({5: (0, 4), 6: (1, 4)}, 7)]
    assert set(token_counts("W", bins)) == {(HERE, (0, 4), 3), (HERE, (1, 4), 1)}
    whole = ChangeBatch([*token_counts("W", bins[:1]), *token_counts("W", bins[1:])])
    assert set(whole) == set(token_counts("W", bins))


# ---- lost handles


def test_a_handle_in_a_cycle_is_lost_when_it_is_collected():
    """Also by the collector in another thread; until then its token counts."""
    book, changes = booked()
    with book.bound():
        state = {"token": book.keep(3, (0, 4))}
        state["self"] = state
    gc.disable()
    try:
        del state
        assert (book.take_lost(), counted(changes)) == ([], {(0, 4): 1})
        collector = threading.Thread(target=gc.collect)
        collector.start()
        collector.join()
    finally:
        gc.enable()
    assert (book.take_lost(), book.take_lost()) == ([Lost("W", 4)], [])
    assert counted(changes) == {(0, 4): -1}


def test_a_token_found_again_is_not_lost():
    """A handle goes and the state is unpickled in the same slice."""
    book, changes = booked()
    with book.bound():
        pickled = pickle.dumps(book.keep(3, (0, 4)))  # the only handle is gone at once
        token = pickle.loads(pickled)
        assert (book.take_lost(), token.time) == ([], 4)
        del token
    assert (book.take_lost(), counted(changes)) == ([Lost("W", 4)], {})


# ---- clear errors


def test_a_token_is_of_use_in_its_function_alone():
    """Not outside of it, in another thread, or in another operator's function."""
    book, _ = booked()
    other, _ = booked("X")
    errors: list = []

    def elsewhere():
        with pytest.raises(TokenError, match="in another thread") as caught:
            token.downgrade(9)
        errors.append(caught)

    with book.bound():
        token = book.keep(3, (0, 4))
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with other.bound():
            elsewhere()
            with pytest.raises(TokenError, match="X: this token belongs to W; only there has it a use"):
                other.time_of(token)
        token.downgrade(5)
    elsewhere()
    with pytest.raises(TokenError, match="outside of its function"):
        book.keep(3, (0, 4))
    assert (len(errors), token.time) == (3, 5)


def test_time_does_not_go_back():
    """Neither its time nor its round may become less; a token outside of loops has no round."""
    book, _ = booked()
    with book.bound():
        flat, inner = book.keep(3, (0, 4)), book.keep(3, (0, 4, 2))
        with pytest.raises(TokenError, match="of time 4 cannot be downgraded to 3"):
            flat.downgrade(3)
        with pytest.raises(TokenError, match=r"of time 4 and round 2 cannot be downgraded to 9 and round 1"):
            inner.downgrade(9, round=1)
        for use in (lambda: flat.round, lambda: flat.downgrade(round=1)):
            with pytest.raises(TokenError, match="outside of loops has no round"):
                use()
        inner.downgrade(round=3)
        later = inner.delayed(5)
        assert (inner.round, inner.time, later.round, later.time, flat.time) == (3, 4, 3, 5, 4)


@pytest.mark.parametrize("time", [5.0, "5", float("inf")])
def test_a_time_is_an_integer(time):
    """Anything else is refused, and says so; integers of other libraries are taken for what they are."""
    book, changes = booked()
    with book.bound():
        token = book.keep(3, (0, 4, 1))
        with pytest.raises(TokenError, match="expected an integer"):
            token.downgrade(time)
        with pytest.raises(TokenError, match="expected an integer"):
            token.downgrade(6, round=time)
        token.downgrade(numpy.int64(6), numpy.int32(2))
    assert (type(token.time), type(token.round), counted(changes)) == (int, int, {(0, 6, 2): 1})


def test_a_block_gives_a_token_up():
    """At its end, also by an error, which passes; not a second time."""
    book, changes = booked()
    with book.bound():
        with pytest.raises(ZeroDivisionError), book.keep(3, (0, 4)):
            1 / 0  # noqa: B018 - the error
        with book.keep(3, (0, 5)) as token:
            token.drop()
        assert repr(token) == "<token of W, dropped>"
        assert repr(book.keep(3, (0, 6))) == "<token of W, time 6>"
    assert (book.take_lost(), counted(changes)) == ([Lost("W", 6)], {})


def test_states_of_a_trial_do_not_share_tokens():
    """One that the trial keeps meanwhile is not taken for one of a state that it copies later."""
    book, _ = booked()
    with book.bound():
        tokens = [book.keep(3, (0, 4)), book.keep(3, (0, 5))]
        first, second = map(pickle.dumps, tokens)
    trial, _ = booked(trial=True)
    with trial.bound():
        copied = pickle.loads(first)
        new = copied.delayed(9)
        other = pickle.loads(second)
        new.drop()
        other.downgrade(7)
    assert other is not new


def test_keys_that_hold_tokens_are_told_of_a_frontier_once():
    """Those whose bins move are due at the new owner, unless the old one had told them of the same frontier."""
    for told in (False, True):
        (one, _), (two, _) = booked(), booked()
        old, new = TokenKeepers(one), TokenKeepers(two)
        with one.bound():
            mark = one.mark()
            token = one.keep(3, (0, 4))
        old.add("c7", mark)
        old.advance()
        if told:
            old.take()
        saved = old.saved()
        assert saved == {3: [("c7", 0)]}
        was_due = old.release(saved)
        assert (was_due, old.is_due, old.saved(), token.time) == (not told, False, {}, 4)
        two.receive(one.release([3]))
        new.receive(saved, are_due=was_due)
        assert new.is_due == (not told)
        new.advance()
        assert new.take() == ((0, 4), "c7")
