"""The user's own modules travel by value: to a Python that cannot import them, and in the version of now."""

from __future__ import annotations

import importlib
import linecache
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from fries_nb.errors import DataflowError
from fries_nb.spark.shipping import dumped, pickled

MODEL = """
import functools
import ours_rates as rates
from ours_package import below

@functools.cache
def squared(value):
    return value * value

class Model:
    def process(self, row):
        return row | {"out": rates.rate(row["value"]) + squared(2) + below.ONE}
"""
RATES = """
import threading
import ours_model

lock = threading.Lock()
BASE = 10

def rate(value):
    return value * BASE

def locked():
    return lock

def model():
    return ours_model.Model()
"""
ELSEWHERE = """
import pickle, sys
model = pickle.loads(sys.stdin.buffer.read())
print(model.process({"value": 7})["out"], "ours_model" in sys.modules)
"""


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that imports another, which imports it, and one of a package without ``__init__``."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ours_model.py").write_text(MODEL)
    (tmp_path / "ours_rates.py").write_text(RATES)
    (tmp_path / "ours_package").mkdir()
    (tmp_path / "ours_package" / "below.py").write_text("ONE = 1\n")
    yield importlib.import_module("ours_model")
    for name in ("ours_model", "ours_rates", "ours_package.below", "ours_package"):
        sys.modules.pop(name, None)


def test_a_python_without_the_modules_can_run_them(ours: Any, tmp_path: Path) -> None:
    """With what they import in turn, and a cached function; nothing is imported there."""
    payload = dumped(ours.Model())
    told = subprocess.run([sys.executable, "-c", ELSEWHERE], input=payload, capture_output=True, cwd="/", check=True)
    assert told.stdout.split() == [b"75", b"False"]


def test_cloudpickle_is_left_as_it_was(ours: Any) -> None:
    """A module that the user registered stays so; ours are not registered afterwards, not even after an error."""
    cloudpickle.register_pickle_by_value(ours)
    try:
        dumped(ours.Model())
        with pytest.raises(TypeError, match="lock"):
            dumped([ours.rates.lock])
        assert cloudpickle.list_registry_pickle_by_value() == {"ours_model"}
    finally:
        cloudpickle.unregister_pickle_by_value(ours)


def test_an_edited_module_is_shipped_once_it_is_reloaded(ours: Any, tmp_path: Path) -> None:
    """As in the notebook itself: the version in memory counts, and an object of the old version keeps it."""
    old = ours.Model()
    (tmp_path / "ours_model.py").write_text(MODEL.replace('"out"', '"newer"'))
    assert pickle.loads(dumped(ours.Model())).process({"value": 1}) == {"value": 1, "out": 15}
    importlib.invalidate_caches()
    importlib.reload(ours)
    assert pickle.loads(dumped(ours.Model())).process({"value": 1}) == {"value": 1, "newer": 15}
    assert pickle.loads(dumped(old)).process({"value": 1}) == {"value": 1, "out": 15}


def test_a_lock_of_a_module_stays_behind(ours: Any) -> None:
    """Who does not use it is not hindered by it; who does is told where to make it."""
    rates = pickle.loads(dumped(ours.rates))
    assert rates.BASE == 10
    with pytest.raises(AttributeError, match=r"no attribute 'lock' on this host.*make it in open\(\)"):
        rates.lock  # noqa: B018
    with pytest.raises(DataflowError, match=r"function of FM cannot be pickled.*belong into open\(\)"):
        pickled("FM", ours.rates.locked)


def test_lines_of_the_source_come_along(ours: Any, tmp_path: Path) -> None:
    """Those of a cell, whose file does not exist, and those of a module, whose file need not exist there."""
    cell, names = "<a cell>", {}
    linecache.cache[cell] = (9, None, ["def f(row):\n", "    return 1 / 0\n"], cell)
    exec(compile("".join(linecache.getlines(cell)), cell, "exec"), names)
    payload = dumped([names["f"], ours.Model()])
    linecache.cache.clear()
    (tmp_path / "ours_model.py").unlink()
    pickle.loads(payload)
    assert linecache.getline(cell, 2) == "    return 1 / 0\n"
    assert "class Model" in "".join(linecache.getlines(str(tmp_path / "ours_model.py")))


def test_code_keeps_the_name_of_its_file() -> None:
    """For tracebacks, in functions within functions too; cloudpickle 3.1.3 by itself calls all of it dynamic."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def outer():\n    return lambda: 1\n", "Cell In[3]", "exec"), names)
    loaded = pickle.loads(dumped(names["outer"]))
    assert (loaded.__code__.co_filename, loaded().__code__.co_filename) == ("Cell In[3]", "Cell In[3]")
