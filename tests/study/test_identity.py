"""A user's object is known again in another process, by what it is and not by its bytes."""

from __future__ import annotations

import linecache
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import agentlab as al
from agentlab.lm.scripted import scripted
from agentlab.minds.planners.fixed import Fixed
from agentlab.minds.planners.search import Search
from agentlab.study.grid import Arm
from agentlab.study.identity import Described, class_text

SCRIPT = '''
import sys, pathlib
import agentlab as al
from agentlab.lm.scripted import scripted
from agentlab.minds.planners.search import Search

HERE = pathlib.Path(__file__).parent
PATIENCE = 2


def note(what):
    with open(HERE / "made.txt", "a") as file:
        file.write(what + "\\n")


class Greedy(Search):
    """Search that tells what it does."""

    def __init__(self, k=1):
        super().__init__(patience=PATIENCE)
        self.k, self.weights, self.calls = k, {"a": [1, 2.5], "b": {3, 1, 2}}, 0

    def plan(self, request, bench):
        self.calls += 1
        note("plan")
        return super().plan(request, bench)


def trigger(point, state, step_id):
    return None


def scope_of(depth):
    return lambda trigger, state, bench: None if depth else None


own = al.Strategy("own", trigger, scope_of(2))
flow = al.Workflow("flow", al.autonomous.nodes.values(), al.autonomous.routers, "load_config")
model = scripted([("analysis", '{"analysis": "x"}'), ("", "done")])
def study():
    arms = (
        *al.grid(planner=[Greedy(1), Greedy(2)], strategy=own),
        *al.grid(planner=Greedy(1), workflow=flow),
        *al.grid(planner="search", lm=model),
    )
    return al.Study(arms, al.load_suite("chain")[:3], seeds=1, out=HERE / "out", controls=False)
if __name__ == "__main__":
    runs = study().run(processes=int(sys.argv[1]))
    assert set(runs["status"]) == {"done"}, runs["error"].tolist()
    for arm in sorted(set(runs["arm"])):
        print(arm)
'''


def ran(folder: Path, *words: str, code: int = 0, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, **(env or {})}, timeout=120,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def made(folder: Path) -> int:
    """How many plans were made since the last time this was asked."""
    file = folder / "made.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return len(lines)


@pytest.mark.slow
def test_the_same_script_in_two_processes_resumes_the_same_study(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    first = ran(tmp_path, "-W", "error", "script.py", "2", env={"PYTHONHASHSEED": "1"})
    assert first.splitlines() == [
        "Greedy × never × flow", "Greedy × own", "Greedy(k=2) × own",
        "search × never × scripted/model",
    ]  # fmt: skip
    assert made(tmp_path) == 9
    assert ran(tmp_path, "script.py", "1", env={"PYTHONHASHSEED": "2"}) == first
    assert made(tmp_path) == 0

    script.write_text(SCRIPT.replace('note("plan")', 'note("a plan")'))  # the planner's text
    ran(tmp_path, "script.py", "1")
    assert made(tmp_path) == 9
    script.write_text(SCRIPT.replace("PATIENCE = 2", "PATIENCE = 3"))  # a constant that it uses
    ran(tmp_path, "script.py", "1")
    assert made(tmp_path) == 9
    script.write_text(SCRIPT.replace("scope_of(2)", "scope_of(3)"))  # what a closure holds
    ran(tmp_path, "script.py", "1")
    assert made(tmp_path) == 6
    script.write_text(SCRIPT)
    ran(tmp_path, "script.py", "1")
    assert made(tmp_path) == 0


@pytest.mark.slow
def test_the_folder_is_read_in_a_process_without_the_objects(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    ran(tmp_path, "script.py", "1")
    (tmp_path / "script.py").unlink()
    program = (
        "import agentlab as al\n"
        "study = al.Study.open('out')\n"
        "assert len(study.runs) == 12\n"
        "for name in ('runs', 'steps', 'spans', 'decisions', 'faults', 'lm_calls'):\n"
        "    study.frame(name)\n"
        "study.leaderboard(), study.compare('success', by='planner')\n"
        "study.trace(study.runs.cell[0])\n"
    )
    ran(tmp_path, "-c", program)
    command = ("-c", "from agentlab.views.cli.cli import main; main()")
    assert "Greedy(k=2)" in ran(tmp_path, *command, "show", "out")
    key = ran(tmp_path, "-c", "import agentlab as al; print(al.Study.open('out').runs.cell[0])")
    assert "visit" in ran(tmp_path, *command, "show", "out", key.strip())
    ran(tmp_path, *command, "report", "out")
    assert "Greedy(k=2)" in (tmp_path / "out" / "report.html").read_text()
    assert "is an object of" in ran(tmp_path, *command, "replay", "out", key.strip(), code=2)


@pytest.mark.slow
def test_a_killed_script_goes_on_where_it_was(tmp_path):
    slow = SCRIPT.replace('note("plan")', 'note("plan"); import time; time.sleep(0.3)')
    (tmp_path / "script.py").write_text(slow)
    under_way = subprocess.Popen([sys.executable, "script.py", "1"], cwd=tmp_path)
    file = tmp_path / "made.txt"
    until = time.monotonic() + 60
    while not file.exists() or len(file.read_text().splitlines()) < 8:
        assert under_way.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    os.kill(under_way.pid, signal.SIGKILL)
    under_way.wait()
    made(tmp_path)
    ran(tmp_path, "script.py", "1")
    assert made(tmp_path) <= 4  # a first batch of six cells is kept, and single ones after it


# ---- cells of a notebook ---------------------------------------------------------------------

CELL = """
import functools
WEIGHT = 2
TABLE = {"a": [1]}
SEEN = []
class Mine:
    'A planner.'
    scale = 1.5
    def __init__(self, k=1):
        self.k = k
    @property
    def half(self):
        return self.k / 2
    @functools.cached_property
    def dear(self):
        return 7
    def plan(self, request, bench):
        SEEN.append(1)
        return helper(self.k) * WEIGHT * len(TABLE)
def helper(k):
    return k + 1
def closing(threshold, names=("a",)):
    def trigger(point, state, step_id=None):
        return "late" if threshold > 3 else None
    return trigger
"""
numbers = iter(range(1000))


def cell(text: str = CELL) -> dict:
    """Run a cell as IPython does: its text is in linecache, and its module has no file."""
    name = f"<ipython-input-{next(numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), space)
    return space


def key(value) -> object:
    return Arm(value).to_json()["planner"]["digest"]


def test_a_cell_that_is_run_twice_makes_the_same_object_again():
    one, two = cell(), cell("\n\n# moved down" + CELL)
    assert "class Mine" in (class_text(one["Mine"]) or "")
    assert key(one["Mine"](3)) == key(two["Mine"](3)) != key(two["Mine"](4))
    assert Described(one["closing"](4)).json == Described(two["closing"](4)).json
    assert Described(one["closing"](4)).json != Described(one["closing"](5)).json


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return helper(self.k)", "return 2 * helper(self.k)"),  # a method
        ("scale = 1.5", "scale = 1.6"),  # an attribute of the class
        ("WEIGHT = 2", "WEIGHT = 3"),  # a constant
        ('{"a": [1]}', '{"a": [2]}'),
        ("return k + 1", "return k + 2"),  # a function that it calls
        ("self.k = k", "self.k = k + 1"),
        ("self.k / 2", "self.k / 3"),  # a property
    ],
)
def test_what_changes_what_it_does_changes_its_key(old, new):
    assert old in CELL
    assert key(cell()["Mine"]()) != key(cell(CELL.replace(old, new))["Mine"]())


def test_without_text_the_compiled_code_stands_for_it():
    def bare(text=CELL):
        space = {"__name__": "__main__"}
        exec(compile(text, "<string>", "exec"), space)
        return space["Mine"](2)

    assert class_text(type(bare())) is None
    assert Described(bare()).unclear == []
    assert key(bare()) == key(bare()) != key(bare(CELL.replace("/ 2", "/ 3")))
    assert key(bare()) != key(bare(CELL.replace("1.5", "1.6")))


def test_what_it_computed_and_kept_does_not_count():
    space = cell()
    one, two = space["Mine"](), space["Mine"]()
    assert one.dear == 7
    space["SEEN"].append(1)
    assert key(one) == key(two)


def test_two_lambdas_of_one_line_are_two_functions():
    one, two = (lambda p, s, i: "a"), (lambda p, s, i: "b")
    assert Described(one).json != Described(two).json
    assert Described(one).json == Described(one).json


def test_two_objects_of_a_class_with_other_settings_are_two_arms():
    mine = cell()["Mine"]
    arms = al.grid(planner=[mine(), mine(k=2), mine(k=3)])
    assert [a.called("planner") for a in arms] == ["Mine", "Mine(k=2)", "Mine(k=3)"]
    fixed = cell("class Told:\n    def __init__(self, *rows):\n        self.rows = rows\n"
                 "    def plan(self, request, bench): ...\n")["Told"]  # fmt: skip
    arms = al.grid(planner=[fixed([1]), fixed([2])])
    assert len({a.label for a in arms}) == 2
    assert all(a.called("planner").startswith("Told#") for a in arms)
    with pytest.raises(al.AgentLabError, match=r"two arms are called 'Told#.* they are the same"):
        al.grid(planner=[fixed([1]), fixed([1])])


def test_a_scripted_model_is_its_script_whatever_it_was_asked():
    one, two = scripted([("a", "b"), ("", "c")]), scripted([("a", "b"), ("", "c")])
    one.engine.requests.append("asked")
    arms = [Arm("search", lm=m) for m in (one, two, scripted([("a", "b"), ("", "d")]))]
    keys = [a.to_json()["lm"]["digest"] for a in arms]
    assert keys[0] == keys[1] != keys[2]
    assert not arms[0].unclear()


# ---- what cannot be told ---------------------------------------------------------------------


class Locked:
    def __init__(self):
        self.lock = threading.Lock()

    def plan(self, request, bench): ...


def test_what_cannot_be_told_is_said_before_it_runs_with_what_to_do(tmp_path):
    suite = al.load_suite("chain")[:1]
    told = r"cannot be resumed .* planner Locked holds lock \(_thread.lock\).*register.*arm_key"
    with pytest.warns(UserWarning, match=told):
        al.Study(al.grid(planner=Locked()), suite, out=tmp_path)
    one, two = Locked(), Locked()
    assert key(one) == key(one) != key(two)
    named = type("Named", (Locked,), {"name": "named"})
    al.Study(al.grid(planner=named()), suite, out=tmp_path / "named")
    keyed = type("Keyed", (Locked,), {"arm_key": lambda self: {"k": 1}})
    al.Study(al.grid(planner=keyed()), suite, out=tmp_path / "keyed")
    assert key(keyed()) == key(keyed())


PLANS = []


class Odd(Locked):
    def plan(self, request, bench):
        PLANS.append(1)
        return Search().plan(request, bench)


def test_its_own_process_goes_on_with_a_study_that_no_other_can(tmp_path):
    odd, suite = Odd(), al.load_suite("chain")[:2]
    for _ in range(2):
        with pytest.warns(UserWarning, match="cannot be resumed"):
            study = al.Study(al.grid(planner=odd), suite, seeds=1, out=tmp_path, controls=False)
        assert set(study.run(processes=1)["status"]) == {"done"}
    assert len(PLANS) == 2


def test_an_arm_may_be_called_otherwise_as_a_study_grows(tmp_path):
    suite, one, two = al.load_suite("chain")[:2], Fixed([]), Fixed([{"stepId": "a"}])
    small = al.Study(al.grid(planner=one), suite, seeds=1, out=tmp_path, controls=False)
    assert set(small.run(processes=1)["planner"]) == {"Fixed"}
    grown = al.Study(al.grid(planner=[one, two]), suite, seeds=1, out=tmp_path, controls=False)
    told = []
    runs = grown.run(processes=1, progress=lambda done, todo, rate: told.append(todo))
    assert max(told) == 2  # the arm that was there is not run again
    assert runs["planner"].nunique() == runs["arm"].nunique() == 2
    assert all(name.startswith("Fixed#") for name in runs["planner"])
    assert set(al.Study.open(tmp_path).runs["arm"]) == set(runs["arm"])
