"""Drivers in processes of their own, which die at a step of a commit as on a machine that loses its power."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

LAST_WORDS = "the driver dies here"
LOOK_S = 0.3


def die_at(owner: Any, function: str, call: int) -> None:
    """Let this process die in front of one of the calls of a function of a class or module."""
    calls, made = itertools.count(1), getattr(owner, function)

    def counted(*arguments: Any, **named: Any) -> Any:
        if next(calls) == call:
            print(LAST_WORDS, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return made(*arguments, **named)

    setattr(owner, function, counted)


def see_die(program: str, *arguments: str, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Start a driver and wait until it has died where it was to die.

    Args:
        program: its file.
        arguments: its arguments.
        meanwhile: called again and again until it has died.
    """
    with subprocess.Popen([sys.executable, program, *arguments], stdout=subprocess.PIPE, text=True) as driver:
        try:
            while driver.poll() is None:
                meanwhile()
                with suppress(subprocess.TimeoutExpired):
                    driver.wait(LOOK_S)
        finally:
            driver.kill()
        assert driver.stdout is not None
        assert LAST_WORDS in driver.stdout.read()
        assert driver.returncode == -signal.SIGKILL
