"""Random functions have the same effects on the common path and in the inner loop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_setting import batch, instance

from fries_nb.dataflow.graph import Kind
from fries_nb.errors import OperatorError
from fries_nb.operators import executors, inner_loop
from fries_nb.operators.executors import InterruptFlag, executor_of
from fries_nb.operators.instance import Ready
from fries_nb.operators.rows import item_use
from fries_nb.protocol.rollout import RolloutStep

Row = dict[str, Any]
USUAL = ("set", "sum", "overwrite", "read", "text")
UNUSUAL = (
    "set", "other", "overwrite", "same", "list", "delete", "pop", "clear", "setdefault", "update", "or", "or unused",
    "copy", "items", "keep", "write to the kept", "give the kept", "drop", "new", "interrupt", "fail", "state", "count",
    "key", "absent",
)  # fmt: skip
STEPS = st.tuples(
    st.lists(st.sampled_from(USUAL), max_size=3).map(tuple),
    st.lists(st.tuples(st.sampled_from(UNUSUAL), st.sampled_from([5, 13, 29, 60]), st.integers(0, 59)), max_size=2),
    st.sampled_from(["map", "filter", "keyed", "split"]),
    st.one_of(st.none(), st.lists(st.sampled_from(USUAL), max_size=2).map(tuple)),  # of a version in a canary
)


class Drawn:
    """A function that does the usual with each row, and the unusual with some: those of a remainder by a modulus."""

    def __init__(self, usual: tuple[str, ...], unusual: list[tuple[str, int, int]], flag: InterruptFlag) -> None:
        self.usual, self.unusual, self.flag = usual, unusual, flag
        self.kept: list[Row] = []
        self.initial_state = list

    def process(self, row: Row, state: list[int]) -> Any:
        """Of a keyed operator."""
        state.append(row["n"])
        for step in self.usual:
            if (row := self.after(step, row, state)) is None:
                return None
        for step, modulus, remainder in self.unusual:
            if row["n"] % modulus == remainder % modulus and (row := self.after(step, row, state)) is None:
                return None
            if "n" not in row:
                return row
        return row

    def after(self, step: str, row: Row, state: list[int]) -> Any:
        """The row after one step."""
        number = row["n"]
        result: Any = row
        if step in ("set", "other", "sum", "text", "same", "overwrite", "list", "state", "count", "key"):
            name, value = {
                "set": ("y", number), "other": ("o", number), "sum": ("z", row["x"] + number),
                "text": ("t", f"{row['s']}"), "same": ("x", row["x"]), "overwrite": ("x", number * 2),
                "list": ("y", self.kept and state), "state": ("y", state), "count": ("c", len(state)), "key": ("k", 9),
            }[step]  # fmt: skip
            row[name] = value
        elif step in ("delete", "pop", "clear", "setdefault", "update"):
            {
                "delete": lambda: row.__delitem__("s") if "s" in row else None, "pop": lambda: row.pop("x", None),
                "clear": row.clear, "setdefault": lambda: row.setdefault("w", 1), "update": lambda: row.update(y=0),
            }[step]()  # fmt: skip
            row.update(n=number, x=row.get("x", 0), s=row.get("s", ""), k=row.get("k", 0)) if step != "delete" else None
        elif step in ("or", "or unused", "copy", "new"):
            made = {"or": lambda: row | {"y": 5}, "or unused": lambda: row | {"u": 1}, "copy": row.copy,
                    "new": lambda: {"n": number, "x": row["x"], "s": "new", "k": row["k"]}}[step]()  # fmt: skip
            result = row if step == "or unused" else made
        elif step == "items":
            row["y"] = len(str([*row.items()]))
        elif step == "keep":
            self.kept.append(row)
        elif step == "write to the kept" and self.kept:
            self.kept[-1]["x"] = -1
        elif step == "give the kept" and self.kept:
            result = self.kept[0]
        elif step == "drop":
            result = None
        elif step == "interrupt":
            self.flag.set()
        elif step == "fail":
            raise ValueError(number)
        elif step == "absent":
            row["y"] = row.get("none", row["k"])
        return result

    def called(self, kind: str, is_split: bool) -> Any:
        """The function as an operator of a kind calls it."""
        if is_split:
            return lambda row, s=[]: self.process(row, s) is None or row.get("n", 0) % 3
        if kind == "filter":
            return lambda row, s=[]: self.process(row, s) is not None and row.get("n", 0) % 3 > 0
        return self if kind == "keyed" else (lambda row, s=[]: self.process(row, s))


BY_NAME = {
    "set": "row['y'] = row['n']", "sum": "row['z'] = row['x'] + row['n']", "overwrite": "row['x'] = row['n'] * 2",
    "read": "row['s']", "text": "row['t'] = 't' + row['s']", "other": "row['o'] = row['n']",
    "same": "row['x'] = row['x']", "list": "row['y'] = state", "interrupt": "flag.set()", "key": "row['k'] = 9",
    "fail": "raise ValueError(row['n'])", "absent": "row['y'] = row['none']", "drop": "return END",
    "count": "row['c'] = len(state)", "any": "name = 'y' if row['n'] % 2 else 'w'; row[name] = 1",
    "look": "name = 's' if row['n'] % 2 else 'x'; row['v'] = str(row[name])",
}  # fmt: skip
"""Steps of functions that use their row by names only."""
NAMED = st.tuples(
    st.lists(st.sampled_from(["set", "sum", "overwrite", "read", "text"]), max_size=3).map(tuple),
    st.lists(st.tuples(st.sampled_from([*BY_NAME]), st.sampled_from([5, 13, 29, 60]), st.integers(0, 59)), max_size=2),
    st.sampled_from(["map", "filter", "keyed", "split"]),
    st.none(),
)


class Named:
    """Such a function; what it does is in its code."""

    def __init__(self, usual: tuple[str, ...], unusual: list[tuple[str, int, int]], flag: InterruptFlag) -> None:
        self.kept: list[Row] = []
        self.initial_state = list
        self._lines = [BY_NAME[step] for step in usual]
        for step, modulus, remainder in unusual:
            self._lines += [f"if row['n'] % {modulus} == {remainder % modulus}:", f"    {BY_NAME[step]}"]
        self._flag = flag

    def called(self, kind: str, is_split: bool) -> Any:
        """The function as an operator of a kind calls it."""
        end = "row['n'] % 3" if is_split else "row['n'] % 3 > 0" if kind == "filter" else "row"
        lines = ["state.append(row['n'])", *self._lines, f"return {end}"]
        arguments = "row, state" if kind == "keyed" else "row"
        found: dict[str, Any] = {"flag": self._flag, "state": [], "END": 0 if kind in ("filter", "split") else None}
        exec("\n    ".join([f"def process({arguments}):", *lines]), found)
        assert item_use(found["process"]) is not None
        self.process = found["process"]
        return self if kind == "keyed" else self.process


def observed(drawn: list[Any], quota: int, make: Any = Drawn) -> list[Any]:
    """All that can be seen of a chain of these functions."""
    flag = InterruptFlag()
    functions = [make(usual, unusual, flag) for usual, unusual, *_ in drawn]
    chain = []
    for at, (function, (_, unusual, kind, other)) in enumerate(zip(functions, drawn, strict=True)):
        is_split = kind == "split" and at == len(drawn) - 1
        key, branches = ("k",) if kind == "keyed" else (), {"branches": 3} if is_split else {}
        of_kind = Kind.SPLIT if is_split else Kind.FILTER if kind == "filter" else Kind.MAP
        chain.append(instance(f"O{at}", of_kind, function.called(kind, is_split), key=key, **branches))
        if other is not None:
            new = Drawn(other, unusual, flag).called(kind, is_split)
            chain[-1].prepared["u1"] = Ready(new, lambda old: [None, *old], back=lambda state: state[1:])
            chain[-1].decide_rows("u1", (RolloutStep({}, 0.4),))
    running = executor_of(chain, flag, chain[-1].operator.branches, "")
    seen: list[Any] = []
    try:
        for start in (0, 10, 35):
            numbers = range(start, start + 25)
            data = batch(
                n=list(numbers), x=[n % 7 for n in numbers], s=[str(n) for n in numbers], k=[n % 3 for n in numbers]
            )
            running.load("L", data)
            while running.remaining:
                flag.clear()
                seen.append(running.advance(quota))
                seen += [(branch, str(out.schema), out.to_pydict()) for branch, out in running.results()]
        seen += [(one.arms.old.taken, one.arms.new.taken) for one in chain if one.arms]
    except OperatorError as error:
        seen += [str(error), error.details, running.remaining]
    seen += [[*form.live.items()] for one in chain for form in (one.state, one.newest)]
    return [*map(repr, seen), [one.processed for one in chain], [repr(function.kept) for function in functions]]


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=3), st.sampled_from([7, 12, 25]))
def test_both_paths_have_equal_effects(drawn: list[Any], quota: int) -> None:
    """Of functions that are unusual now and then, in chains."""
    _compare(drawn, quota, Drawn)


@settings(max_examples=150, deadline=None)
@given(st.lists(NAMED, min_size=1, max_size=3), st.sampled_from([7, 12, 25]))
def test_both_paths_have_equal_effects_by_name(drawn: list[Any], quota: int) -> None:
    """Of functions whose code shows what they may do to a row."""
    _compare(drawn, quota, Named)


def _compare(drawn: list[Any], quota: int, make: Any) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(executors, "LEAST", 4)
        patched.setattr(inner_loop, "LEAST", 4)
        got = observed(drawn, quota, make)
        patched.setattr(executors, "can_loop", lambda *_: False)
        assert got == observed(drawn, quota, make)
