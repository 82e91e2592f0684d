"""The reason of a failed job of hosts, extracted from Spark's exception, which is long and begins with an empty phrase.

>>> job = failure_of(MISSING)
>>> job.reason, job.lasting
("No module named 'fries_nb' in the executors' Python; fn.ship(spark) brings fries_nb to them, ...", True)
>>> job.host
1
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_BARRIER = "Stage failed because barrier task "
_ENDED = re.compile(r"barrier task ResultTask\((\d+), (\d+)\)")
_TRACEBACK = "Traceback (most recent call last):"
_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): (No module named '([\w.]+)')")
_LASTING = re.compile(
    r"(ModuleNotFoundError|ImportError|.*PySparkImportError|.*PACKAGE_NOT_INSTALLED|.*PYTHON_VERSION_MISMATCH"
    r"|java\.io\.IOException: Cannot run program)\b"
)
_JAVA = re.compile(r"^[\w.$]+(Exception|Error|Failure): ")

MISSING = """Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent \
failure reason: Stage failed because barrier task ResultTask(7, 1) finished unsuccessfully.
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: \
Traceback (most recent call last):
  File "pyspark.zip/pyspark/serializers.py", line 483, in loads
    return cloudpickle.loads(obj, encoding=encoding)
ModuleNotFoundError: No module named 'fries_nb'
 SQLSTATE: 38000
	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)"""
"""The message of Spark 4.3 for an executor without fries_nb, shortened: an example for tests."""


@dataclass(frozen=True)
class JobFailure:
    """The reason of a failed job of hosts.

    Attributes:
        host: index of the host whose task failed, as Spark reports it; 0 if unknown.
        reason: the reason in one line.
        details: the traceback of its Python exception, if there is one.
        lasting: whether a retry would fail again.
    """

    host: int
    reason: str
    details: str = ""
    lasting: bool = False


def failure_of(text: str, place: Callable[[int, int], str] = lambda stage, task: "") -> JobFailure:
    """Extract the reason from an exception of Spark.

    Args:
        text: the exception's message, with all its lines.
        place: returns the executor of a task of a stage, as "executor 1 (10.0.0.7)"; empty if unknown.

    Returns:
        The reason.
    """
    ended = _ENDED.search(text)
    host, executor = (int(ended[2]), place(int(ended[1]), int(ended[2]))) if ended else (0, "")
    raised, details = _python(text)
    reason = raised or _java(text)
    lasting = _LASTING.match(reason) is not None
    if lasting:
        reason = _advice(reason, executor)
    elif executor:
        reason = f"{reason} ({executor})"
    return JobFailure(host, reason, details, lasting)


def _python(text: str) -> tuple[str, str]:
    """Python's exception and its traceback; both empty if there is none."""
    _, found, after = text.partition(_TRACEBACK)
    if not found:
        return "", ""
    lines = re.split(r"\n\s*SQLSTATE:|\n\s+at ", after, maxsplit=1)[0].rstrip().splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    behind = lines[frames[-1] + 1 :] if frames else lines
    raised = next((line for line in behind if line and not line[0].isspace()), "")
    return raised, f"{_TRACEBACK}{chr(10).join(lines)}"


def _java(text: str) -> str:
    """The line with the cause: the first one, or the one after the sentence common to all failed barrier tasks."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and _BARRIER in lines[0] and (_JAVA.match(lines[1]) or not lines[1].startswith("\t")):
        return lines[1].strip()
    return lines[0] if lines else "Spark does not say why"


def _advice(reason: str, executor: str) -> str:
    """The reason of a lasting failure, completed with the executor and a remedy."""
    missing = _MISSING.match(reason)
    of = f"the Python of {executor}" if executor else "the executors' Python"
    if missing is None:
        return f"{reason.rstrip('.')} in {of}; set PYSPARK_PYTHON to a Python like the driver's on all of them"
    how = "install it there, or send a packed environment along (README: On a cluster)"
    if missing[2].partition(".")[0] == "fries_nb":
        how = "fn.ship(spark) brings fries_nb to them, a packed environment what it needs (README: On a cluster)"
    return f"{missing[1]} in {of}; {how}"
