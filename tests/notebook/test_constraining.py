"""``%fries_constrain``: limits on dataflows and on runs, and the table of all of them."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, refused, told
from verdicts import STALLED, verdict_on

from fries_nb.errors import DataflowError

SPACED = """%%fries_dataflow spaced
numbers = flow.source("numbers", fn.rate(10))
numbers.map("my operator", dict).map("a -> b", dict).sink("out", fn.memory())
"""

pytestmark = pytest.mark.usefixtures("with_fraud")


@pytest.mark.parametrize(
    ("line", "declared"),
    [
        ("FM MC --latency 300", "FM -> MC: at most 300 ms over 15 s"),
        ("--latency 300 FM MC", "FM -> MC: at most 300 ms over 15 s"),
        ("FM->MC --latency 80.5 --window 5", "(FM) -> (MC): at most 80.5 ms over 5 s"),
        ("FM -> MC --latency 80", "(FM) -> (MC): at most 80 ms over 15 s"),
        ("FM-> MC→out --latency 80", "(FM) -> MC -> (out): at most 80 ms over 15 s"),
        ("numbers->FM FM FM->MC --latency 80", "(numbers) -> FM -> (MC): at most 80 ms over 15 s"),
        ("numbers->FM FM MC --latency 80", "(numbers) -> FM -> MC: at most 80 ms over 15 s"),
        ("FM --latency 80 --on-violation tell", "FM: at most 80 ms over 15 s"),
    ],
)
def test_a_sequence_of_operators_and_edges(shell: InteractiveShell, line: str, declared: str) -> None:
    """Edges stand between two operators, with blanks around the arrow or without, and all else is an operator."""
    shown = told(shell, f"%fries_constrain {line}")
    assert shown.splitlines() == [
        f"{declared}, in each run of 'fraud' from now on; if it cannot be kept: tell",
        "Next: %fries_run",
    ]
    [constraint] = shell.user_ns["flow"].constraints()
    assert str(constraint) == declared


def test_names_with_blanks_and_arrows(shell: InteractiveShell) -> None:
    """In quotes; an arrow in quotes belongs to the name."""
    told(shell, SPACED)
    shown = told(shell, """%fries_constrain "my operator"->'a -> b' --latency 20 --of spaced""")
    assert shown.startswith("(my operator) -> (a -> b): at most 20 ms over 15 s, in each run of 'spaced'")


def test_a_limit_on_what_runs_is_that_runs(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """The dataflow is left as it was, since it may be run without."""
    told(shell, "%fries_run")
    told(shell, "import fries_nb as fn; small = fn.lighter({'FM': dict}); small")
    shown = told(shell, "%fries_constrain FM MC --latency 300 --window 7 --on-violation propose --lighter small")
    assert shown.splitlines() == [
        "FM -> MC: at most 300 ms over 7 s, in this run; if it cannot be kept: propose",
        "Next: %fries_constrain, run.constraints().to_pandas()",
    ]
    assert [str(state.constraint.on_violation) for state in stand_ins[0].constraints()] == ["propose"]
    assert shell.user_ns["flow"].constraints() == ()


def test_a_dataflow_that_does_not_run_may_be_named_beside_one_that_does(
    shell: InteractiveShell, stand_ins: list[StandIn]
) -> None:
    """The name decides."""
    told(shell, "%fries_run")
    told(shell, SPACED)
    told(shell, '%fries_constrain "my operator" --latency 20 --of spaced')
    assert stand_ins[0].constraints() == ()
    assert len(shell.user_ns["flow"].constraints()) == 1


def test_a_run_is_meant_if_it_has_the_name_of_its_dataflow(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """Also while another dataflow is the one declared last."""
    told(shell, "%fries_run")
    told(shell, SPACED)
    told(shell, "%fries_constrain FM MC --latency 20 --of fraud")
    assert len(stand_ins[0].constraints()) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("FM MC", "--latency is missing; expected a number of milliseconds, as in %fries_constrain FC FM"),
        ("--latency 300", "--latency belongs to a sequence; name its operators"),
        ("--window 3", "--window belongs to a sequence"),
        ("--on-violation tell", "--on-violation belongs to a sequence"),
        ("--lighter small", "--lighter belongs to a sequence"),
        ("FM --latency 3 --lighter smal", "--lighter smal: there is no such variable"),
        ("FM --latency 0", "--latency 0: expected a number of milliseconds, more than 0"),
        ("FM --latency -3", "--latency -3: expected a number of milliseconds, more than 0"),
        ("FM --latency nan", "--latency nan: expected a number of milliseconds, more than 0"),
        ("FM --latency inf", "--latency inf: expected a number of milliseconds, more than 0"),
        ("FM --latency soon", "argument --latency: invalid float value: 'soon'"),
        ("FM --latency 3 --window 0", "--window 0: expected a number of seconds, more than 0"),
        ("FM --latency 3 --windows 3", "did you mean '--window'"),
        ("->FM --latency 3", "an arrow needs an operator on each side, as in FC->FM"),
        ("FM-> --latency 3", "an arrow needs an operator on each side"),
        ("FM->->MC --latency 3", "an arrow needs an operator on each side"),
        ("FM --latency 3 --of fraude", "did you mean 'fraud'"),
    ],
)
def test_what_is_no_limit_is_refused_in_a_line(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    """Nothing is declared then."""
    error = refused(shell, f"%fries_constrain {line}", capsys)
    assert type(error) is UsageError
    assert said in str(error)
    assert shell.user_ns["flow"].constraints() == ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("FN MC --latency 3", "did you mean 'FM'"),
        ("MC FM --latency 3", "was the order meant to be reversed?"),
        ("numbers MC --latency 3", "did you mean ['numbers', 'FM', 'MC']"),
        ("FM MC --latency 3 --on-violation telll", "did you mean 'tell'"),
        ("FM MC --latency 3 --on-violation apply", "on_violation='apply' got lighter=None; expected fn.lighter({...})"),
        ("FM MC --latency 3 --lighter flow", "on_violation='tell' changes no function"),
    ],
)
def test_what_the_dataflow_refuses_is_refused_in_a_line(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    """With what was meant, perhaps."""
    error = refused(shell, f"%fries_constrain {line}", capsys)
    assert type(error) is DataflowError
    assert said in str(error)


def test_limits_that_contradict_are_refused(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    """The first one stays."""
    told(shell, "%fries_constrain FM MC --latency 300")
    assert "latency_ms=" in str(refused(shell, "%fries_constrain FM MC --latency 200", capsys))
    assert [one.latency_ms for one in shell.user_ns["flow"].constraints()] == [300]


def test_without_operators_it_shows_all(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """Before the run what was declared; then what was judged, with the bars; and after the run what was judged last."""
    assert told(shell, "%fries_constrain").splitlines() == [
        "'fraud' has no latency constraints",
        "Next: %fries_constrain OPERATOR OPERATOR --latency MS",
    ]
    told(shell, "%fries_constrain FM MC --latency 50 --window 5")
    lines = told(shell, "%fries_constrain").splitlines()
    assert lines[1].split() == ["FM", "->", "MC", "not", "yet", "judged", "-", "-", "50", "ms", "5", "s", "tell"]
    assert lines[2:] == ["FM -> MC: the dataflow has not run with it", "Next: %fries_run fraud"]

    told(shell, "%fries_run")
    [run] = stand_ins
    constraint = run.constrain(["FM", "MC"], 50.0, 5.0, "tell")
    assert "no host has reported" in told(shell, "%fries_constrain")
    run.judged.judge([verdict_on(constraint, 100.0)])
    shown = shell.run_cell("%fries_constrain").result
    lines = repr(shown).splitlines()
    assert lines[1].split()[3:] == ["violated", "50", "ms", "75", "ms", "50", "ms", "5", "s", "tell"]
    assert lines[2:] == [
        "FM -> MC: the worst sequence takes 75 ms",
        "Next: %fries_constrain, run.constraints().to_pandas()",
    ]
    assert shown.rich["text/html"].count("fries-constraint-svg") > 0
    run.state = "stopped"
    assert "violated" in told(shell, "%fries_constrain")


def test_a_stalled_sequence_is_shown(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """It has no latency, since no row leaves it."""
    told(shell, "%fries_run")
    [run] = stand_ins
    run.judged.judge([verdict_on(run.constrain(["FM", "MC"], 50.0, 5.0, "tell"), 100.0, edge_ms=STALLED)])
    assert told(shell, "%fries_constrain").splitlines()[1].split()[3:6] == ["violated", "stalled", "stalled"]


def test_names_are_escaped(shell: InteractiveShell) -> None:
    """In HTML they are text only."""
    told(shell, SPACED.replace("my operator", "<script>"))
    told(shell, '%fries_constrain "<script>" --latency 20 --of spaced')
    shown = shell.run_cell("%fries_constrain --of spaced").result
    assert "<script>" in repr(shown)
    assert "<script>" not in shown.rich["text/html"]
