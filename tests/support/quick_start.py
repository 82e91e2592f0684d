"""Starting programs of Jupyter without three seconds in which they build grammars that nothing here asks for."""

from __future__ import annotations

import sys

SYNTAX = "rfc3987_syntax"
"""It builds a grammar for each of forty rules when it is imported; jsonschema checks no URIs where it is missing."""


def quickly(module: str) -> list[str]:
    """The command that calls ``main`` of a module, without these grammars; arguments may follow."""
    return [sys.executable, "-c", f"import sys; sys.modules[{SYNTAX!r}] = None; from {module} import main; main()"]
