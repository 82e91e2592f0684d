"""Pickling of user functions, with the user's own modules and the source lines of the functions.

cloudpickle pickles definitions of cells by value, and those of modules by name. But a module that the user wrote beside
the notebook does not exist on other machines, and a reused Python worker of Spark may hold an older version of it. So
modules that are not installed are pickled by value as well. Source lines are included for tracebacks, since neither the
file of a cell nor that of a module need exist on a host.

>>> pickle.loads(dumped(len))("abc")
3
>>> is_installed(pickle.__file__), is_installed("/home/me/mymodel.py")
(True, False)

fries_nb for the executors of a session: this package as a zip that Spark hands to all of them.
"""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
import os
import pickle
import site
import sys
import sysconfig
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from fries_nb.errors import DataflowError, exception_text
from fries_nb.operators.pickled_states import Name, imported, note, with_aliases
from fries_nb.spark.session import check_kind

ROOT = Path(__file__).parents[1]


def ship(spark: Any) -> str:
    """Distribute this version of fries_nb to the executors of a session; it takes precedence over an installed one.

    Its dependencies (pyarrow, pyzmq, msgspec, cloudpickle, networkx, numpy and pandas) are compiled in part and not
    included: they must be installed on the executors or be part of a packed environment (``spark.archives``).

    Args:
        spark: a classic SparkSession; a session with a local master does not need this.

    Returns:
        The path of the zip file that was added to the session.

    Raises:
        SessionError: the session is one of Spark Connect, has been stopped, or uses dynamic allocation.
    """
    check_kind(spark)
    file = Path(tempfile.mkdtemp(prefix="fries-package-")) / "fries_nb.zip"
    pack(file)
    spark.sparkContext.addPyFile(str(file))
    return str(file)


def pack(file: Path) -> None:
    """Write the package's modules into a zip file from which Python can import them."""
    modules = sorted(ROOT.rglob("*.py"))
    folders = sorted({module.parent for module in modules})  # those without __init__.py are found by their entries only
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as whole:
        for path in [*folders, *modules]:
            whole.write(path, Path(ROOT.name) / path.relative_to(ROOT))


_KNOWN = frozenset({"fries_nb", "pyspark", "py4j", "__main__", "__mp_main__"})
"""Packages that exist on every host, and the module that cloudpickle itself pickles by value."""
_INSTALLED = ("site-packages", "dist-packages")
_LRU_CACHE = type(functools.lru_cache(len))

_lock = threading.Lock()
_others: set[str] = set()  # names of modules that are not the user's


def dumped(value: Any) -> bytes:
    """Pickle a value so that ``pickle.loads`` works on a host without the user's modules.

    Raises:
        Exception: any exception of pickling.
    """
    with _by_value() as modules:
        file = io.BytesIO()
        pickler = _Pickler(file, modules)
        pickler.dump((value, pickler.definitions))
        return pickle.dumps(_Shipped(file.getvalue(), _lines(pickler.files)))


def pickled(operator: str, value: Any, what: str = "function") -> bytes:
    """Pickle a user's object together with the user's own modules; see ``dumped``.

    Args:
        operator: name of its operator.
        value: the object.
        what: what it is, for the message of an error.

    Raises:
        DataflowError: the object cannot be pickled; names the operator.
    """
    try:
        return dumped(value)
    except Exception as error:
        raise DataflowError(
            f"the {what} of {operator} cannot be pickled: {exception_text(error)}; "
            "open files, sockets and locks belong into open(), which runs on the host"
        ) from error


def user_modules() -> list[ModuleType]:
    """The imported modules that are the user's own: Python files that were not installed."""
    found = []
    for name in list(sys.modules.keys() - _others):
        module = sys.modules.get(name)
        if isinstance(module, ModuleType) and module.__name__ == name and _is_users(module):
            found.append(module)
        else:
            _others.add(name)
    return found


def _is_users(module: ModuleType) -> bool:
    if module.__name__.partition(".")[0] in _KNOWN:
        return False
    held = vars(module)
    paths = [held["__file__"]] if held.get("__file__") else list(held.get("__path__", ()))  # a package without a file
    return bool(paths) and not any(path.endswith((".so", ".pyd")) or is_installed(path) for path in paths)


@functools.cache
def is_installed(file: str) -> bool:
    """Whether a file belongs to Python or to an installed package, which hosts have too."""
    return any(
        any(part in path.split(os.sep) for part in _INSTALLED) or path.startswith(_installed_roots())
        for path in (file, os.path.realpath(file))
    )


@functools.cache
def _installed_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    roots = [paths[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")] + [site.getusersitepackages()]
    return tuple({os.path.join(path, "") for root in roots for path in (root, os.path.realpath(root))})


@contextlib.contextmanager
def _by_value() -> Iterator[frozenset[str]]:
    """Makes cloudpickle pickle the user's modules by value within the block."""
    with _lock:
        registered = cloudpickle.list_registry_pickle_by_value()
        modules = [module for module in user_modules() if module.__name__ not in registered]
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield frozenset(registered | {module.__name__ for module in modules})
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """cloudpickle's pickler, extended to modules that import each other, and functions behind ``functools.cache``.

    Args:
        modules: names of the modules to pickle by value.
        empty: whether they are pickled without their contents.

    Attributes:
        files: files of the user functions that were pickled.
        definitions: the user's classes and functions that were pickled by value, and can be found again by name.
    """

    def __init__(self, file: io.BytesIO, modules: frozenset[str], empty: bool = False) -> None:
        super().__init__(file)
        self.files: set[str] = set()
        self.definitions = _Definitions()
        self._modules = modules
        self._empty = empty

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ModuleType) and value.__name__ in self._modules:
            # Created before it is filled, since modules may refer to each other.
            state = {} if self._empty else self._state(value)
            return ModuleType, (value.__name__, value.__doc__), state, None, None, _fill
        if isinstance(value, _LRU_CACHE) and value.__module__ in self._modules | {"__main__"}:
            return _cached, (value.__wrapped__, value.cache_parameters())
        if value is self.definitions:
            return note, (dict(value.found), list(value.former))
        if isinstance(value, FunctionType):
            self.files.add(value.__code__.co_filename)
        if isinstance(value, type | FunctionType) and value.__module__ in self._modules | {"__main__"}:
            self.definitions.add(value)
        if isinstance(value, CodeType):
            _, parts = self.dispatch_table[CodeType](value)
            return _code, (value.co_filename, *parts)
        return with_aliases(value, super().reducer_override(value))

    def _state(self, module: ModuleType) -> dict[str, Any]:
        """The contents of a module, without locks and connections, which functions have to create in ``open()``."""
        names = {name: value for name, value in vars(module).items() if not name.startswith("__")}
        return {name: value for name, value in names.items() if self._can_travel(value)}

    def _can_travel(self, value: Any) -> bool:
        if isinstance(value, (ModuleType, str, int, float)):
            return True
        try:
            _Pickler(io.BytesIO(), self._modules, empty=True).dump(value)
        except Exception:  # noqa: BLE001 - pickling may raise anything; the attribute is reported missing on use
            return False
        return True


def _code(file: str, *parts: Any) -> CodeType:
    """Restore the file name of code, by which tracebacks find its lines; cloudpickle 3.1.3 replaces it."""
    return CodeType(*parts).replace(co_filename=file)


class _Definitions:
    """The definitions that a pickler has met; the pickler writes them after all else, when they are complete."""

    def __init__(self) -> None:
        self.found: dict[Name, Any] = {}
        self.former: list[tuple[Name, Any]] = []

    def add(self, value: type | FunctionType) -> None:
        """Add a class or function if its module has one of its name: itself, or what a cell that ran again made."""
        name = (value.__module__, value.__qualname__)
        found = imported(name)
        if found is None or isinstance(found, type) is not isinstance(value, type):
            return
        self.found[name] = found
        if found is not value:
            self.former.append((name, value))
            self.found[found.__module__, found.__qualname__] = found


class _Shipped:
    """A pickled value with the source lines of its functions; unpickles to the value."""

    def __init__(self, pickled: bytes, lines: dict[str, list[str]]) -> None:
        self._parts = (pickled, lines)

    def __reduce__(self) -> Any:
        return _unpacked, self._parts


def _unpacked(pickled: bytes, lines: dict[str, list[str]]) -> Any:
    for file, text in lines.items():
        linecache.cache[file] = (sum(map(len, text)), None, text, file)
    return pickle.loads(pickled)[0]


def _lines(files: set[str]) -> dict[str, list[str]]:
    """File to its source lines, for cells and the user's modules, if available."""
    own = [file for file in files if not is_installed(file)]
    for file in own:
        linecache.checkcache(file)  # the file may have been edited
    return {file: lines for file in own if (lines := linecache.getlines(file))}


def _fill(module: ModuleType, state: dict[str, Any]) -> None:
    def missing(name: str) -> Any:
        raise AttributeError(
            f"module {module.__name__!r} has no attribute {name!r} on this host; what cannot be pickled is not "
            "shipped with a module: make it in open(), which runs here"
        )

    vars(module).update({"__getattr__": missing, **state})


def _cached(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)
