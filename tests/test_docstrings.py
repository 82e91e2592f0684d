"""The public face is documented: every name has a docstring with its arguments and, where there is one, its result."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from IPython.core.magic_arguments import MagicArgumentParser

import fries_nb as fn
from fries_nb.__main__ import COMMANDS
from fries_nb.changes.change import Change
from fries_nb.controller.events import Outcome
from fries_nb.notebook.magics import FriesMagics
from fries_nb.notebook.questions import FriesQuestions
from fries_nb.run import Run

CLASSES = [*(value for name in fn.__all__ if inspect.isclass(value := getattr(fn, name))), Run, Change, Outcome]
FUNCTIONS = [value for name in fn.__all__ if inspect.isfunction(value := getattr(fn, name))]


def sections(docstring: str) -> dict[str, str]:
    """The text of each section of a docstring in Google's convention; that in front of them is named ''."""
    parts = re.split(r"^(Args|Attributes|Returns|Yields|Raises):\n", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries(section: str) -> set[str]:
    """The names that a section describes."""
    return set(re.findall(r"^    \*{0,2}(\w+):", section, flags=re.MULTILINE))


def missing(name: str, function: Callable[..., Any], docstring: str | None) -> list[str]:
    """What the docstring of a function lacks, in words."""
    if not docstring:
        return [f"{name}: no docstring"]
    found, signature = sections(docstring), inspect.signature(function)
    parameters = [one for one in signature.parameters if one not in ("self", "cls") and not one.startswith("_")]
    lacking = [one for one in parameters if one not in entries(found.get("Args", "") + found.get("Attributes", ""))]
    said = [f"{name}: {one} is not described" for one in lacking]
    returns = signature.return_annotation not in (None, "None", inspect.Signature.empty)
    if returns and not {"Returns", "Yields"} & set(found):
        said.append(f"{name}: its result is not described")
    return said


def members(of: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class that this package defines."""
    for base in of.__mro__:
        if base.__module__.startswith("fries_nb"):
            for name, value in vars(base).items():
                if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    yield f"{of.__name__}.{name}", value


def lacking_of(of: type) -> list[str]:
    """What the docstrings of a class, of its methods and of its properties lack."""
    initial = inspect.unwrap(of.__init__)
    own = getattr(initial, "__module__", "").startswith("fries_nb") or hasattr(of, "__dataclass_fields__")
    made_by_us = of in (Run, Change, Outcome, fn.Stream)  # users hold one, and construct none
    said = [] if of.__doc__ else [f"{of.__name__}: no docstring"]
    if own and not made_by_us:
        described = inspect.cleandoc(of.__doc__ or "")
        said += [one for one in missing(of.__name__, initial, described) if "result" not in one]
    for name, value in members(of):
        if isinstance(value, property):
            said += [] if value.__doc__ else [f"{name}: no docstring"]
        else:
            said += missing(name, value, inspect.getdoc(value))
    return said


@pytest.mark.parametrize("of", CLASSES, ids=lambda of: of.__name__)
def test_a_public_class_is_documented(of: type) -> None:
    """So are its methods with their arguments and results."""
    assert lacking_of(of) == []


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_public_function_is_documented(function: Callable[..., Any]) -> None:
    """With its arguments and its result."""
    assert missing(function.__name__, function, inspect.getdoc(function)) == []


def test_a_result_has_each_field_described() -> None:
    """What a user reads from a finished change is told with its unit."""
    fields = set(Outcome.__dataclass_fields__)
    assert fields - entries(sections(Outcome.__doc__ or "")["Attributes"]) == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_what_each_argument_is(command: str) -> None:
    """`--help` has a line for the command and for each of its arguments."""
    module = importlib.import_module(f"fries_nb.commands.{command}")
    assert module.__doc__
    parser = argparse.ArgumentParser()
    chosen = parser.add_subparsers()
    module.add_parser(chosen)
    [made] = chosen.choices.values()
    assert made.description
    assert [action.dest for action in made._actions if not action.help] == []


@pytest.mark.parametrize("of", [FriesMagics, FriesQuestions])
def test_a_magic_says_what_each_argument_is(of: type) -> None:
    """`%magic?` has a line for the magic and for each of its arguments."""
    for names in of.magics.values():  # type: ignore[attr-defined]
        for name in names.values():
            parser: MagicArgumentParser = getattr(of, name).parser
            assert parser.description
            assert [action.dest for action in parser._actions if not action.help] == [], name


def test_what_is_missing_is_seen() -> None:
    """The checks are not empty."""

    def undocumented(a: int, *, b: str = "") -> int:
        """Adds.

        Args:
            a: a number.
        """
        return a

    lacking = ["f: b is not described", "f: its result is not described"]
    assert missing("f", undocumented, undocumented.__doc__) == lacking
    assert missing("f", undocumented, None) == ["f: no docstring"]
    assert missing("f", undocumented, "Adds.\n\nArgs:\n    a: one.\n    b: two.\n\nReturns:\n    The sum.") == []
