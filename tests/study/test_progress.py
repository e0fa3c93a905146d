"""Progress: a bar where somebody looks, lines without tqdm, and nothing where it is not wanted."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import IPython
import pytest

import agentlab as al
from agentlab.study import progress
from agentlab.study.progress import showing


@pytest.fixture
def notebook(monkeypatch):
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)


def test_a_notebook_shows_the_bar_with_the_running_success_rate(notebook, monkeypatch):
    made = []

    class Bar(progress._Lines):
        def __init__(self, total):
            super().__init__(total)
            made.append(self)

    monkeypatch.setattr(progress, "_bar", Bar)
    with showing(None, 4) as tell:
        tell(2, 4, 0.5, 0)
        tell(4, 4, 0.75, 1)
    assert made[0].n == 4
    assert made[0]._postfix == "success 75.0%, endpoint failed 1"


@pytest.mark.parametrize("options", [{}, {"processes": 1}, {"backend": "threading"}])
def test_false_silences(notebook, tmp_path, capfd, options):
    study = al.Study(al.grid(), al.load_suite("chain")[:2], seeds=2, out=tmp_path)
    study.run(progress=False, **options)
    assert capfd.readouterr() == ("", "")


def test_without_tqdm_lines_tell(notebook, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    study = al.Study(al.grid(), al.load_suite("chain")[:2], seeds=2, out=tmp_path)
    assert len(study.run(processes=1)) == 4
    assert "runs, success 100.0%" in capsys.readouterr().err


def test_nobody_looks_at_a_pipe(tmp_path, capsys):
    study = al.Study(al.grid(), al.load_suite("chain")[:2], seeds=2, out=tmp_path)
    study.run(processes=1)
    assert capsys.readouterr().err == ""
