import io
import re
import sys

import pytest
from fakes import fake_spec

from isotropy.experiments import _progress_display
from isotropy.experiments._progress_display import display
from isotropy.output import progress_bars


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(_progress_display, "monotonic", lambda: now[0])
    return now


def carry_on(shown, clock):
    specs = [fake_spec(seed) for seed in range(4)]
    shown.counts(done=0, failed=0, others=0)
    shown.began(specs[0])
    shown.began(specs[1])
    shown.progressed(specs[0].id, "training", 3, 10)
    clock[0] += 75
    shown.ended(specs[0], "done", "accuracy 0.5")
    shown.ended(specs[1], "failed", "failed: ValueError: no")
    shown.counts(done=1, failed=1, others=1)
    shown.began(specs[2])
    shown.progressed(specs[2].id, "evaluation", 1, None)


def test_lines_where_there_is_no_terminal(clock, capsys):
    with display(5, 2, show=True) as shown:
        carry_on(shown, clock)
        shown.say("so far")
    assert capsys.readouterr().err.splitlines() == [
        "fake none none seed=0: begins",
        "fake none none seed=1: begins",
        "fake none none seed=0: accuracy 0.5 in 1:15 min "
        "(1 of 5 runs done, 4 left, about 1:52 min to go)",
        "fake none none seed=1: failed: ValueError: no in 1:15 min "
        "(1 of 5 runs done, 1 failed, 3 left, about 1:52 min to go)",
        "fake none none seed=2: begins",
        "so far",
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_bars_on_a_terminal(clock, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    for name, value in {"TERM": "xterm", "COLUMNS": "160", "LINES": "20"}.items():
        monkeypatch.setenv(name, value)
    with display(5, 2, show=True) as shown:
        carry_on(shown, clock)
        shown._bars.refresh()
        seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "fake none none seed=0: accuracy 0.5 in 1:15 min" in seen
    assert "1 of 5 runs done, 1 failed, 3 left, 1 of them elsewhere, about 1:52 min to go" in seen
    last = seen[seen.rindex("1 of 5 runs done") :]
    assert "fake none none seed=2: evaluation" in last
    assert "seed=0" not in last
    assert "2/5" in last


def test_no_time_is_told_where_a_run_takes_longer_than_those_before(clock, capsys):
    specs = [fake_spec(seed) for seed in range(3)]
    with display(3, 3, show=True) as shown:
        for spec in specs:
            shown.began(spec)
        clock[0] += 5
        shown.ended(specs[0], "done", "accuracy 0.5")
        shown.ended(specs[1], "done", "accuracy 0.5")
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith("(2 of 3 runs done, 1 left)")


def test_a_long_label_leaves_room_for_what_is_running(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "LINES": "20"}.items():
        monkeypatch.setenv(name, value)
    spec = fake_spec(7).model_copy(update={"model": "/home/somebody/models/" + 10 * "long"})
    with display(5, 2, show=True) as shown:
        shown.began(spec)
        shown.progressed(spec.id, "second stage", 3, 10)
        shown._bars.refresh()
        seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    last = seen.splitlines()[-1]
    assert "none none seed=7: second stage" in last
    assert "3/10" in last


def test_nothing_where_standard_error_is_closed(clock, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    with display(5, 2, show=True) as shown:
        carry_on(shown, clock)
    with progress_bars() as progress:
        progress("load", 1, 2)
    assert capsys.readouterr().out == ""


def test_nothing_where_it_is_not_wanted(clock, capsys):
    with display(5, 2, show=False) as shown:
        carry_on(shown, clock)
        shown.say("no")
    assert capsys.readouterr().err == ""
