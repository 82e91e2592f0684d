"""The loop of a host: one thread that runs all of its quick workers in turn; slow ones have threads of their own.

A thread for each worker would have hundreds of threads compete for one interpreter lock. Here a worker is run by
whichever thread holds its ``owner`` lock:

    the loop         takes the next worker from the rota, for one turn of about two milliseconds
    its own thread   runs a worker whose tuples are slow (see ``slowness``), until they are quick again
    the control      a fast control message is processed by the thread that posts it, if no other runs the worker;
    thread           otherwise after the tuple in hand, since the interrupt flag ends the turn

So a fast control message waits for at most one tuple of its own worker, whatever the others do. If the loop is inside
one tuple for ``HANDOFF_S``, ``check`` starts another loop thread for the other workers; the first one ends after that
tuple, and the worker goes back to the rota.

Slow workers that use the processor, rather than wait for a service, hold one of a few *tickets* in each turn, so that
they do not crowd out the loop. Output buffers are flushed when the loop would wait.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from fries_nb.spark.hosted_worker import HostedWorker
from fries_nb.worker.events import Event, Granted, WorkerTick
from fries_nb.worker.flush_deadline import FlushDeadline
from fries_nb.worker.rota import Rota

HANDOFF_S = 0.01
"""Seconds inside one turn after which it is interrupted, and inside one tuple after which the others are handed on."""
PROCESSOR_SHARE = 0.5
"""Share of processor time in a slow worker's turns from which on it holds a ticket."""


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
        self._rota: Rota[HostedWorker] = Rota()
        self._woken: queue.SimpleQueue[tuple[HostedWorker | None, bool]] = queue.SimpleQueue()
        self._unflushed: dict[HostedWorker, int] = {}  # and since when, by the monotonic clock
        self._deadline = FlushDeadline(time.monotonic_ns())
        self._due_ns: dict[HostedWorker, int] = {}
        self._apart: dict[HostedWorker, queue.SimpleQueue[None]] = {}
        self._tickets = threading.BoundedSemaphore(tickets or max(1, os.cpu_count() or 1))
        self._baton = threading.Lock()  # held by the loop thread outside of turns
        self._generation = 0
        self._running: tuple[HostedWorker, float] | None = None
        self._interrupted: float = 0.0
        self._leaving = False
        self._threads: list[threading.Thread] = []

    # ---- called by any thread

    def add(self, worker: HostedWorker) -> None:
        """Run one more worker; called by the control thread."""
        self.workers += (worker,)
        self.post(worker, WorkerTick())

    def drop(self, worker: HostedWorker) -> None:
        """Run a worker only to pass on events that were posted to it before; called by the control thread."""
        self.workers = tuple(one for one in self.workers if one is not worker)

    def start(self) -> None:
        """Start the loop; every worker sends a first report, with the counts of a restored one."""
        for worker in self.workers:
            self.post(worker, WorkerTick())
        if self.workers:
            self._start_thread(f"{self._name}-{self._generation}", self._loop, self._generation)

    def post(self, worker: HostedWorker, event: Event, urgent: bool = False) -> None:
        """Post an event to a worker; it processes an urgent one before the next tuple, and before other workers run."""
        worker.post(event)
        self._wake(worker, urgent)

    def post_credit(self, worker: HostedWorker, event: Granted) -> None:
        """Post credit to a worker; it is woken only if frames wait for credit, and otherwise processes it later."""
        worker.post(event)
        if worker.is_blocked:
            self._wake(worker)

    def switch(self, worker: HostedWorker, event: Event) -> None:
        """Post a fast control message; it is processed at once unless another thread runs the worker."""
        worker.post(event)
        if worker.owner.acquire(blocking=False):
            try:
                worker.process()
            finally:
                worker.owner.release()
            self._wake(worker)
        else:
            self._wake(worker, urgent=True)

    def check(self) -> None:
        """Interrupt a turn that takes long; if it is inside one tuple, hand the other workers on; call it often."""
        running = self._running
        if running is None or not self.is_shared or time.monotonic() - running[1] < HANDOFF_S:
            return
        worker, since = running
        if self._interrupted != since:
            self._interrupted = since
            worker.worker.interrupt.raised = True
            return
        with self._baton:
            if self._running is running and not self._leaving:
                self._generation += 1
                self._running = None
                self._start_thread(f"{self._name}-{self._generation}", self._loop, self._generation)

    @property
    def is_shared(self) -> bool:
        """Whether more than one worker shares the loop's thread."""
        return len(self.workers) - len(self._apart) > 1

    @property
    def is_busy(self) -> bool:
        """Whether a worker is in its turn for which others wait, so that ``check`` is to be called soon."""
        return self._running is not None and self.is_shared

    def leave(self) -> None:
        """End all threads at the next tuple boundary; ``join`` waits for them."""
        self._leaving = True
        for worker in self.workers:
            worker.worker.interrupt.raised = True
            self._wake(worker)
        self._woken.put((None, False))

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

    def _wake(self, worker: HostedWorker, urgent: bool = False) -> None:
        if urgent:
            worker.worker.interrupt.raised = True
        if (bell := self._apart.get(worker)) is not None:
            bell.put(None)
        elif urgent or not worker.awake:
            worker.awake = True
            self._woken.put((worker, urgent))
            if urgent and (running := self._running) is not None:
                running[0].worker.interrupt.raised = True

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
        while True:
            with self._baton:
                if self._generation != generation or self._leaving:
                    return
                worker = self._next()
                unflushed = self._take_unflushed(all_of_them=worker is None)
                due_ns = min(self._due_ns.values(), default=None)
            if worker is not None and not self._serve(worker, generation):
                self._keep(worker)
                return
            self._flush(unflushed)
            if worker is None and not unflushed:
                self._wait(due_ns)

    def _next(self) -> HostedWorker | None:
        self._take_woken()
        worker = self._rota.next()
        if worker is not None:
            worker.worker.interrupt.raised = False
            self._running = (worker, time.monotonic())
            self._take_woken()
            if self._rota.has_urgent:  # its event was posted when nothing ran that could be interrupted
                worker.worker.interrupt.raised = True
            worker.awake = False  # it is woken for another turn from here on, behind the last look at what was woken
        return worker

    def _take_woken(self) -> None:
        while not self._woken.empty():
            self._ready(*self._woken.get())
        if self._due_ns:
            now = time.time_ns()
            for worker in [worker for worker, due in self._due_ns.items() if due <= now]:
                del self._due_ns[worker]
                self._rota.ready(worker, ahead=worker.is_ahead)

    def _ready(self, worker: HostedWorker | None, urgent: bool) -> None:
        if worker is not None and worker not in self._apart:
            self._rota.ready(worker, urgent, worker.is_ahead)

    def _serve(self, worker: HostedWorker, generation: int) -> bool:
        """Run a worker for one turn; returns whether this is still the thread of the other workers."""
        if not worker.owner.acquire(blocking=False):
            spent_ns, busy = 0, False  # the thread that runs it wakes it
        else:
            try:
                busy, spent_ns = _turn(worker)
                if not busy and worker.buffers and self._woken.empty() and not self._rota.has_others(worker):
                    self._deadline.flushed(worker.flush())  # the loop would wait
            finally:
                worker.owner.release()
        with self._baton:
            if self._generation != generation:
                return False
            self._running = None
            self._rota.charge(worker, spent_ns, busy, worker.is_ahead)
            self._note(worker, busy)
        return True

    def _note(self, worker: HostedWorker, busy: bool) -> None:
        """Note when a worker is to be flushed or run again; give it a thread of its own if it is slow."""
        if worker.worker.slowness.is_slow:
            self._part(worker)
            self._start_thread(worker.name, self._run_apart, worker)
            return
        if worker.buffers:
            self._unflushed.setdefault(worker, time.monotonic_ns())
        if not busy and (due_ns := worker.due_ns) is not None:
            self._due_ns[worker] = due_ns

    def _part(self, worker: HostedWorker) -> None:
        self._rota.drop(worker)
        self._due_ns.pop(worker, None)
        self._unflushed.pop(worker, None)
        self._apart[worker] = queue.SimpleQueue()

    def _keep(self, worker: HostedWorker) -> None:
        """Run on a worker whose long tuple is over in the thread that was inside it, for at least one turn."""
        with self._baton:
            elsewhere = worker in self._apart or (self._running is not None and self._running[0] is worker)
            if not elsewhere:
                self._part(worker)
        if elsewhere:
            self._wake(worker)  # the other thread may have found it in this one's hands
        else:
            self._run_apart(worker)

    def _take_unflushed(self, all_of_them: bool) -> list[HostedWorker]:
        """The workers to flush: all if the loop would wait, or those that have buffered tuples past the deadline."""
        if not self._unflushed:
            return []
        now_ns = time.monotonic_ns()
        before = now_ns if all_of_them else now_ns - self._deadline.adjusted(now_ns)
        taken = list(itertools.takewhile(lambda worker: self._unflushed[worker] <= before, self._unflushed))
        for worker in taken:
            del self._unflushed[worker]
        return taken

    def _flush(self, workers: Iterable[HostedWorker]) -> None:
        for worker in workers:
            if worker.owner.acquire(blocking=False):  # otherwise the thread that runs it sees to it
                try:
                    self._deadline.flushed(worker.flush())
                finally:
                    worker.owner.release()

    def _wait(self, due_ns: int | None) -> None:
        """Wait until a worker is to be run, or a reader's tuple is due."""
        began_ns = time.monotonic_ns()
        with contextlib.suppress(queue.Empty):
            woken = self._woken.get(timeout=_seconds_until(due_ns))
            with self._baton:
                self._ready(*woken)
        self._deadline.waited(time.monotonic_ns() - began_ns)

    # ---- the thread of a slow worker

    def _run_apart(self, worker: HostedWorker) -> None:
        bell, uses_processor = self._apart[worker], False
        with worker.owner:
            worker.flush()
        while not self._leaving:
            while not bell.empty():
                bell.get()
            uses_processor, busy = self._slow_turn(worker, uses_processor)
            if not worker.worker.slowness.is_slow:
                break
            if not busy:
                with contextlib.suppress(queue.Empty):
                    bell.get(timeout=_seconds_until(worker.due_ns))
        worker.awake = False
        del self._apart[worker]
        self._wake(worker)

    def _slow_turn(self, worker: HostedWorker, uses_processor: bool) -> tuple[bool, bool]:
        """Run a worker for one turn; returns whether it used the processor, and whether there may be more to do.

        Its output is flushed after each turn: in comparison with its tuples, a frame costs little.
        """
        with self._tickets if uses_processor else contextlib.nullcontext(), worker.owner:
            worker.worker.interrupt.raised = False
            busy, processor_ns, took_ns = _measured_turn(worker)
            worker.flush()
        return processor_ns > PROCESSOR_SHARE * took_ns, busy


def _turn(worker: HostedWorker) -> tuple[bool, int]:
    """Run a worker for one turn; returns whether there may be more to do, and the duration in nanoseconds."""
    if worker.worker.slowness.may_wait:
        busy, _, took_ns = _measured_turn(worker)
        return busy, took_ns
    began_ns = time.perf_counter_ns()
    busy = worker.turn()
    return busy, time.perf_counter_ns() - began_ns


def _measured_turn(worker: HostedWorker) -> tuple[bool, int, int]:
    """The same, with the thread's processor time as well, whose clock is slow; a worker that waits is a slow one."""
    began_ns, processor_ns = time.perf_counter_ns(), time.thread_time_ns()
    busy = worker.turn()
    processor_ns, took_ns = time.thread_time_ns() - processor_ns, time.perf_counter_ns() - began_ns
    worker.worker.slowness.used(processor_ns, took_ns)
    return busy, processor_ns, took_ns


def _seconds_until(due_ns: int | None) -> float | None:
    return None if due_ns is None else max(0.0, (due_ns - time.time_ns()) / 1e9)
