"""What goes wrong when a rule of counting and exchange is left out: each mutant as what to patch, and with what."""

from __future__ import annotations

from msgspec.structs import replace
from progress_worker import PlayedWorker

from fries_nb.progress import exchange, progress_graph
from fries_nb.progress.exchange import HostProgress, ProgressState, WorkerCounts
from fries_nb.progress.progress_graph import ChangeBatch, CountChange, GraphLocation, moving
from fries_nb.progress.times import identity
from fries_nb.progress.tokens import TokenBook
from fries_nb.simulation.seeded_progress import ProgressLinks


def _split(progress, changes, record=HostProgress.record):
    """What is used up is said first, what was made of it with the next step."""
    kept = progress.__dict__.setdefault("kept", [])
    ready, kept[:] = [*kept, *(one for one in changes if one.delta < 0)], [one for one in changes if one.delta > 0]
    return record(progress, ready)


def _used_up_at_load(worker, load=PlayedWorker.load):
    """An input frame no longer counts once it is taken."""
    load(worker)
    worker.counts.used_up(worker.in_hand[0].location, worker.in_hand[1])


def _buffer_uncounted(counts, channel, edge, stamp):
    """What waits in an output buffer is not counted yet."""
    counts._buffers[channel] = (edge, stamp)


def _count_at_send(counts, channel, rest=False):
    """A frame counts from when it is sent."""
    edge, stamp = counts._buffers.pop(channel)
    counts.changes.update(edge, stamp, +1)
    return stamp


def _meet(stamp, time):
    """Frames of incomparable times are merged at their componentwise minimum."""
    return tuple(map(min, stamp, time))


def _keep_waiting(progress, frame, receive=HostProgress.receive):
    """What waits is not examined again when the view changes."""
    progress._released = lambda *of: None
    receive(progress, frame)
    del progress._released


def _take_decrements(waiting):
    """Only what is taken away is broadcast; the rest waits for its own turn."""
    changes = [one for one in waiting._batch if one.delta < 0]
    waiting.extend([CountChange(one.location, one.time, -one.delta) for one in changes])
    return tuple(changes)


def _once(progress, counts, begin=HostProgress.begin):
    """Splits of a host share a token."""
    return begin(progress, set(counts))


def _nothing_to_say(progress, counts, begin=HostProgress.begin):
    """A host without first counts says nothing."""
    frame = begin(progress, counts)
    return frame if frame.changes else None


def _begun(progress):
    """A host is open as soon as it has begun itself."""
    return progress.host not in progress.missing


def _any_order(lanes, lane, deliver=ProgressLinks.deliver):
    """Frames of one sender overtake each other."""
    lanes._network._lanes[lane].rotate(len(lanes._network._lanes[lane]) // 2)
    deliver(lanes, lane)


def _unnumbered(progress, frame, receive=HostProgress.receive):
    """Numbers of frames are ignored."""
    progress._numbers[frame.sender] = frame.number - 1
    return receive(progress, frame)


def _unnumbered_state(progress, state=HostProgress.state):
    """A view is handed over without the numbers of the frames that it includes."""
    return ProgressState(state(progress).counts, dict.fromkeys(state(progress).numbers, 0))


def _welcomed_at_once(progress):
    """A view is given before all others have admitted the newcomer."""
    new, progress._silent = tuple(progress._silent), {}
    return new


def _early_dropped(progress, view, take_view=HostProgress.take_view):
    """Frames that came before the view are dropped."""
    progress._early = []
    return take_view(progress, view)


def _counted_again(progress, frame, taken=HostProgress._taken):
    """A frame that the view includes counts once more."""
    if frame.number <= progress._numbers.get(frame.sender, 0):
        progress._apply(frame.changes)
    return taken(progress, frame)


def _kept_back(progress, leave=HostProgress.leave):
    """A host that leaves does not say what waits."""
    return replace(leave(progress), changes=())


def _released_silently(book, bins, release=TokenBook.release):
    """Tokens stay counted where they were while they are on their way, as they do within a host."""
    changes, book._changes = book._changes, ChangeBatch()
    released, book._changes = release(book, bins), changes
    return released


def _not_counted_on_the_way(book, bins, release=TokenBook.release):
    """Nobody holds a capability for what moves."""
    released = release(book, bins)
    for saved in released.values():
        for time in saved.times.values():
            book._changes.update(moving(book.operator), time, -1)
    return released


def _received_uncounted(book, bins):
    """The new owner counts what it holds, and no one takes it off the way."""
    TokenBook.load(book, bins)
    for saved in bins.values():
        for time in saved.times.values():
            book._changes.update(GraphLocation(book.operator), tuple(time), +1)


MUTANTS = {
    "a step is split": [(HostProgress, "record", _split)],
    "-1 at load": [(PlayedWorker, "load", _used_up_at_load), (PlayedWorker, "use_up", lambda *of: None)],
    "+1 at send": [(WorkerCounts, "_count", _buffer_uncounted), (WorkerCounts, "cut", _count_at_send)],
    "maximum for minimum": [(exchange, "earlier", max)],
    "feedback adds 0": [
        (progress_graph, "feeding_back", identity),
        (progress_graph.ProgressGraph, "_refuse_standstill", lambda graph: None),
    ],
    "meet": [
        (exchange, "earlier", _meet),
        (exchange, "share_frame", lambda *times: True),
    ],
    "a waiting batch is not examined again": [(HostProgress, "receive", _keep_waiting)],
    "part of what waits is broadcast": [(exchange.WaitingChanges, "take", _take_decrements)],
    "splits share a token": [(HostProgress, "begin", _once)],
    "open when begun": [(HostProgress, "is_open", property(_begun))],
    "open from the start": [(HostProgress, "is_open", True)],
    "empty first counts are not broadcast": [(HostProgress, "begin", _nothing_to_say)],
    "frames in any order": [(ProgressLinks, "deliver", _any_order), (HostProgress, "receive", _unnumbered)],
    "frames in any order, and numbers are checked": [(ProgressLinks, "deliver", _any_order)],
    "nothing is broadcast but by those who leave": [(exchange.WaitingChanges, "is_due", lambda *of: False)],
    "a newcomer's view is not numbered": [(exchange.HostProgress, "state", _unnumbered_state)],
    "a view is given before all have admitted the newcomer": [(HostProgress, "welcomed", _welcomed_at_once)],
    "frames before the view are dropped": [(HostProgress, "take_view", _early_dropped)],
    "frames that the view includes count again": [(HostProgress, "_taken", _counted_again)],
    "a host that leaves keeps what waits to itself": [(HostProgress, "leave", _kept_back)],
    "what moves stays counted where it was": [
        (TokenBook, "release", _released_silently), (TokenBook, "receive", TokenBook.load)
    ],
    "what moves is not counted on the way": [
        (TokenBook, "release", _not_counted_on_the_way), (TokenBook, "receive", _received_uncounted)
    ],
    "dead ends are counted": [(progress_graph.ProgressGraph, "leads_on", lambda *of: True)],
}
