"""The loop of a host: the threads that run its workers, as ``worker.turns`` decides.

A thread for each worker would have hundreds of threads compete for one interpreter lock. Here one thread runs all quick
workers in turn; a slow one has a thread of its own; a fast control message is processed by the thread that posts it,
if no other runs its worker. So it waits for at most one tuple of its own worker, whatever the others do: if the loop
is inside one tuple for long, ``check`` starts another loop thread for the other workers.

Slow workers that use the processor, rather than wait for a service, hold one of a few *tickets* in each turn, so that
they do not crowd out the loop. Output buffers are flushed when the loop would wait.

The threads' bodies are generators of steps, which run in real threads and in seeded ones; see ``environment``.
"""

from __future__ import annotations

from collections.abc import Iterable

from fries_nb.host.environment import Body, Environment, Steps
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.worker.events import Event, Granted, WorkerTick
from fries_nb.worker.turns import After, Turns

SAMPLED = 8
"""The processor time of one in so many turns of a quick worker is measured, since the clock is slow."""


class HostLoop:
    """Runs workers in turn.

    Args:
        environment: its threads, locks and clocks.
        host: index of the host.
        name: name of the threads.
        workers: the workers; none of them runs elsewhere.
        tickets: number of slow workers that may use the processor at the same time.

    Attributes:
        host: index of the host.
        name: name of the threads.
        workers: the workers.
        turns: the decisions.
        begun: number of turns that have begun.
    """

    def __init__(
        self, environment: Environment, host: int, name: str, workers: Iterable[HostedWorker], tickets: int
    ) -> None:
        self.host = host
        self.workers = tuple(workers)
        self.begun = 0
        self.turns: Turns[HostedWorker] = Turns(
            self.workers, environment.queue, environment.now_ns, environment.wall_ns
        )
        self._environment = environment
        self.name = name
        self._tickets = environment.tickets(tickets)
        self._baton = environment.lock()  # held by the loop thread outside of turns
        self._threads: list[Body] = []

    # ---- called by any thread

    def add(self, worker: HostedWorker) -> None:
        """Run one more worker; called by the control thread."""
        self.workers = self.turns.members = (*self.workers, worker)
        self.post(worker, WorkerTick())

    def drop(self, worker: HostedWorker) -> None:
        """Run a worker only to pass on events that were posted to it before; called by the control thread.

        A thread of its own ends.
        """
        self.workers = self.turns.members = tuple(one for one in self.workers if one is not worker)
        if worker in self.turns.apart:
            self.turns.posted(worker)

    def start(self) -> None:
        """Start the loop; every worker sends a first report, with the counts of a restored one."""
        for worker in self.workers:
            self.post(worker, WorkerTick())
        if self.workers:
            self._start_loop(0)

    def post(self, worker: HostedWorker, event: Event, urgent: bool = False) -> None:
        """Post an event to a worker; it processes an urgent one before the next tuple, and before other workers run."""
        worker.post(event)
        self.turns.posted(worker, urgent)

    def wake(self, worker: HostedWorker) -> None:
        """Run a worker in a turn, since a thread that owned it without one has released it, or a call has ended."""
        self.turns.posted(worker)

    def report(self, worker: HostedWorker) -> None:
        """Have a worker report its measurements; what is known of one that cannot yet is reported in its place."""
        if worker.ask_report():
            self.turns.posted(worker)

    def post_credit(self, worker: HostedWorker, event: Granted) -> None:
        """Post credit to a worker; it is woken only if it awaits credit, and otherwise processes it later."""
        worker.post(event)
        if worker.awaits_credit:
            self.turns.posted(worker)

    def switch(self, worker: HostedWorker, event: Event) -> Steps[None]:
        """Post a fast control message; it is processed at once unless another thread runs the worker."""
        worker.post(event)
        yield
        if self.turns.switch_begins(worker):
            try:
                yield
                worker.process()
                yield
            finally:
                self.turns.switch_ended(worker)

    def limit_deadline(self, longest_ns: int) -> None:
        """Let tuples be buffered for at most so many nanoseconds while the host is busy."""
        self.turns.deadline.longest_ns = longest_ns

    def check(self) -> None:
        """Interrupt a turn that takes long; if it is inside one tuple, hand the other workers on; call it often."""
        if self.turns.is_stuck():
            with self._baton:
                if self.turns.hand_off():
                    self._start_loop(self.turns.generation)

    @property
    def is_busy(self) -> bool:
        """Whether a worker is in its turn for which others wait, so that ``check`` is to be called soon."""
        return self.turns.is_busy

    def leave(self) -> None:
        """End all threads at the next tuple boundary; ``join`` waits for them."""
        self.turns.leave()

    def join(self, deadline_ns: int) -> list[str]:
        """Wait for all threads, and have each worker report the rest.

        Args:
            deadline_ns: time to wait until, by the environment's ``now_ns``.

        Returns:
            The names of the workers that are inside a user function.
        """
        for thread in self._threads:
            thread.join(max(0.0, (deadline_ns - self._environment.now_ns()) / 1e9))
        # A thread that has ended in time has released its worker; one that has not is inside a function.
        stuck = []
        for worker in self.workers:
            if worker.owner.acquire(blocking=False):
                worker.finish()
                worker.owner.release()
            else:
                stuck.append(worker.name)
        return stuck

    def _start_loop(self, generation: int) -> None:
        self._start_thread(f"{self.name}-{generation}", self._loop(generation))

    def _start_thread(self, name: str, steps: Steps[None]) -> None:
        self._threads.append(self._environment.start(self.host, name, steps, self._failed))

    def _failed(self, error: Exception) -> None:
        self.workers[0].fail(error)

    # ---- the loop's thread

    def _loop(self, generation: int) -> Steps[None]:
        turns = self.turns
        while True:
            with self._baton:
                if turns.generation != generation or turns.leaving:
                    return
                worker = turns.begin()
                unflushed = turns.take_unflushed(all_of_them=True) if turns.idles(worker) else []
                due_ns = turns.next_due_ns if worker is None else None
            yield
            yield from self._flush(unflushed)
            if worker is None:
                if not unflushed:
                    yield from self._wait(due_ns)
            elif not (yield from self._serve(worker, generation)):
                yield from self._keep(worker)
                return

    def _serve(self, worker: HostedWorker, generation: int) -> Steps[bool]:
        """Run a worker for the turn that has begun; returns whether this is still the thread of the other workers."""
        turns = self.turns
        self.begun += 1
        try:
            worker.worker.turn_time.begin()
            busy, spent_ns = yield from self._turn(worker)
            worker.worker.turn_time.end()
            if (not busy or worker.worker.is_aside) and worker.buffers and turns.would_wait(worker):
                turns.deadline.flushed(worker.flush())
        finally:
            worker.owner.release()
        yield
        with self._baton:
            after = turns.ended(worker, generation, spent_ns, busy)
            # Not before the turn: if that is handed off, the next thread finds what is to be flushed.
            unflushed = turns.take_unflushed(all_of_them=False) if after is not After.LEAVE else []
        yield
        yield from self._flush(unflushed)
        if after is After.START_OWN:
            self._start_thread(worker.name, self._run_apart(worker))
        return after is not After.LEAVE

    def _keep(self, worker: HostedWorker) -> Steps[None]:
        """Run on a worker whose long tuple is over, in the thread that was inside it."""
        with self._baton:
            runs_on = self.turns.runs_on(worker)
        yield
        if runs_on:
            yield from self._run_apart(worker)

    def _flush(self, workers: Iterable[HostedWorker]) -> Steps[None]:
        for worker in workers:
            if self.turns.claim(worker):  # otherwise the thread that runs it sees to it
                try:
                    yield
                    self.turns.deadline.flushed(worker.flush())
                finally:
                    worker.owner.release()
            yield

    def _wait(self, due_ns: int | None) -> Steps[None]:
        """Wait until a worker is to be run, or a reader's tuple is due."""
        began_ns = self._environment.now_ns()
        woken = yield from self._environment.received(self.turns.woken, due_ns)
        yield
        with self._baton:
            self.turns.woke(woken)
        self.turns.deadline.waited(self._environment.now_ns() - began_ns)

    # ---- the thread of a slow worker

    def _run_apart(self, worker: HostedWorker) -> Steps[None]:
        turns = self.turns
        own = turns.apart[worker]
        yield from self._environment.acquired(worker.owner)
        try:
            worker.flush()
        finally:
            worker.owner.release()
        while True:
            yield
            while not own.empty():
                own.get()
            if turns.leaving or worker not in turns.members:  # looked at behind what wakes it for that
                break
            spent_ns, took_ns, busy = yield from self._slow_turn(worker)
            yield
            if not turns.slow_turn_ended(worker, spent_ns, took_ns):
                return
            if not busy:
                yield from self._environment.received(own, worker.due_ns)
        turns.rejoin(worker)

    def _slow_turn(self, worker: HostedWorker) -> Steps[tuple[int, int, bool]]:
        """Run a worker for one turn; returns its processor time, its duration, and whether there may be more to do.

        Its output is flushed after each turn: in comparison with its tuples, a frame costs little.
        """
        ticket = self._tickets if self.turns.needs_ticket(worker) else None
        if ticket is not None:
            yield from self._environment.acquired(ticket)
        try:
            yield from self._environment.acquired(worker.owner)
            try:
                self.turns.slow_turn_begins(worker)
                yield
                worker.worker.turn_time.begin()
                busy, processor_ns, took_ns = yield from self._measured_turn(worker)
                worker.worker.turn_time.end()
                worker.worker.busy_ns += took_ns
                worker.flush()
            finally:
                worker.owner.release()
        finally:
            if ticket is not None:
                ticket.release()
        return processor_ns, took_ns, busy

    # ---- a turn

    def _turn(self, worker: HostedWorker) -> Steps[tuple[bool, int]]:
        """Run a worker for one turn; returns whether there may be more to do, and the duration in nanoseconds."""
        if worker.worker.slowness.may_wait:
            busy, _, took_ns = yield from self._measured_turn(worker)
            return busy, took_ns
        worker.turns += 1
        if worker.turns % SAMPLED:
            began_ns = self._environment.now_ns()
            busy = yield from worker.turn()
            return busy, self._environment.now_ns() - began_ns
        busy, processor_ns, took_ns = yield from self._timed_turn(worker)
        worker.worker.useful_ns += SAMPLED * processor_ns
        return busy, took_ns

    def _measured_turn(self, worker: HostedWorker) -> Steps[tuple[bool, int, int]]:
        """The same, with the thread's processor time as well, whose clock is slow; one that waits is a slow one."""
        busy, processor_ns, took_ns = yield from self._timed_turn(worker)
        worker.worker.slowness.used(processor_ns, took_ns)
        worker.worker.useful_ns += processor_ns
        return busy, processor_ns, took_ns

    def _timed_turn(self, worker: HostedWorker) -> Steps[tuple[bool, int, int]]:
        """Run a worker for one turn; returns also the thread's processor time and the duration."""
        environment = self._environment
        began_ns, processor_ns = environment.now_ns(), environment.processor_ns()
        busy = yield from worker.turn()
        return busy, environment.processor_ns() - processor_ns, environment.now_ns() - began_ns
