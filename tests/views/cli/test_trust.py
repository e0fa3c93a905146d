"""A stranger's folder: readers use nothing that it names, and others ask first, showing all of it.

``LOOK`` is run in a process of its own with an audit hook, which Python tells of every file that is
opened, module that is imported, process that is started and connection that is made.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentlab.study.study import Study
from agentlab.trace.store import Store
from agentlab.views.cli.cli import app

LOOK = """
import json, sys
touched = []
ALWAYS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork", "pty.spawn",
          "socket.connect", "socket.getaddrinfo")
PARSED = ("compile", "marshal.loads")  # a name is taken apart; other modules' code is read
def hook(event, args):
    if event in ALWAYS or (event not in PARSED and "bait" in repr(args)):
        touched.append(f"{event} {args!r:.200}")
def main(folder, *reader):
    sys.addaudithook(hook)
    import warnings; warnings.simplefilter("ignore")
    from agentlab.views.cli.cli import app
    from typer.testing import CliRunner
    if reader[0] != "python":
        words = [reader[0], folder, *reader[1:]]
        found = CliRunner().invoke(app, words)
        if found.exception and not isinstance(found.exception, SystemExit):
            raise found.exception
        print(json.dumps([found.exit_code, found.stdout + found.stderr, touched]))
        return
    {"frames": frames, "inspector": inspector}[reader[1]](folder)
    print(json.dumps([0, "", touched]))
def frames(folder):
    import agentlab as al
    study = al.Study.open(folder)
    for name in ("runs", "steps", "spans", "decisions", "faults", "lm_calls"):
        study.frame(name)
    assert len(study.runs)
    study.leaderboard(); study.compare(by="arm"); repr(study); study.cells(); study.definition()
def inspector(folder):
    from agentlab.runs import kept
    from agentlab.views.inspector.inspector import Inspector
    run = kept.look(folder)
    repr(run), run._repr_html_(), Inspector(run).view, run.waiting, run.spans
main(*sys.argv[1:])
"""

PLAN = '[{"name":"a","actionType":"aggregate","targetResource":"","parameters":{}}]'


def said(*words: Any, stdin: Any = None) -> tuple[int, str]:
    found = CliRunner().invoke(app, [str(w) for w in words])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.stdout + found.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a kept run and one with a study, as this user makes them."""
    home = tmp_path_factory.mktemp("made")
    (home / "agents.yaml").write_text("agents:\n- id: a\n")
    (home / "plan.json").write_text(PLAN)
    agent = f"{home}/agents.yaml:a"
    words = ["run", "hi", "--agent", agent, "--plan", home / "plan.json", "--out", home / "kept"]
    assert said(*words)[0] == 0
    small = ["--limit", 2, "--seeds", 2, "--planner", "search", "--planner", "reference"]
    small += ["--strategy", "never", "--fault-rate", "0,0.5", "--processes", 1]
    assert said("eval", "quickstart", *small, "--out", home / "study")[0] == 0
    return home


def opened(folder: Path) -> sqlite3.Connection:
    """Return a folder's file, without the triggers that keep it as it is."""
    file = sqlite3.connect(folder / "study.db", isolation_level=None)
    for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        file.execute(f"DROP TRIGGER {name}")
    return file


@pytest.fixture
def bait(tmp_path):
    """A place whose every thing tells that it was touched."""
    place = tmp_path / "bait"
    place.mkdir()
    (tmp_path / "bait_module.py").write_text(f"open({str(place / 'imported')!r}, 'w')\n")
    os.mkfifo(place / "fifo.jsonl")
    (place / "program").write_text(f"#!/bin/sh\ntouch {place}/started\nexec cat\n")
    (place / "program").chmod(0o755)
    return place


def change(folder: Path, **changes: Any) -> None:
    file = opened(folder)
    key, value = file.execute(
        "SELECT key, value FROM meta WHERE key LIKE 'run %' ORDER BY seq DESC"
    ).fetchone()
    document = json.loads(value)
    for name, there in changes.items():
        (document["registry"] if name in ("models", "mcpServers") else document)[name] = there
    file.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (key, json.dumps(document)))
    file.execute("DELETE FROM checkpoints WHERE visit >= 1")
    file.close()


@pytest.fixture
def kept_bait(made, bait, tmp_path):
    folder = tmp_path / "kept"
    shutil.copytree(made / "kept", folder)
    change(
        folder, lm=f"scripted:{bait}/fifo.jsonl", planner="bait_module:plan",
        strategy="bait_module:strategy(k=1)", workflow="bait_module:flow", plan=None,
        mcpServers=[{"id": "s", "command": str(bait / "program"), "args": ["x\x1b[2J\u202ey", "--"],
                     "env": ["OPENAI_API_KEY"], "timeoutMs": 1000}],
        models=[{"modelId": "m", "provider": "openai", "baseUrl": "http://127.0.0.1:9/bait"}],
    )  # fmt: skip
    file = opened(folder)
    file.execute("UPDATE runs SET workflow = 'bait_module:flow'")
    file.close()
    return folder


@pytest.fixture
def study_bait(made, bait, tmp_path):
    """A study whose every name is a bait, with results of all its cells."""
    folder = tmp_path / "study"
    with Store(made / "study", read_only=True) as store:
        meta, cells = store.meta(), store.cells()
        spans = {c: store.trace(c) for c in cells}
    scenarios = [{**s, "environment": "bait_module:world"} for s in meta["scenarios"].values()]
    arms = [
        {"planner": "bait_module:plan", "strategy": "bait_module:never", "workers": 1,
         "workflow": "bait_module:w", "lm": f"scripted:{bait}/fifo.jsonl",
         "reflector": "bait_module:r"},
        {"planner": f"structured(program='{bait}/fifo.json')", "strategy": "never", "workers": 1,
         "workflow": "autonomous", "lm": "openai/m@http://127.0.0.1:9/bait", "review": "approve"},
        {"planner": "search", "strategy": "never", "workflow": "autonomous", "workers": 1,
         "lm": f"recorded:{bait}/fifo.jsonl"},
    ]  # fmt: skip
    definition = {**meta["definition"], "arms": arms, "suite": f"{bait}/fifo.jsonl"}
    from agentlab.environments.scenario import Scenario
    from agentlab.trace.packing import pack_spans

    known = {Scenario.model_validate(s).digest: s for s in scenarios}
    with Store(folder) as store:
        store.add_meta(**{**meta, "scenarios": known,
                          "definition": {**definition, "scenarios": list(known)}})  # fmt: skip
        like = {r.row["role"]: (k, r) for k, r in cells.items() if r.row["role"] != "arm"}
        like["arm"] = next((k, r) for k, r in cells.items() if spans[k])
        made_of = []
        for key, cell in Study.open(folder)._keyed().items():
            source, found = like[cell.role]
            row = {**found.row, "scenario": cell.scenario.id, "fault_rate": cell.fault_rate,
                   "seed": cell.seed, "arm": cell.arm.label if cell.arm else cell.role}  # fmt: skip
            made_of.append(type(found)(key, "done", row, pack_spans(spans[source])))
        store.add_cells(made_of)
    return folder


def look(folder: Path, *reader: str) -> tuple[int, str]:
    """Look at a folder in another process; nothing of what it names may be touched."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(folder), *reader], capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=300, check=False, cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(
            [str(folder.parent), *filter(None, [os.environ.get("PYTHONPATH")])])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    code, text, touched = json.loads(done.stdout.splitlines()[-1])
    assert touched == []
    place = folder.parent / "bait"
    assert sorted(p.name for p in place.iterdir()) == ["fifo.jsonl", "program"]
    return code, text


def test_readers_of_a_kept_run_use_nothing_that_it_names(kept_bait):
    code, text = look(kept_bait, "show")
    assert (code, "bait_module:flow" in text) == (0, True)
    with Store(kept_bait, read_only=True) as store:
        [run] = store.run_ids()
    assert look(kept_bait, "show", run)[0] == 0
    look(kept_bait, "python", "inspector")


def test_readers_of_a_study_use_nothing_that_it_names(study_bait):
    assert look(study_bait, "show")[0] == 0
    key = Study.open(study_bait).runs["cell"][0]
    assert look(study_bait, "show", key)[0] == 0
    assert look(study_bait, "report")[0] == 0
    look(study_bait, "python", "frames")


def test_resume_and_replay_say_what_they_would_use_and_use_nothing(kept_bait, study_bait):
    for words in (("resume",), ("replay",)):
        code, text = look(kept_bait, *words)
        assert code == 2
        assert "--trust" in text
        for named in ("bait_module:plan", "bait_module:strategy(k=1)", "bait_module:flow", "fifo"):
            assert named in text, text
        started = "program" in text and "OPENAI_API_KEY" in text and "127.0.0.1:9/bait" in text
        assert started == (words == ("resume",)), "a replay starts no server and asks no model"
        assert "\x1b" not in text
        assert "\u202e" not in text
    key = Study.open(study_bait).runs["cell"][0]
    code, text = look(study_bait, "replay", key)
    assert (code, "bait_module:world" in text, "fifo.json" in text) == (2, True, True)


# ---- agreeing ----------------------------------------------------------------------------------


@pytest.fixture
def stranger(made, tmp_path, monkeypatch):
    """A stranger's folder that names a program; returns it and a fresh state directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "theirs"
    shutil.copytree(made / "kept", folder)
    change(folder, mcpServers=[{"id": "s", "command": "no-such-program", "args": ["one"]}])
    return folder


def agreed(folder: Path) -> bool:
    code, text = said("resume", folder)
    assert (code == 2) == ("nobody agreed" in text), text
    return code != 2


def test_who_agreed_once_is_not_asked_again_until_something_changes(stranger, tmp_path):
    assert not agreed(stranger)
    assert said("resume", stranger, "--trust")[0] == 0
    assert agreed(stranger)
    moved = stranger.rename(tmp_path / "elsewhere")
    assert agreed(moved)
    for changed in ({"args": ["two"]}, {"args": ["one"], "env": ["HOME"]}, {"command": "other"}):
        server = {"id": "s", "command": "no-such-program", "args": ["one"], **changed}
        change(moved, mcpServers=[server])
        assert not agreed(moved), changed
    change(moved, mcpServers=[{"id": "s", "command": "no-such-program", "args": ["one"]}])
    assert agreed(moved)


def test_what_was_agreed_to_is_written_for_the_user_alone(stranger, tmp_path):
    said("resume", stranger, "--trust")
    folder = tmp_path / "state" / "agentlab" / "trusted"
    [file] = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    assert "no-such-program" not in file.read_text()
    whole = file.read_text()
    for damage in ("", whole[:10], "x" * 5000, "\x00"):
        file.write_text(damage)
        assert not agreed(stranger), damage
    file.write_text(whole)
    file.chmod(0o666)  # another may have written it
    assert not agreed(stranger)
    said("resume", stranger, "--trust")
    assert agreed(stranger)


def test_where_nothing_can_be_written_agreeing_counts_once(stranger, tmp_path, monkeypatch):
    (tmp_path / "state").write_text("a file")
    assert said("resume", stranger, "--trust")[0] == 0
    assert not agreed(stranger)


def test_what_the_user_made_is_asked_of_nobody(tmp_path, monkeypatch):
    (tmp_path / "agents.yaml").write_text(json.dumps({
        "agents": [{"id": "a"}],
        "mcp_servers": [{"id": "s", "command": "no-such-program", "args": ["one"]}],
    }))  # fmt: skip
    (tmp_path / "plan.json").write_text(PLAN)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    words = ["run", "hi", "--agent", f"{tmp_path}/agents.yaml:a", "--plan", tmp_path / "plan.json"]
    assert said(*words, "--out", tmp_path / "kept")[0] == 0
    assert agreed(tmp_path / "kept")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of another user"))
    assert not agreed(tmp_path / "kept")


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2), ("", 2)])
def test_on_a_terminal_it_asks(stranger, answer, code):
    parent, child = pty.openpty()
    program = [sys.executable, "-c", "from agentlab.views.cli.cli import main; main()"]
    with subprocess.Popen(
        [*program, "resume", str(stranger)], stdin=child, stdout=child, stderr=child
    ) as running:
        os.close(child)
        text = b""
        while b"[y/N]" not in text:
            text += os.read(parent, 4096)
        os.write(parent, f"{answer}\n".encode())
        try:
            while more := os.read(parent, 4096):
                text += more
        except OSError:
            pass
        assert running.wait(60) == code, text
    os.close(parent)
    assert b"starts no-such-program one (MCP server s)" in text
    assert agreed(stranger) == (code == 0)
