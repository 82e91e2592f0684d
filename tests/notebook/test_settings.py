"""What holds where the line of a magic says nothing, and what is refused before it does harm."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import FRAUD, StandIn, refused, told


def test_what_holds_where_nothing_is_said_is_configured(shell: InteractiveShell, stand_ins: list[StandIn]) -> None:
    """By ``%config``; an option on the line goes first; it holds when the extension is loaded anew."""
    told(shell, FRAUD)
    for setting in ("hosts = 3", "workers = 5", "scheduler = 'epoch'"):
        shell.run_line_magic("config", f"FriesMagics.{setting}")
    told(shell, "%fries_run --hosts 1")
    assert (stand_ins[0].options["hosts"], stand_ins[0].options["workers"]) == (1, 5)
    assert "done by epoch" in told(shell, "%fries_reconfigure FM=Score(2)")
    assert "epoch sends" in told(shell, "%fries_plan FM")
    assert "done by naive" in told(shell, "%fries_reconfigure FM=Score(2) --scheduler naive")
    shell.run_line_magic("reload_ext", "fries_nb")
    assert shell.run_line_magic("config", "FriesMagics.hosts") == 3


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("hosts = 'two'", "expected an int, not the str 'two'"),
        ("hosts = 0", "FriesMagics.hosts = 0; expected 1 or more"),
        ("lines = -1", "FriesMagics.lines = -1; expected 0 or more"),
        ("refresh = 0", "FriesMagics.refresh = 0.0; expected 0.1 or more"),
        ("refresh = float('nan')", "FriesMagics.refresh = nan; expected 0.1 or more"),
        ("workers = 0", "FriesMagics.workers = 0; expected 1 or more"),
        ("guard = -1", "FriesMagics.guard = -1.0; expected 0 or more"),
        ("guard = 'long'", "expected a float, not the str 'long'"),
        ("scheduler = 'epohc'", "did you mean 'epoch'?"),
    ],
)
def test_a_wrong_setting_is_told_in_words(
    shell: InteractiveShell, caplog: pytest.LogCaptureFixture, setting: str, said: str
) -> None:
    """And changes nothing."""
    name = f"FriesMagics.{setting.partition(' ')[0]}"
    before = shell.run_line_magic("config", name)
    shell.run_line_magic("config", f"FriesMagics.{setting}")
    assert said in caplog.text
    assert shell.run_line_magic("config", name) == before


@pytest.mark.parametrize("typed", ["hots", "host"])
def test_a_setting_that_does_not_exist_is_told_with_a_close_match(shell: InteractiveShell, typed: str) -> None:
    """traitlets says so itself."""
    with pytest.warns(UserWarning, match=f"`{typed}` not recognized by `FriesMagics`.*Did you mean `hosts`"):
        shell.run_line_magic("config", f"FriesMagics.{typed} = 3")


def test_all_settings_are_listed_with_their_meaning(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """And with their present values; each says what it is for, in words and by the option that it is the default of."""
    shell.run_line_magic("config", "FriesMagics.hosts = 3")
    shell.run_line_magic("config", "FriesMagics")
    listed = capsys.readouterr().out.split("FriesMagics.")[1:]
    names = [text.partition("=")[0] for text in listed]
    assert names == ["beside", "guard", "hosts", "lines", "on_error", "refresh", "scheduler", "workers"]
    for text in listed:
        _, meaning, *_, current = text.strip().splitlines()
        assert len(meaning.split()) > 5, text
        assert current.strip().startswith("Current: "), text
    assert "Current: 3" in listed[2]


def test_a_wrong_setting_in_the_configuration_file_is_one_line(shell: InteractiveShell) -> None:
    """It is met when the extension is loaded."""
    shell.run_line_magic("unload_ext", "fries_nb")
    shell.config.FriesMagics.hosts = -1
    with pytest.raises(UsageError, match=r"fries_nb cannot be loaded: FriesMagics\.hosts = -1.*; %config changes it"):
        shell.run_line_magic("load_ext", "fries_nb")
    del shell.config.FriesMagics.hosts
    shell.run_line_magic("load_ext", "fries_nb")


@pytest.mark.parametrize("line", ["--hosts 0", "--commit-interval nan", "--workers 0"])
def test_a_wrong_start_stops_nothing(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], stand_ins: list[StandIn], line: str
) -> None:
    """With ``--replace`` the old run goes on if the new one could not start anyway."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    assert "expected a" in str(refused(shell, f"%fries_run --replace {line}", capsys))
    assert [run.state for run in stand_ins] == ["running"]


@pytest.mark.parametrize(
    "line",
    [
        "%fries_plan {}", "%fries_run {}", "%fries_stop {}", "%fries_reconfigure FM='{}", "%fries_reconfigure FM={}",
        "%fries_reconfigure FM=1 / '{}'", "%fries_run a {}", "%fries_run --{}", "%fries_run -o 1{}",
        "%%fries_dataflow n\nx = = '{}'",
    ],
)  # fmt: skip
def test_a_very_long_line_is_not_repeated_whole(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], stand_ins: list[StandIn], line: str
) -> None:
    """Somebody pasted a page; the error stays short."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    assert len(str(refused(shell, line.format("x" * 3_000), capsys))) < 1_000
