"""Functions that the author offers: the form chooses among them, and evaluates nothing that a page sends."""

from __future__ import annotations

import ast
import threading
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager
from notebook_shell import StandIn, replace_runs, told
from patience import PATIENCE_S

import fries_nb as fn
from fries_nb.errors import DataflowError, PlanError, RunError
from fries_nb.notebook.dashboard import RunView
from fries_nb.notebook.form import ChangeForm, OfferedFunctions, TypedFunctions, functions_for
from fries_nb.protocol.messages import Paused, WorkerId

SUPPORT = str(Path(__file__).parents[1] / "support")  # for a kernel, which has none of pytest's paths
SHOW = f"""
import sys, threading
sys.path.append({SUPPORT!r})
import pytest
from notebook_shell import StandIn, replace_runs
replace_runs(pytest.MonkeyPatch())
get_ipython().run_line_magic("load_ext", "fries_nb")
import fries_nb as fn
class Score:
    def process(self, row, state): return row
flow = fn.Dataflow("fraud")
flow.source("numbers", fn.rate(2_000)).map("FM", Score(), key="value").sink("out", fn.memory())
from fries_nb.run import Run
show = get_ipython().display_formatter.mimebundle_formatter.for_type(Run).show
"""
JOINED = f"""
applying = [thread for thread in threading.enumerate() if thread.name == "fries-apply"]
for thread in applying:
    thread.join({PATIENCE_S / 10})
over = not any(thread.is_alive() for thread in applying)
"""

WIDGETS = """
from ipywidgets.widgets.widget import _instances
traits = {name: list(widget.keys) for name, widget in _instances.items()}
"""


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A function to offer."""
    return row

pytestmark = pytest.mark.usefixtures("with_fraud")


@pytest.fixture
def run(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A stand-in that runs."""
    started = replace_runs(monkeypatch)
    told(shell, "%fries_run")
    return started[0]


def form_of(run: StandIn, offer: Any) -> ChangeForm:
    """A form that chooses among these functions."""
    return ChangeForm(run, OfferedFunctions(run.graph, offer), lambda plan: None)  # type: ignore[arg-type]


def applied(form: ChangeForm) -> str:
    """What the form says when the change is over."""
    form.apply.click()
    for thread in threading.enumerate():
        if thread.name == "fries-apply":
            thread.join(PATIENCE_S)
    return str(form.result.value)


def test_the_form_chooses_among_what_is_offered(run: StandIn) -> None:
    """By label, for the operators that have an offer; nothing is applied before something is chosen."""
    form = form_of(run, {"FM": {"same": plain, "light": fn.Update(plain)}})
    assert "To change FM, click them in the picture" in form._hint.value
    assert "typing others is off" in form._hint.value
    form.choose(["FM", "MC"])
    assert list(form.functions) == ["FM"]
    assert "no function is offered for MC" in form._hint.value
    assert "FM has no new function; choose one" in applied(form)
    form.functions["FM"].value = "light"
    form.plan.click()
    assert "nothing has changed yet" in form.result.value
    assert "done by fries" in applied(form)
    assert run.asked["FM"].function is plain


def test_without_an_offer_a_page_changes_nothing(run: StandIn) -> None:
    """The form says that it takes no text, and how functions are offered."""
    form = form_of(run, {})
    form.choose(["FM"])
    assert form._rows.children == ()
    assert "None is offered here; the author can, by fn.show(run, offer={...})" in form._hint.value
    assert form.apply.disabled


def test_a_page_for_looking_ends_and_undoes_nothing(run: StandIn) -> None:
    """It has no Stop and no proposals; a page that sends clicks all the same reverts nothing that it may not change."""
    run.reconfigure({"FM": plain, "MC": plain})
    run.outcome = None
    waiting = run.reconfigure({"FM": plain})
    for offer, refused in (({}, "FM"), ({"MC": {"same": plain}}, "FM")):
        view = RunView(run, OfferedFunctions(run.graph, offer))  # type: ignore[arg-type]
        assert (view.stop in view._bar.children) is bool(offer)
        assert (view.proposals in [frame.children[0] for frame in view.frames]) is bool(offer)
        assert view.changes.revert.disabled
        assert view.changes.cancel.disabled
        for button in (view.changes.cancel, view.changes.revert, *([] if offer else [view.stop])):
            button.disabled = False
            button.click()
            if button is not view.stop:
                assert f"this page does not change {refused}" in view.changes.result.value
        assert view._bar._ending is None
        view.close()
    assert not waiting.done
    assert run.changes[-1] is waiting
    assert run.state == "running"


@pytest.mark.parametrize(
    ("offer", "error", "said"),
    [
        ({"FN": {"light": plain}}, DataflowError, "did you mean 'FM'"),
        ({"numbers": {"light": plain}}, PlanError, "runs no function"),
        ({"FM": {"light": lambda a, b: a}}, DataflowError, "takes 2 parameters"),
        ({"FM": plain}, PlanError, "expected operator to label to function"),
        ({"FM": {}}, PlanError, "expected operator to label to function"),
        ("FM", PlanError, "offer='FM': expected operator to label to function"),
    ],
)
def test_a_wrong_offer_is_refused_when_the_run_is_shown(
    run: StandIn, offer: Any, error: type[Exception], said: str
) -> None:
    """In one sentence to the author, and not to a visitor."""
    with pytest.raises(error, match=said.replace("(", r"\(")):
        OfferedFunctions(run.graph, offer)


def test_voila_never_takes_text(run: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its visitors are not the author."""
    assert isinstance(functions_for(run.graph, {}, None), TypedFunctions)
    assert isinstance(functions_for(run.graph, {}, {"FM": {"same": plain}}), OfferedFunctions)
    assert isinstance(functions_for(run.graph, {}, {}), OfferedFunctions)  # only for looking
    monkeypatch.setenv("SERVER_SOFTWARE", "voila/0.5.13")
    assert isinstance(functions_for(run.graph, {}, None), OfferedFunctions)


def test_show_needs_a_notebook_and_a_run(shell: InteractiveShell) -> None:
    """One sentence otherwise; the function is public, as is all that is imported on demand."""
    with pytest.raises(RunError, match=r"shows what flow\.run\(\) returned; got 3"):
        fn.show(3)
    assert {"Dataflow", "show", "Update"} <= set(dir(fn))
    assert not {"Any", "annotations"} & set(dir(fn))


NAMES = (
    "value", "description", "placeholder", "tooltip", "svg", "item", "code", "loader", "_esm", "_css", "_model_name",
    "_view_name", "_model_module", "layout", "children",
)  # fmt: skip
FIELDS = ("value", "description", "placeholder")
"""Traits of what is typed into."""
OFFERS = (
    ("os.environ['SERVER_SOFTWARE'] = 'voila/0.5.13'; show(run)", NAMES, False),
    ("del os.environ['SERVER_SOFTWARE']; show(run, {'FM': {'same': lambda row: row}})", FIELDS, False),
    ("show(run)", FIELDS, True),  # the attack works where text is taken, so it says something where it is not
)


def test_nothing_that_a_hostile_page_sends_is_evaluated(tmp_path: Path) -> None:
    """Every trait of every widget is set to an expression, and every widget is clicked and submitted, in a kernel."""
    trace = tmp_path / "evaluated"
    expression = f"__import__('pathlib').Path({str(trace)!r}).touch() or dict"
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE_S)
        execute(client, SHOW)
        for show, names, evaluated in OFFERS:
            execute(client, f"import os, ipywidgets; ipywidgets.Widget.close_all(); run = flow.run(workers=2); {show}")
            attack(client, update({"selected": ["FM"]}))
            attack(client, *(update({name: expression}) for name in names))
            attack(client, update({"options": ["", expression]}))
            attack(client, {"method": "custom", "content": {"event": "entered", "text": expression}})
            events = ("submit", "click", expression)
            attack(client, *({"method": "custom", "content": {"event": event}} for event in events))
            assert execute(client, JOINED, "over") == "True"
            assert trace.exists() is evaluated, show
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def execute(client: BlockingKernelClient, code: str, expression: str = "None") -> str:
    """Run code in the kernel, after all that was sent before; returns the representation of an expression.

    The answer is the reply on the shell channel. What the kernel publishes is dropped once a thousand messages wait for
    a reader, so whoever attacks with more than that, and then waits for the kernel to be idle, may wait for ever.
    """
    asked = client.execute(code, user_expressions={"answer": expression})
    while (reply := client.get_shell_msg(timeout=PATIENCE_S))["parent_header"]["msg_id"] != asked:
        assert reply["msg_type"] == "kernel_info_reply", reply
    assert reply["content"]["status"] == "ok", reply["content"]
    answer = reply["content"]["user_expressions"]["answer"]
    assert answer["status"] == "ok", answer
    return str(answer["data"]["text/plain"])


def update(state: dict[str, Any]) -> dict[str, Any]:
    """What a page sends to set traits of a widget."""
    return {"method": "update", "state": state, "buffer_paths": []}


def attack(client: BlockingKernelClient, *messages: dict[str, Any]) -> None:
    """Send these messages to every widget of the kernel, as any page that is connected to it can.

    Those that set a trait go to the widgets that have it: the others ignore it.
    """
    widgets = ast.literal_eval(execute(client, WIDGETS, "traits"))
    for data in messages:
        for comm, traits in widgets.items():
            if not data.get("state") or data["state"].keys() & set(traits):
                client.shell_channel.send(client.session.msg("comm_msg", {"comm_id": comm, "data": data}))


def test_rows_and_states_are_shown_to_the_author_only(run: StandIn) -> None:
    """A page on which functions are offered is for others: nor do they see a row that has failed, or pause a source."""
    run.paused = {"FM": (Paused(WorkerId("FM", 1), "FM[1] failed: KeyError: 'secret'", row='{"secret": 7}'),)}
    for source, shown in ((TypedFunctions(run.graph, {}), True), (OfferedFunctions(run.graph, {}), False)):
        view = RunView(run, source, period_s=lambda: 0.01)  # type: ignore[arg-type]
        assert ("Rows" in view.tabs.titles, "State" in view.tabs.titles) == (shown, shown)
        view.dag.selected = ["FM"]
        assert "worker 1 is paused on" in view.drawer.lines.value
        assert ("secret" in view.drawer.lines.value) is shown
        assert (len(view.source.children) > 1) is shown
        view.close()
