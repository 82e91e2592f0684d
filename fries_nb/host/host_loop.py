"""The loop of a host: the threads that run its workers, as ``worker.turns`` decides.

A thread for each worker would have hundreds of threads compete for one interpreter lock. Here one thread runs all quick
workers in turn; a slow one has a thread of its own; a fast control message is processed by the thread that posts it,
if no other runs its worker. So it waits for at most one tuple of its own worker, whatever the others do: if the loop
is inside one tuple for long, ``check`` starts another loop thread for the other workers.

Slow workers that use the processor, rather than wait for a service, hold one of a few *tickets* in each turn, so that
they do not crowd out the loop. Output buffers are flushed when the loop would wait.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.worker.events import Event, Granted, WorkerTick
from fries_nb.worker.turns import After, Turns, WakeUps

SAMPLED = 8
"""The processor time of one in so many turns of a quick worker is measured, since the clock is slow."""


class HostLoop:
    """Runs workers in turn.

    Args:
        name: name of the threads.
        workers: the workers; none of them runs elsewhere.
        tickets: number of slow workers that may use the processor at the same time.
    """

    def __init__(self, name: str, workers: Iterable[HostedWorker], tickets: int | None = None) -> None:
        self.workers = tuple(workers)
        self._name = name
        self._turns: Turns[HostedWorker] = Turns(self.workers, queue.SimpleQueue, time.monotonic_ns, time.time_ns)
        self._tickets = threading.BoundedSemaphore(tickets or max(1, os.cpu_count() or 1))
        self._baton = threading.Lock()  # held by the loop thread outside of turns
        self._threads: list[threading.Thread] = []

    # ---- called by any thread

    def add(self, worker: HostedWorker) -> None:
        """Run one more worker; called by the control thread."""
        self.workers = self._turns.members = (*self.workers, worker)
        self.post(worker, WorkerTick())

    def drop(self, worker: HostedWorker) -> None:
        """Run a worker only to pass on events that were posted to it before; called by the control thread."""
        self.workers = self._turns.members = tuple(one for one in self.workers if one is not worker)

    def start(self) -> None:
        """Start the loop; every worker sends a first report, with the counts of a restored one."""
        for worker in self.workers:
            self.post(worker, WorkerTick())
        if self.workers:
            self._start_loop(0)

    def post(self, worker: HostedWorker, event: Event, urgent: bool = False) -> None:
        """Post an event to a worker; it processes an urgent one before the next tuple, and before other workers run."""
        worker.post(event)
        self._turns.posted(worker, urgent)

    def wake(self, worker: HostedWorker) -> None:
        """Run a worker in a turn, since a thread that owned it without one has released it."""
        self._turns.posted(worker)

    def report(self, worker: HostedWorker) -> None:
        """Have a worker report its measurements; what is known of one that cannot yet is reported in its place."""
        if worker.ask_report():
            self._turns.posted(worker)

    def post_credit(self, worker: HostedWorker, event: Granted) -> None:
        """Post credit to a worker; it is woken only if it awaits credit, and otherwise processes it later."""
        worker.post(event)
        if worker.awaits_credit:
            self._turns.posted(worker)

    def switch(self, worker: HostedWorker, event: Event) -> None:
        """Post a fast control message; it is processed at once unless another thread runs the worker."""
        worker.post(event)
        if self._turns.switch_begins(worker):
            try:
                worker.process()
            finally:
                self._turns.switch_ended(worker)

    def limit_deadline(self, longest_ns: int) -> None:
        """Let tuples be buffered for at most so many nanoseconds while the host is busy."""
        self._turns.deadline.longest_ns = longest_ns

    def check(self) -> None:
        """Interrupt a turn that takes long; if it is inside one tuple, hand the other workers on; call it often."""
        if self._turns.is_stuck():
            with self._baton:
                if self._turns.hand_off():
                    self._start_loop(self._turns.generation)

    @property
    def is_busy(self) -> bool:
        """Whether a worker is in its turn for which others wait, so that ``check`` is to be called soon."""
        return self._turns.is_busy

    def leave(self) -> None:
        """End all threads at the next tuple boundary; ``join`` waits for them."""
        self._turns.leave()

    def join(self, deadline_s: float) -> list[str]:
        """Wait for all threads, and have each worker report the rest.

        Args:
            deadline_s: time to wait until, by the monotonic clock.

        Returns:
            The names of the workers that are inside a user function.
        """
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        stuck = []
        for worker in self.workers:
            if worker.owner.acquire(timeout=max(0.0, deadline_s - time.monotonic())):
                worker.finish()
                worker.owner.release()
            else:
                stuck.append(worker.name)
        return stuck

    def _start_loop(self, generation: int) -> None:
        self._start_thread(f"{self._name}-{generation}", self._loop, generation)

    def _start_thread(self, name: str, target: Callable[[Any], None], argument: object) -> None:
        thread = threading.Thread(target=self._guarded, args=[target, argument], name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guarded(self, target: Callable[[Any], None], argument: object) -> None:
        try:
            target(argument)
        except Exception as error:  # noqa: BLE001 - an internal error must fail the run, not leave its workers waiting
            self.workers[0].fail(error)

    # ---- the loop's thread

    def _loop(self, generation: int) -> None:
        turns = self._turns
        while True:
            with self._baton:
                if turns.generation != generation or turns.leaving:
                    return
                worker = turns.begin()
                unflushed = turns.take_unflushed(all_of_them=True) if worker is None else []
                due_ns = turns.next_due_ns if worker is None else None
            if worker is None:
                self._flush(unflushed)
                if not unflushed:
                    self._wait(due_ns)
            elif not self._serve(worker, generation):
                self._keep(worker)
                return

    def _serve(self, worker: HostedWorker, generation: int) -> bool:
        """Run a worker for the turn that has begun; returns whether this is still the thread of the other workers."""
        turns = self._turns
        try:
            worker.worker.turn_time.begin()
            busy, spent_ns = _turn(worker)
            worker.worker.turn_time.end()
            if not busy and worker.buffers and turns.would_wait(worker):
                turns.deadline.flushed(worker.flush())
        finally:
            worker.owner.release()
        with self._baton:
            after = turns.ended(worker, generation, spent_ns, busy)
            # Not before the turn: if that is handed off, the next thread finds what is to be flushed.
            unflushed = turns.take_unflushed(all_of_them=False) if after is not After.LEAVE else []
        self._flush(unflushed)
        if after is After.START_OWN:
            self._start_thread(worker.name, self._run_apart, worker)
        return after is not After.LEAVE

    def _keep(self, worker: HostedWorker) -> None:
        """Run on a worker whose long tuple is over, in the thread that was inside it."""
        with self._baton:
            runs_on = self._turns.runs_on(worker)
        if runs_on:
            self._run_apart(worker)

    def _flush(self, workers: Iterable[HostedWorker]) -> None:
        for worker in workers:
            if self._turns.claim(worker):  # otherwise the thread that runs it sees to it
                try:
                    self._turns.deadline.flushed(worker.flush())
                finally:
                    worker.owner.release()

    def _wait(self, due_ns: int | None) -> None:
        """Wait until a worker is to be run, or a reader's tuple is due."""
        began_ns = time.monotonic_ns()
        woken = _received(self._turns.woken, due_ns)
        with self._baton:
            self._turns.woke(woken)
        self._turns.deadline.waited(time.monotonic_ns() - began_ns)

    # ---- the thread of a slow worker

    def _run_apart(self, worker: HostedWorker) -> None:
        turns = self._turns
        own = turns.apart[worker]
        with worker.owner:
            worker.flush()
        while not turns.leaving:
            while not own.empty():
                own.get()
            spent_ns, took_ns, busy = self._slow_turn(worker)
            if not turns.slow_turn_ended(worker, spent_ns, took_ns):
                return
            if not busy:
                _received(own, worker.due_ns)
        turns.rejoin(worker)

    def _slow_turn(self, worker: HostedWorker) -> tuple[int, int, bool]:
        """Run a worker for one turn; returns its processor time, its duration, and whether there may be more to do.

        Its output is flushed after each turn: in comparison with its tuples, a frame costs little.
        """
        turns = self._turns
        with self._tickets if turns.needs_ticket(worker) else contextlib.nullcontext(), worker.owner:
            turns.slow_turn_begins(worker)
            worker.worker.turn_time.begin()
            busy, processor_ns, took_ns = _measured_turn(worker)
            worker.worker.turn_time.end()
            worker.worker.busy_ns += took_ns
            worker.flush()
        return processor_ns, took_ns, busy


def _turn(worker: HostedWorker) -> tuple[bool, int]:
    """Run a worker for one turn; returns whether there may be more to do, and the duration in nanoseconds."""
    if worker.worker.slowness.may_wait:
        busy, _, took_ns = _measured_turn(worker)
        return busy, took_ns
    worker.turns += 1
    if worker.turns % SAMPLED:
        began_ns = time.perf_counter_ns()
        busy = worker.turn()
        return busy, time.perf_counter_ns() - began_ns
    busy, processor_ns, took_ns = _timed_turn(worker)
    worker.worker.useful_ns += SAMPLED * processor_ns
    return busy, took_ns


def _measured_turn(worker: HostedWorker) -> tuple[bool, int, int]:
    """The same, with the thread's processor time as well, whose clock is slow; a worker that waits is a slow one."""
    busy, processor_ns, took_ns = _timed_turn(worker)
    worker.worker.slowness.used(processor_ns, took_ns)
    worker.worker.useful_ns += processor_ns
    return busy, processor_ns, took_ns


def _timed_turn(worker: HostedWorker) -> tuple[bool, int, int]:
    """Run a worker for one turn; returns also the thread's processor time and the duration."""
    began_ns, processor_ns = time.perf_counter_ns(), time.thread_time_ns()
    busy = worker.turn()
    return busy, time.thread_time_ns() - processor_ns, time.perf_counter_ns() - began_ns


def _received(wake_ups: WakeUps[HostedWorker], due_ns: int | None) -> tuple[HostedWorker, bool] | None:
    """Wait for the first of these wake-ups until a time in nanoseconds since the Unix epoch; ``None`` if none came."""
    timeout = None if due_ns is None else max(0.0, (due_ns - time.time_ns()) / 1e9)
    try:
        return wake_ups.get(timeout=timeout)
    except queue.Empty:
        return None
