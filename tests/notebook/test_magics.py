"""The magics in a real IPython shell: what they show, what they refuse, and a whole session on real Spark."""

from __future__ import annotations

import threading

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import FRAUD, StandIn, refused, told
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import DataflowError, FriesError, PlanError, ReconfigurationError, RunError

PLAIN = """%%fries_dataflow plain
flow.source("numbers", fn.rate(10)).map("A", dict).sink("out", fn.memory())
"""


# ---- without Spark


def test_loading_says_and_starts_nothing_and_unloading_takes_all_away(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loading is cheap and silent; after unloading no magic and no completion of ours is left."""
    shell.run_line_magic("reload_ext", "fries_nb")
    assert "".join(capsys.readouterr()) == ""
    names = {name for kind in shell.magics_manager.magics.values() for name in kind if "fries" in name}
    expected = "dataflow run reconfigure rollback requeue stop plan status constrain audit report frontier loops"
    expected += " rescale examples compare dashboard diff apply state rows canary shadow"
    assert names == {f"fries_{name}" for name in expected.split()}
    assert len(shell.Completer.custom_matchers) == 1
    shell.run_line_magic("unload_ext", "fries_nb")
    assert not any("fries" in name for kind in shell.magics_manager.magics.values() for name in kind)
    assert shell.Completer.custom_matchers == []
    shell.run_line_magic("load_ext", "fries_nb")


def test_a_cell_declares_and_says_what_next(shell: InteractiveShell) -> None:
    """The given ``flow`` is declared under the cell's name, kept in ``flow``, and shown as a path."""
    shown = told(shell, FRAUD).splitlines()
    assert shown[0] == "Dataflow 'fraud': numbers -> FM -> MC -> out"
    assert shown[1:] == [
        "4 operators; keyed: FM by value; MC by timestamp",
        "Next: %fries_run fraud --hosts 2 --workers 2",
    ]
    assert shell.user_ns["flow"].name == "fraud"


@pytest.mark.parametrize("variable", ["flow", "mine"])
def test_a_cell_may_make_its_own_dataflow_with_the_users_names(shell: InteractiveShell, variable: str) -> None:
    """A Dataflow that the cell makes counts, whatever variable holds it; so does one with branches."""
    shell.user_ns["speed"] = 7
    shown = told(
        shell,
        f"""%%fries_dataflow
{variable} = fn.Dataflow("two ways")
left, right = {variable}.source("numbers", fn.rate(speed)).split("SP", lambda row: row["value"] % 2)
left.union("U", right.map("odd", dict)).sink("out", fn.memory())""",
    )
    lines = [line.strip() for line in shown.splitlines()]
    assert lines[1:5] == ["numbers -> SP", "SP -> odd -> U", "SP -> U", "U -> out"]
    assert lines[-1] == 'Next: %fries_run "two ways" --hosts 2 --workers 2'
    assert shell.user_ns["flow"].name == "two ways"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "cell body is empty"),  # IPython says this itself
        ("\n# nothing yet\n", "the cell is empty; declare a dataflow in it: begin with flow.source("),
        ("x = 1", "declares no dataflow: begin with flow.source("),
        ("x = 1\nx = = 2", "line 3 of the cell: invalid syntax\n    x = = 2\n        ^"),
        ("return 1", "line 2 of the cell: 'return' outside function"),
        ("x = '\0'", "null bytes"),
        ("a, b = fn.Dataflow('a'), fn.Dataflow('b')", "one cell declares one dataflow; this one declares a, b"),
    ],
)
def test_a_cell_that_declares_nothing_gets_one_helpful_line(
    shell: InteractiveShell, body: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty cell, one of comments, one without a dataflow, and one that is not Python."""
    error = refused(shell, f"%%fries_dataflow fraud\n{body}", capsys)
    assert type(error) is UsageError
    assert said in str(error)


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ("flow = fn.Dataflow('b'); flow.source('s', fn.rate(1)).sink('o', fn.memory())", UsageError, "name both alike"),
        ("flow.source('s', fn.rate(1))", DataflowError, "has no sink"),
        ("flow.source('s', fn.rate(1)).map('s', dict)", DataflowError, "two operators are named 's'"),
    ],
)
def test_a_cell_that_cannot_be_a_dataflow_leaves_the_last_one(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], body: str, kind: type, said: str
) -> None:
    """The error is one line, and ``flow`` holds what it held."""
    told(shell, PLAIN)
    error = refused(shell, f"%%fries_dataflow fraud\n{body}", capsys)
    assert type(error) is kind
    assert said in str(error)
    assert shell.user_ns["flow"].name == "plain"


def test_a_cell_that_raises_raises(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    """An error of the user's own stops "Run All"; its stack has the cell's lines, and no frame of the magic."""
    result = shell.run_cell("%%fries_dataflow fraud\nx = 1\nflow.source('s', fn.rate(1 / 0))")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    shown = "".join(capsys.readouterr())
    assert "line 3" in shown
    assert "1 / 0" in shown
    assert "fries_nb" not in shown
    assert "run_cell_magic" not in shown
    assert "flow" not in shell.user_ns


def test_options_reach_the_run(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """``%fries_run`` passes its options on, and binds the run where it is told."""
    told(shell, FRAUD)
    options = "--hosts 1 --workers 3 --audit --identities --no-chaining --commit-interval 2 --hide CARD_NO -o mine"
    shown = told(shell, f"%fries_run fraud {options}")
    assert "1 host, 3 workers an operator, audited; `mine` holds the run" in shown
    assert "Next: %fries_dashboard, %fries_reconfigure " in shown
    assert shell.user_ns["mine"] is stand_ins[0]
    assert stand_ins[0].options == {
        "hosts": 1, "workers": 3, "audit": True, "identities": True, "chaining": False, "commit_interval_s": 2.0,
        "checkpoint": "", "signing_key": None, "recover": True, "on_error": "pause", "hide": ["CARD_NO"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%fries_run frod", "no dataflow 'frod'; expected one of fraud; did you mean 'fraud'?"),
        ("%fries_run --hsots", "unrecognized arguments: --hsots; did you mean '--hosts'?"),
        ("%fries_run --hosts two", "invalid int value: 'two'"),
        ("%fries_run 'fraud", "No closing quotation"),
        ("%fries_run -o 2x", "not the name of a variable"),
        ("%fries_run -h", "unrecognized arguments: -h; %fries_run? shows its help"),
        ("%fries_run my flow", "unrecognized arguments: flow, a name with spaces has quotes; %fries_run? shows"),
        ("%fries_run --hosts 0", "--hosts 0: expected a whole number, 1 or more"),
        ("%fries_run --workers -3", "--workers -3: expected a whole number, 1 or more"),
        ("%fries_run --commit-interval 0", "--commit-interval 0: expected a number of seconds, more than 0"),
        ("%fries_run --checkpoint p --signing-key nosuch", "--signing-key nosuch: there is no such variable; name one"),
        ("%fries_run --resume", "--resume needs a checkpoint; expected its directory"),
        ("%fries_run -o class", "not the name of a variable"),
        ("%fries_run ключ", "no dataflow 'ключ'; expected one of fraud"),
        ("%fries_stop", "no dataflow has been started"),
        ("%fries_reconfigure FM=dict", "no dataflow has been started"),
    ],
)
def test_misuse_is_one_line(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], stand_ins: list[StandIn], line: str, said: str
) -> None:
    """Exactly ``UsageError``: IPython shows a subclass with its stack."""
    told(shell, FRAUD)
    error = refused(shell, line, capsys)
    assert type(error) is UsageError
    assert said in str(error)
    assert stand_ins == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%fries_canary", "'fraud' has no canary; %fries_canary FM=new_model --share 5% begins one"),
        ("%fries_canary --ramp 25%", "'fraud' has no canary"),
        ("%fries_canary --share 5%", "--share begins a canary; expected OPERATOR=expression as well"),
        ("%fries_canary --promote-when f", "--promote-when begins a canary"),
        ("%fries_canary --ramp 25% --promote", "--promote is of the open canary, and stands alone"),
        ("%fries_canary FM=dict --rollback", "--rollback is of the open canary, and stands alone"),
        ("%fries_canary FM=dict --share five", "--share five: expected a share, as in 5% or 0.05"),
        ("%fries_canary FM=dict --steps 5%,200%", "--steps 200%: expected a share"),
        ("%fries_canary FM=dict --steps 5%,1 --every soon", "--every soon: expected rows of the new version"),
        ("%fries_canary FM=dict --steps 5%,1 --every 9 --promote-when f", "there is no such variable"),
        ("%fries_shadow", "'fraud' has no shadow; %fries_shadow FM=new_model begins one"),
        ("%fries_shadow --drop", "'fraud' has no shadow"),
        ("%fries_shadow --bytes 1MB", "--bytes begins a shadow; expected OPERATOR=expression as well"),
        ("%fries_shadow --promote --drop", "--drop is of the open shadow, and stands alone"),
        ("%fries_shadow FM=dict --promote", "--promote is of the open shadow, and stands alone"),
        ("%fries_shadow FM=dict --share half", "--share half: expected a share, as in 5% or 0.05"),
        ("%fries_shadow FM=dict --bytes much", "--bytes much: expected a number of bytes, as in 1MB"),
    ],
)
def test_misuse_of_a_canary_or_a_shadow_is_one_line(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], run: StandIn, line: str, said: str
) -> None:
    """And nothing is requested."""
    assert said in str(refused(shell, line, capsys))
    assert run.made == ()


def test_a_canary_is_begun_shown_and_gone_on_with(shell: InteractiveShell, run: StandIn) -> None:
    """Options become those of a run; both versions are shown, hidden columns masked, and steps are of the canary."""
    shell.user_ns["better"] = bool
    gates = "--steps 5%,0.25,100% --every 10_000 --promote-when better --tolerate 3"
    shown = told(shell, f"%fries_canary FM=dict {gates} -o mine")
    assert "Next: %fries_canary, %fries_canary --ramp 25%" in shown
    assert shell.user_ns["mine"] is run.made[0]
    told(shell, "%fries_canary MC=dict --share 10% --every 30s")
    asked = {"steps": [0.05, 0.25, 1.0], "every": fn.tuples(10_000), "promote_when": bool, "tolerate": 3}
    bare = {"steps": None, "every": 30.0, "promote_when": None, "tolerate": 0}
    assert run.canaries.asked == [{"canary": 0.05, **asked}, {"canary": 0.1, **bare}]
    shown = told(shell, "%fries_canary")
    assert "MC by fries: 10% of the cohorts since " in shown
    assert shown.endswith("old, new:\n  rows: 95, 5\n  failures: 0, 0\n  <b> mean: 0.5, 0.75\n  card mean: •••, •••")
    html = shell.run_cell("%fries_canary --by n").result._repr_mimebundle_()["text/html"]
    assert "<caption>Both versions, by n</caption>" in html
    assert "&lt;b&gt; mean</td><td>0.5</td><td>0.75" in html
    for line, share in (("--ramp 25%", 0.25), ("--promote", 1.0), ("--rollback", 0.0)):
        told(shell, f"%fries_canary {line}")
        assert run.canaries.shares["u2"] == share


def test_a_shadow_is_begun_shown_and_ended(shell: InteractiveShell, run: StandIn) -> None:
    """Options become those of a run; counts and examples are shown, old beside new; one that has ended keeps them."""
    shown = told(shell, "%fries_shadow FM=dict --share 50% --bytes 1MB -o mine")
    assert "Next: %fries_shadow, %fries_shadow --promote" in shown
    assert shell.user_ns["mine"] is run.shadows[0]
    assert run.asked == {"share": 0.5, "bytes": 1_000_000}
    shown = told(shell, "%fries_shadow")
    assert shown.startswith("shadow of FM: open, since ")
    for words in ("1,002 rows compared: 12 differ", "FM: failed on 4 rows", "numbers: 5 rows left out"):
        assert words in shown
    assert "\nold, new:\n  ('numbers', 0, 7), <b>: 0.5, 0.75\n  ('numbers', 0, 9), the row: {'n': 1}, null" in shown
    assert "card" not in shown
    html = shell.run_cell("%fries_shadow").result._repr_mimebundle_()["text/html"]
    assert "&lt;b&gt;</td><td>0.5</td><td>0.75" in html
    told(shell, "%fries_shadow --drop")
    assert "shadow of FM: dropped, since " in told(shell, "%fries_shadow")
    assert "1,002 rows compared" in told(shell, "%fries_shadow")
    assert "cannot be promoted" in str(shell.run_cell("%fries_shadow --promote").error_in_exec)
    told(shell, "%fries_shadow MC=dict")
    told(shell, "%fries_shadow --promote")
    assert run.shadows[1].state == "promoted"


def test_what_runs_is_replaced_only_when_that_is_said(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], stand_ins: list[StandIn]
) -> None:
    """A start again asks for ``--replace``, which stops the old run; so does a definition that says so."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    flow = shell.user_ns["flow"]
    assert "--replace" in str(refused(shell, "%fries_run fraud", capsys))
    assert shell.user_ns["flow"] is flow
    assert stand_ins[0].state == "running"
    assert "its old run was stopped" in told(shell, FRAUD.replace("fraud", "fraud --replace", 1))
    assert stand_ins[0].state == "stopped"
    assert shell.user_ns["flow"] is not flow
    told(shell, "%fries_run")
    told(shell, "%fries_run --replace")
    assert [run.state for run in stand_ins] == ["stopped", "stopped", "running"]


def test_a_run_that_fails_at_once_is_the_cells_error(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], stand_ins: list[StandIn],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A cell that says that it runs would be untrue; the status says where the traceback is, too."""
    told(shell, FRAUD)

    def fail(run: StandIn, timeout: float) -> None:
        run.state, run.error, run.details = "failed", "FM failed in open(): OSError: no model", "Traceback ..."

    monkeypatch.setattr(StandIn, "wait_flowing", fail)
    error = refused(shell, "%fries_run -o mine", capsys)
    assert type(error) is RunError
    said = "FM failed in open(): OSError: no model (traceback: print(mine.details))"
    assert str(error) == f"'fraud' has failed: {said}"
    assert f"fraud: {said}" in told(shell, "%fries_status")
    assert told(shell, "%fries_stop") == f"'fraud' has failed before: {said}"


def test_expressions_keep_their_spaces_quotes_and_braces(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """The line of a change is Python, in any order with options, and IPython expands nothing in it."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    shell.user_ns["word"] = "w"
    shown = told(
        shell,
        """%fries_reconfigure --no-pruning --of fraud "FM"=Score(version='a b=c --wait') """
        """MC = lambda row, x={"$word": 1}: row | {word: x} --scheduler epoch -o mine""",
    )
    assert shown.startswith("done by epoch in ")
    assert "1 component: FM -> MC" in shown
    asked = stand_ins[0].asked
    assert asked["FM"].version == "a b=c --wait"
    assert asked["MC"]({"v": 0}) == {"v": 0, "w": {"$word": 1}}
    assert shell.user_ns["mine"].plan.scheduler == "epoch"


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        ("FN=Score(2)", DataflowError, "no operator 'FN'; expected one of numbers, FM, MC, out; did you mean 'FM'?"),
        ("FM=1", DataflowError, "operator 'FM': got 1, which cannot be called; expected a function of a row"),
        ("FM=fn.Update(1)", DataflowError, "operator 'FM': got 1, which cannot be called"),
        ("FM=fn.Update(Score(2), state=1)", PlanError, "operator 'FM': Update(..., state=...) is a function"),
        ("numbers=Score(2)", PlanError, "runs no function that could be changed"),
        ("FM=Score(2) --scheduler epohc", PlanError, "did you mean 'epoch'?"),
        ("FM=Score(2) --shceduler epoch", UsageError, "did you mean '--scheduler'?"),
        ("FM=Score(2) --wait -1", UsageError, "expected a number of seconds, 0 or more"),
        ("FM=Scroe(2)", UsageError, "name 'Scroe' is not defined; did you mean 'Score'?"),
        ("FM=Score()", UsageError, "FM=Score(): TypeError"),
        ("FM=Score(2", UsageError, "is not closed"),
        ("FM=Score('2)", UsageError, "is not closed"),
        ("FM=Score(2) MC", UsageError, "FM=Score(2) MC is not a Python expression"),
        ("FM=Score(2) FM=Score(3)", UsageError, "assigned twice"),
        ("FM= --wait 1", UsageError, "no expression"),
        ("FM=Score(2))", UsageError, "a bracket is closed that was not opened"),
        ("FM", UsageError, "for a change of the operator: FM=new_function"),
        ("FM==Score(2)", UsageError, "for a change of the operator: FM=new_function"),
        ("frod FM=Score(2)", UsageError, "frod: expected OPERATOR=expression, as in FM=MerchantModel(window=10); a"),
        ("FM=Score(2) -o lambda", UsageError, "not the name of a variable"),
        ("", UsageError, "expected OPERATOR=expression"),
        ("--of frod FM=Score(2)", UsageError, "no run 'frod'; expected one of fraud; did you mean 'fraud'?"),
    ],
)
def test_a_wrong_change_is_one_line_and_changes_nothing(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], stand_ins: list[StandIn],
    line: str, kind: type, said: str,
) -> None:  # fmt: skip
    """Misuse of the line, mistakes in an expression, and what the run itself refuses."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    error = refused(shell, f"%fries_reconfigure {line}", capsys)
    assert type(error) is kind
    assert said in str(error)
    assert stand_ins[0].asked == {}


def test_a_change_that_takes_long_goes_on_behind_the_cell(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """With ``--wait 0`` the cell is over at once, and the change is at hand."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    stand_ins[0].outcome = None
    assert told(shell, "%fries_reconfigure FM=Score(2) --wait 0").splitlines() == [
        "FM: under way by fries, not over after 0 s",
        "Next: change.result(timeout=60)",
    ]
    assert not shell.user_ns["change"].done


def test_a_change_that_is_aborted_raises(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], stand_ins: list[StandIn]
) -> None:
    """The worker's error is the cell's."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    stand_ins[0].outcome = "aborted"
    error = refused(shell, "%fries_reconfigure FM=Score(2)", capsys)
    assert type(error) is ReconfigurationError
    assert str(error) == "FM aborted: FM[0]: open() raised OSError: no model"


def test_one_of_several_runs_is_named(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], stand_ins: list[StandIn]
) -> None:
    """Without a name it is the one in ``run``; where that says nothing, a name is asked for."""
    for cell in (FRAUD, "%fries_run -o first", PLAIN, "%fries_run -o second"):
        told(shell, cell)
    assert "name one of fraud, plain" in str(refused(shell, "%fries_stop", capsys))
    assert "'fraud' has finished" in told(shell, "%fries_stop --of first")
    assert "'plain' has stopped" in told(shell, "%fries_stop --now")
    assert "'plain' has stopped before" in told(shell, "%fries_stop --of plain")
    assert [run.state for run in stand_ins] == ["finished", "stopped"]


@pytest.mark.parametrize(
    ("begun", "completed"),
    [("%fries_run fr", "fraud"), ("%fries_reconfigure F", "FM="), ("%fries_stop --of f", "fraud")],
)
def test_names_are_completed(shell: InteractiveShell, stand_ins: list[StandIn], begun: str, completed: str) -> None:
    """Names of flows, of operators that can change, and of runs."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    assert completed in shell.complete("", begun, len(begun))[1]


def test_help_has_examples(shell: InteractiveShell) -> None:
    """``%magic?`` shows options and examples for each magic."""
    for kind in ("line", "cell"):
        for name, magic in shell.magics_manager.magics[kind].items():
            if name.startswith("fries_"):
                assert f"%{name}" in magic.__doc__.partition("options:")[0]
                assert "::" in magic.__doc__


# ---- on Spark


def threads_left() -> list[str]:
    """Our threads that do not end; the one that says that all has ended may be at its last step."""
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("fries")]
    for thread in ours:
        thread.join(PATIENCE_S)
    return [thread.name for thread in ours if thread.is_alive()]


def test_a_session_on_spark(shell: InteractiveShell, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Declare, run, change under load, refuse a wrong change undisturbed, drain; nothing of it is left alive.

    A class and lambdas of cells are shipped by value: hosts cannot import them.
    """
    told(shell, FRAUD)
    told(shell, "%fries_run fraud --hosts 2 --workers 2 --audit")
    run = shell.user_ns["run"]
    try:
        until(lambda: run.metrics().operators["out"].processed > 500, run)
        assert "did you mean 'FM'" in str(refused(shell, "%fries_reconfigure FN=Score(2)", capsys))
        line = f"FM=Score(2) MC=lambda row: row | {{'after': row['version']}} --wait {PATIENCE_S}"
        shown = told(shell, f"%fries_reconfigure {line}").splitlines()
        assert shown[0].startswith("done by fries in ")
        assert shown[0].endswith("4 workers switched")
        assert shown[1] == "1 component: FM -> MC"
        seen = run.metrics().operators["out"].processed
        until(lambda: run.metrics().operators["out"].processed > seen + 500, run)
        assert told(shell, f"%fries_stop --wait {PATIENCE_S}").startswith("'fraud' has ")
    finally:
        run.cancel()
    assert threads_left() == []
    versions = {(row["version"], row["after"]) for row in run.output().select("version", "after").distinct().collect()}
    assert versions == {(1, 1), (2, 2)}
    assert run.audit().serializable
    error = refused(shell, "%fries_reconfigure FM=Score(3)", capsys)
    assert type(error) is RunError
    assert "a change needs a running dataflow" in str(error)


def test_a_change_whose_open_raises_is_refused_on_spark(
    shell: InteractiveShell, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cell raises, in one line, what the worker said; the run goes on by the old function."""
    told(shell, PLAIN)
    told(shell, "class NoModel:\n def open(self): raise OSError('no model')\n def process(self, row): return row")
    told(shell, "%fries_run plain --workers 1")
    run = shell.user_ns["run"]
    try:
        error = refused(shell, f"%fries_reconfigure A=NoModel() --wait {PATIENCE_S}", capsys)
        assert isinstance(error, FriesError)
        assert "OSError: no model" in str(error)
        assert run.state == "running"
    finally:
        told(shell, "%fries_stop")
    assert threads_left() == []


def test_the_defaults_of_a_notebook_are_said_in_one_line_and_can_be_turned_off(
    shell: InteractiveShell, stand_ins: list[StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each by its option, or as a setting; a place for checkpoints of one's own is no default."""
    told(shell, FRAUD)
    first = told(shell, "%fries_run fraud")
    assert (
        "by default: checkpoints until the run ends (--no-checkpoint: none), operators pause on failure "
        "(--on-error fail)\n" in first
    )
    off = told(shell, "%fries_run fraud --replace --no-checkpoint --on-error fail")
    assert "by default" not in off
    assert [stand_ins[1].options[name] for name in ("checkpoint", "recover", "on_error")] == ["", False, "fail"]
    told(shell, "%fries_run fraud --replace --checkpoint there")
    assert [stand_ins[2].options[name] for name in ("checkpoint", "recover", "on_error")] == ["there", False, "pause"]
    shell.run_line_magic("config", "FriesMagics.on_error = 'fail'")
    assert "operators pause" not in told(shell, "%fries_run fraud --replace")
    refused(shell, "%fries_run fraud --replace --on-error maybe", capsys)
    refused(shell, "%fries_run fraud --replace --no-checkpoint --checkpoint there", capsys)
    assert len(stand_ins) == 4
