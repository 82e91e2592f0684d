"""How a user's function fails, and what is said of it: its own traceback, without the frames of this package."""

from __future__ import annotations

import os
import traceback

from fries_nb.errors import OperatorError
from fries_nb.operators.instance import Instance

FAILURES = (Exception, SystemExit)
"""What a user's function may end with; it has failed on its tuple then, and no more than that."""
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_OURS = tuple(os.path.join(_PACKAGE, room) + os.sep for room in ("worker", "operators", "dataflow"))


def user_traceback(error: BaseException) -> str:
    """The traceback from the user's frame on, as text; frames of this package are left out."""
    if isinstance(error, OperatorError) and error.details:
        return error.details
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    lines = ["Traceback (from your code):\n", *traceback.format_list(frames)] if frames else []
    return "".join([*lines, *traceback.format_exception_only(error)])


def failure(instance: Instance, error: BaseException) -> OperatorError:
    """The user's error as ours, with the traceback from the user's frame on."""
    name = instance.worker.operator
    reason = str(error) if isinstance(error, OperatorError) else f"{type(error).__name__}: {error}"
    return OperatorError(f"{name} failed on a tuple: {reason}", name, user_traceback(error))
