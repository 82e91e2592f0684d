"""``%load_ext fries_nb`` and ``%unload_ext fries_nb``: registers the magics, their completion and the display of runs.

Loading starts nothing and prints nothing; unloading affects neither runs nor the variables that hold them.

Tab completion behind the magics: names of dataflows, runs, operators, schedulers and variables, and options.

The display of a run as a cell's value: a static picture and, where there is a kernel, the live view.

The two are separate outputs of the cell. A front end chooses among the MIME types of one bundle without regard to the
kernel: from a bundle that contains a view it would show the view, and an error once the kernel is gone, instead of the
picture. As separate outputs, a style rule hides the picture while the view is alive, and hides the error when it is
not. A saved notebook keeps the picture, which is updated whenever a change or a rescale has ended, and when the run
has. (As HTML the picture would lose its shapes and keep its text wherever a notebook is not trusted.)
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, completion_matcher
from IPython.core.error import UsageError
from IPython.core.formatters import IPythonDisplayFormatter, MimeBundleFormatter
from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell
from traitlets import TraitError

from fries_nb.dataflow.constraints import OnViolation
from fries_nb.dataflow.updates import Lighter
from fries_nb.displays import show_with
from fries_nb.errors import RunError
from fries_nb.notebook.cells import CellOutput, DeclaringCell
from fries_nb.notebook.form import Offer, TypedFunctions, functions_for
from fries_nb.notebook.known import Registry
from fries_nb.notebook.magics import FriesDashboard, FriesDifferences, FriesMagics, FriesRescaling
from fries_nb.notebook.options import options, shortened
from fries_nb.notebook.questions import FriesComparing, FriesConstraints, FriesProgress, FriesQuestions
from fries_nb.notebook.rollout_magics import FriesRollouts
from fries_nb.notebook.static_pictures import ONE_OF_TWO
from fries_nb.notebook.statuses import status_line
from fries_nb.notebook.summaries import changeable, quoted
from fries_nb.notebook.waits import Notes, shown_call
from fries_nb.planning.schedulers import CHOICES
from fries_nb.report.dag import dag_png
from fries_nb.report.runs import run_svg
from fries_nb.run import Run

if TYPE_CHECKING:
    from fries_nb.notebook.beside import Panels, ViewPlace
    from fries_nb.notebook.dashboard import RunView
    from fries_nb.notebook.difference_panel import DifferencePanel


def completion(known: Registry, magics: Mapping[str, Any]) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """A matcher for IPython's completer, which takes precedence behind a magic of ours, except in expressions."""

    @completion_matcher(identifier="fries_names", api_version=2)
    def fries_names(context: CompletionContext) -> SimpleMatcherResult:
        line, token = context.text_until_cursor.lstrip(), context.token
        magic = magics.get(line.partition(" ")[0].lstrip("%")) if line.startswith("%") else None
        if magic is None:
            return SimpleMatcherResult(completions=[])
        rest = line.partition(" ")[2]
        before = rest[: len(rest) - len(token)]
        found = [option for option in _offered(magic, before.split(), known) if option.startswith(token)]
        # If a matcher finds nothing, IPython completes Python's names; so the typed text itself is returned instead.
        alone = [*found, *([] if found or not token else [token])]
        expression = "=" in before
        return SimpleMatcherResult(
            completions=[SimpleCompletion(option) for option in (found if expression else alone)],
            suppress=not expression,
        )

    return fries_names  # type: ignore[no-any-return]


def _offered(magic: Any, before: Sequence[str], known: Registry) -> list[str]:
    """The possible continuations of a magic's line."""
    if before and before[-1] == "--scheduler":
        return list(CHOICES)
    if before and before[-1] == "--on-violation":
        return list(OnViolation)
    if before and before[-1] == "--lighter":
        return known.variables_of(Lighter)
    if before and before[-1] == "--of":
        return [quoted(flow) for flow in dict.fromkeys([*known.flows(), *(run.graph.name for run in known.runs())])]
    return [*_names(magic.__name__, known), *options(magic)]


def _names(magic: str, known: Registry) -> list[str]:
    live = known.live()
    if magic == "fries_run":
        return [quoted(name) for name in known.flows()]
    if magic in ("fries_reconfigure", "fries_examples", "fries_canary", "fries_shadow"):
        return [f"{quoted(name)}=" for run in live for name in changeable(run.graph)]
    if magic in ("fries_plan", "fries_constrain"):
        graphs = [run.graph for run in live] or [flow.graph() for flow in known.flows().values()]
        return [quoted(name) for graph in graphs for name in (changeable(graph) if magic == "fries_plan" else graph)]
    if magic == "fries_frontier":
        return [quoted(name) for run in live for name in run.graph if not run.graph.by_name[name].traits.is_source]
    if magic in ("fries_state", "fries_rows", "fries_requeue"):
        return [quoted(name) for run in known.runs() for name in run.graph]
    if magic == "fries_rescale":
        hosts = [str(number) for run in live for number in _other_hosts(len(run.topology().hosts))]
        return [*hosts, *(f"{quoted(name)}=" for run in live for name in changeable(run.graph))]
    return []


def _other_hosts(present: int) -> tuple[int, ...]:
    """The numbers of hosts next to the present one."""
    return tuple(number for number in (present + 1, present - 1) if number)


PREFIX = "fries_"


def load(shell: InteractiveShell) -> None:
    """Register the magics and their completion."""
    known, notes = Registry(shell.user_ns), Notes()
    display = RunDisplay(shell, known.cell, lambda: doing.refresh, lambda: doing.beside)
    try:
        doing = FriesMagics(shell, known, notes, display.open, display.offer)
    except TraitError as error:  # in the user's ipython_config.py, or by an earlier %config
        raise UsageError(f"fries_nb cannot be loaded: {error}; %config changes it for this session") from error
    questions = FriesQuestions(shell, known, notes, doing)
    rescaling = FriesRescaling(shell, known, lambda: doing.refresh)
    others = (
        FriesDifferences(shell, known, doing), FriesConstraints(shell, known), FriesProgress(shell, known),
        FriesComparing(shell, known), FriesRollouts(shell, known),
        FriesDashboard(shell, known, functools.partial(_display, shell, display)),
    )  # fmt: skip
    magics = (doing, questions, rescaling, *others)
    shell.register_magics(*magics)
    show_with(functools.partial(shown_call, shell))
    _shown_as(shell).for_type(Run, display)
    if getattr(shell, "kernel", None) is not None:
        _shown_by(shell).for_type(Run, display.show)
    if shell.Completer is not None:
        ours = {name: getattr(magic, name) for magic in magics for name in dir(magic) if name.startswith(PREFIX)}
        shell.Completer.custom_matchers.append(completion(known, ours))


def show(run: Any, offer: Any) -> None:
    """Show a run in the cell that is being executed; see ``fries_nb.show``."""
    shell = get_ipython()
    if shell is None:
        raise RunError(
            "fn.show(run) needs a Jupyter kernel; elsewhere a run as the last line of a cell is its picture, and "
            "run.metrics() and run.report(path) say how it goes"
        )
    if not isinstance(run, Run):
        raise RunError(f"fn.show(run) shows what flow.run() returned; got {shortened(repr(run))}")
    if f"{PREFIX}run" not in shell.magics_manager.magics["line"]:
        shell.run_line_magic("load_ext", "fries_nb")
    _display(shell, _shown_as(shell).for_type(Run), run, offer)


def _display(shell: InteractiveShell, display: Any, run: Run, offer: Any) -> None:
    """Show a run in the cell that is being executed: live where there is a kernel."""
    if getattr(shell, "kernel", None) is not None:
        display.show(run, offer)
    else:
        shell.display_pub.publish(display(run))


def _shown_as(shell: InteractiveShell) -> MimeBundleFormatter:
    assert shell.display_formatter is not None  # every shell has one
    formatter: MimeBundleFormatter = shell.display_formatter.mimebundle_formatter
    return formatter


def _shown_by(shell: InteractiveShell) -> IPythonDisplayFormatter:
    assert shell.display_formatter is not None
    formatter: IPythonDisplayFormatter = shell.display_formatter.ipython_display_formatter
    return formatter


def unload(shell: InteractiveShell) -> None:
    """Remove everything that ``load`` registered."""
    for kind in shell.magics_manager.magics.values():
        for name in [name for name in kind if name.startswith(PREFIX)]:
            del kind[name]
    show_with(None)
    ours = (
        FriesMagics, FriesQuestions, FriesConstraints, FriesProgress, FriesRescaling, FriesComparing, FriesDashboard,
        FriesDifferences, FriesRollouts,
    )  # fmt: skip
    shell.configurables[:] = [part for part in shell.configurables if not isinstance(part, ours)]
    _shown_as(shell).pop(Run, None)
    _shown_by(shell).pop(Run, None)
    if shell.Completer is not None:
        matchers = shell.Completer.custom_matchers
        matchers[:] = [matcher for matcher in matchers if matcher.__module__ != completion.__module__]


class RunDisplay:
    """Shows runs; a run that is shown several times has one live view, updated every ``period_s()`` seconds.

    It is beside the notebook if ``is_beside()``, and the page has room.
    """

    def __init__(
        self, shell: InteractiveShell, cell_of: Callable[[str], DeclaringCell | None], period_s: Callable[[], float],
        is_beside: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._shell = shell
        self._cell_of = cell_of
        self._period_s = period_s
        self._is_beside = is_beside
        self._views: dict[Run, RunView] = {}
        self._outputs: dict[Run, list[CellOutput]] = {}
        self._differences: dict[Run, DifferencePanel] = {}  # the last one of each run
        self._panels: Panels | None = None  # of this kernel, once a run is shown
        self._opened: tuple[Run, int] | None = None  # the run that was opened last, and the number of that cell

    def open(self, run: Run) -> None:
        """Show a run that has been started in the cell that is being executed; nothing without a kernel."""
        if self._is_beside() and getattr(self._shell, "kernel", None) is not None:
            self._publish(run, None)
            self._opened = run, self._shell.execution_count

    def offer(self, panel: DifferencePanel) -> None:
        """Show a difference in the live view of its run, now or as soon as there is one."""
        self._differences[panel.run] = panel
        if (view := self._views.get(panel.run)) is not None:
            view.difference.offer(panel)

    def show(self, run: Run, offer: Offer | None = None) -> None:
        """Publish the picture and the live view in the cell that is being executed; needs a kernel.

        With an offer (operator to label to function) the form offers these functions only, in a new view. A cell that
        has started the run shows it already.

        Raises:
            FriesError: an operator cannot run a function that is offered for it.
        """
        if offer is not None or self._opened != (run, self._shell.execution_count):
            self._publish(run, offer)

    def _publish(self, run: Run, offer: Offer | None) -> None:
        view = self._view(run) if offer is None else self._new_view(run, offer)
        output = CellOutput(self._shell)
        self._outputs.setdefault(run, []).append(output)
        self._shell.display_pub.publish({"text/html": ONE_OF_TWO})
        output.create(self(run))
        place = self._placed(view, run.graph.name) if self._is_beside() else view
        self._shell.display_pub.publish(place.mime_bundle())

    def __call__(self, run: Run) -> dict[str, Any]:
        """The static picture as a MIME bundle: text and SVG, and PNG where Graphviz is installed."""
        text = f"{status_line(run, run.metrics())}\nNext: %fries_plan, %fries_reconfigure, %fries_status"
        bundle = {"text/plain": text, "image/svg+xml": run_svg(run)}
        if png := dag_png(run.graph):  # for front ends without SVG, such as export to PDF
            bundle["image/png"] = base64.b64encode(png).decode()
        return bundle

    def _view(self, run: Run) -> RunView:
        view = self._views.get(run)
        if view is None or not view.is_open:
            view = self._views[run] = self._new_view(run, None)
            if run in self._differences:
                view.difference.offer(self._differences[run])
        return view

    def _new_view(self, run: Run, offer: Offer | None) -> RunView:
        from fries_nb.notebook.dashboard import RunView

        source = functions_for(run.graph, self._shell.user_ns, offer, self._shell.set_next_input)
        view = RunView(run, source, self._renew, self._period_s)
        if isinstance(source, TypedFunctions):
            view.menu.write_into(self._cell_of, self._shell.set_next_input)
        return view

    def _placed(self, view: RunView, name: str) -> ViewPlace:
        """The view beside the notebook, if the page has room."""
        from fries_nb.notebook.beside import Panels, ViewPlace

        if self._panels is None:
            self._panels = Panels()
        return ViewPlace(view, name, self._panels)

    def _renew(self, run: Run) -> None:
        for output in self._outputs.get(run, ()):
            output.replace(self(run))
