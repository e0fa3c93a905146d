"""Resume: a durable run is killed at fifty random moments and goes on.

The tests run this file as a script: it forks a child that makes or resumes a run, the child (or the
script) kills itself without warning, the script writes down what is on disk, and so on until the
run has ended. Tools note every call in an append-only file before and after they act, so the tests
can count what was done outside, whatever the run believes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.errors import RunError, StoreError, ToolFailure
from agentlab.minds.planners.fixed import Fixed
from agentlab.minds.strategies.named import get_strategy
from agentlab.trace import recorder
from agentlab.trace.journal import Address, Entry
from agentlab.trace.store import Store

RUNS, KILLS = 28, 3
EFFECTS = {"look": "read", "put": "idempotent", "send": "write", "pay": "irreversible"}
BOLD = "retry(2, unknown='repeat')"
STRATEGIES = ("never", BOLD, "retry_then_replan(1)", "on_error", "every_step")
MOMENTS = ("tool, before", "tool, midway", "tool, after", "handler", "between", "commit", "time")

# ---- the script: runs that are killed ---------------------------------------------------------


class Killer:
    """Kills this process without warning at the n-th moment of a kind; hears stream events too."""

    def __init__(self, moment: str = "none", n: int = 0) -> None:
        self.moment, self.left = moment, n

    def at(self, moment: str) -> None:
        if moment == self.moment:
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *arguments: self.at("handler")


def tools(log: Path, killer: Killer) -> list[Any]:
    """Return a tool of each effect; the address of a call is that of the span it is made under."""

    def note(what: str, span: Any) -> None:
        line = json.dumps([what, span.visit, span.step_id, span.attempt, span.name]) + "\n"
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)

    def call(n: int) -> dict[str, int]:
        span = recorder._current.get()
        killer.at("tool, before")
        note("start", span)
        killer.at("tool, midway")
        time.sleep(0.001)
        note("done", span)
        killer.at("tool, after")
        if n % 5 == 4 and span.attempt == 1:
            raise ToolFailure("not the first time", code="moody")
        return {"n": n + 1}

    return [al.tool(call, name=name, effect=effect) for name, effect in EFFECTS.items()]


def plan(rng: Random, length: int) -> list[dict[str, Any]]:
    """Return steps that call tools of all effects; half use the result before them."""
    steps: list[dict[str, Any]] = []
    for i in range(length):
        linked = bool(steps) and rng.random() < 0.5
        steps.append(
            {
                "stepId": f"s{i}", "name": f"s{i}", "actionType": "call_tool",
                "targetResource": rng.choice(list(EFFECTS)),
                "parameters": {"n": f"${{s{i - 1}.n}}" if linked else rng.randrange(9)},
            }
        )  # fmt: skip
    return steps


def lab(number: int, log: Path, killer: Killer) -> al.Lab:
    """Return the lab of run ``number``: every third in a simulated world, the others outside."""
    rng = Random(number)
    strategy = STRATEGIES[number % len(STRATEGIES)]
    if number % 3 == 2:
        return al.Lab(
            generate("medium", number), planner="search", strategy=strategy, fault_rate=0.3,
            seed=number, handler=killer,
        )  # fmt: skip
    plans = [plan(rng, 8), *(plan(rng, 3) for _ in range(6))]
    bounded = get_strategy(strategy).within(replans=3)
    return al.Lab(
        tools=tools(log, killer), planner=Fixed(*plans), strategy=bounded,
        workers=1 + number % 2, executor="simulated", handler=killer,
    )  # fmt: skip


def live(number: int, folder: Path, killer: Killer) -> None:
    """Start the run, or resume it, and step it to its end; note the digest of every state."""
    transaction = Store.transaction

    @contextmanager
    def deadly(store: Store) -> Iterator[None]:
        with transaction(store):
            yield
            killer.at("commit")  # all is written, nothing is committed

    Store.transaction = deadly  # type: ignore[method-assign]
    made = lab(number, folder / "effects", killer)
    store = Store(folder)
    if store.run_ids():
        run = al.Run.resume(store, made)
    else:
        run = al.autonomous.start(made, "do it", store=store)
    with (folder / "states").open("a") as states:
        while not run.finished:
            killer.at("between")
            run.step()
            states.write(f"{len(run.visited)} {run.state.digest}\n")
            states.flush()


def found(folder: Path) -> dict[str, Any]:
    """Return what is on disk: the states, the journal, the calls that were made."""
    told: dict[str, Any] = {"digests": [], "visited": [], "journal": []}
    with Store(folder) as store:
        if store.run_ids():
            stored = store.load_run()
            told["digests"] = [s.digest for s in stored.states]
            told["visited"] = stored.visited
            told["journal"] = [
                [*e.address[:3], e.name, e.finished and not interrupted(e)]
                for e in stored.journal.entries.values()
            ]
    for name in ("effects", "states"):
        path = folder / name
        told[name] = path.read_text().splitlines() if path.exists() else []
    told["effects"] = [json.loads(line) for line in told["effects"]]
    return told


def life(number: int, folder: Path, moment: str, rng: Random) -> bool:
    """Let a child live until it has ended or is killed; return whether it was killed."""
    n = {"handler": 30, "between": 12, "commit": 30, "time": 0}.get(moment, 6)
    killer = Killer(moment, rng.randrange(n) if n else 0)
    pid = os.fork()
    if pid == 0:
        live(number, folder, killer)
        os._exit(0)
    if moment == "time":
        time.sleep(rng.uniform(0.0, 0.06))
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if not os.WIFSIGNALED(status) and status:
        raise SystemExit(f"run {number}: a child failed")
    return os.WIFSIGNALED(status)


def main(root: Path) -> None:
    """Kill and resume every run, and write down what was found after each death."""
    record = []
    for number in range(RUNS):
        folder, calm = root / str(number), root / f"{number}-undisturbed"
        folder.mkdir()
        calm.mkdir()
        rng, deaths, moments = Random(f"kill {number}"), [], []
        while len(deaths) < KILLS:
            moment = MOMENTS[(number * KILLS + len(deaths)) % len(MOMENTS)]
            if not life(number, folder, moment, rng):
                break
            deaths.append(found(folder))
            moments.append(moment)
        life(number, folder, "none", rng)
        life(number, calm, "none", rng)
        record.append(
            {"moments": moments, "deaths": deaths, "end": found(folder), "calm": found(calm)}
        )
    (root / "record.json").write_text(json.dumps(record))


# ---- the tests ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    root = tmp_path_factory.mktemp("killed")
    done = subprocess.run(
        [sys.executable, __file__, str(root)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return root, json.loads((root / "record.json").read_text())


def interrupted(entry: Entry) -> bool:
    return isinstance(entry.error, dict) and entry.error.get("code") == "interrupted"


def starts(told: dict[str, Any]) -> Counter[tuple[Any, ...]]:
    """Count how often each call was made, by (visit, step, attempt)."""
    return Counter(tuple(line[1:4]) for line in told["effects"] if line[0] == "start")


def each_death(record: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any], Any]]:
    for number, story in enumerate(record):
        for death in story["deaths"]:
            yield number, story, death


def test_runs_were_killed_at_fifty_moments_of_every_kind_and_all_ended(killed):
    _, record = killed
    moments = Counter(m for story in record for m in story["moments"])
    assert sum(moments.values()) >= 50
    assert set(moments) == set(MOMENTS)
    for story in record:
        assert story["end"]["visited"][-1] == story["calm"]["visited"][-1] == "final_response"


def test_what_was_committed_before_a_kill_is_as_it_was(killed):
    for number, story, death in each_death(killed[1]):
        end = story["end"]
        told = dict(line.split() for line in death["states"])
        for visit, digest in told.items():  # what the process had told us of was on disk
            assert death["digests"][int(visit)] == digest, number
        assert len(death["digests"]) - 1 - len(told) <= 1  # and at most the visit under way
        assert end["digests"][: len(death["digests"])] == death["digests"]
        assert end["visited"][: len(death["visited"])] == death["visited"]


def test_a_finished_call_is_never_made_again(killed):
    served = 0
    for number, story, death in each_death(killed[1]):
        before, after = starts(death), starts(story["end"])
        for visit, step, attempt, _, finished in death["journal"]:
            if finished:
                call = (visit, step, attempt)
                assert after[call] == before[call] == 1 + repeats(story, death, call), (
                    number,
                    call,
                )
                served += visit >= len(death["visited"])
    assert served >= 3  # calls that had finished in a visit that had not: served from the journal


def repeats(story: dict[str, Any], death: dict[str, Any], call: tuple[Any, ...]) -> int:
    """Return how often an earlier kill struck within this call, after it had begun to act."""
    earlier = story["deaths"][: story["deaths"].index(death)]
    struck = 0
    for told in earlier:
        ended = {tuple(e[:3]): e[4] for e in told["journal"]}
        struck += ended.get(call) is False and starts(told)[call] > 0
    return struck


def test_an_unfinished_call_is_made_again_only_if_it_may_be(killed):
    kinds: Counter[str] = Counter()
    for number, story, death in each_death(killed[1]):
        before, after = starts(death), starts(story["end"])
        for visit, step, attempt, tool, finished in death["journal"]:
            call = (visit, step, attempt)
            if finished or visit < len(death["visited"]):  # or interrupted, and the run went on
                continue
            kinds[EFFECTS[tool]] += 1
            if EFFECTS[tool] in ("read", "idempotent"):
                assert after[call] > before[call], (number, call)
            else:
                assert after[call] == before[call] <= 1, (number, call)
    assert all(kinds[e] for e in EFFECTS.values()), kinds


def test_an_unfinished_write_is_interrupted_and_the_strategy_is_asked(killed):
    root, record = killed
    asked: Counter[str] = Counter()
    for number, _, death in each_death(record):
        with Store(root / str(number), read_only=True) as store:
            run = store.load_run()
        for visit, step, attempt, tool, finished in death["journal"]:
            if finished or EFFECTS[tool] in ("read", "idempotent"):
                continue
            after = run.states[visit + 1]
            broken = after.task_plan.step(step)
            assert broken.status == "interrupted"
            assert "its outcome is unknown" in broken.interruption_context.reason
            assert (after.task_results[-1].step_id, after.task_results[-1].attempt) == (
                step, attempt,
            )  # fmt: skip
            assert after.task_results[-1].status == "interrupted"
            assert after.events[-1].type == "TASK_INTERRUPTED"
            strategy = STRATEGIES[number % len(STRATEGIES)]
            if strategy != "never":
                assert run.visited[visit + 1] == "reflection"
                decision = run.states[visit + 2].last_decision
                asked[decision.action.value] += 1
                if strategy != BOLD:
                    assert decision.action != "RETRY"
                if strategy != "every_step":
                    assert "interrupted" in decision.reasoning
    assert asked["RETRY"]
    assert asked["REPLAN_REMAINING"]


def test_a_run_in_which_no_outcome_is_unknown_ends_as_if_nothing_had_happened(killed):
    equal = 0
    for number, story in enumerate(killed[1]):
        unknown = any(
            not e[4] and EFFECTS[e[3]] in ("write", "irreversible")
            for death in story["deaths"]
            for e in death["journal"]
        )
        if not unknown:
            equal += bool(story["deaths"])
            assert story["end"]["digests"] == story["calm"]["digests"], number
    assert equal >= 12


def test_a_resumed_run_has_one_whole_trace(killed):
    """The spans of before and after the kills are those of an undisturbed run."""
    root, record = killed
    for number in range(2, RUNS, 3):  # in simulated worlds, where nothing can be interrupted
        traces = []
        for name in (str(number), f"{number}-undisturbed"):
            with Store(root / name, read_only=True) as store:
                rows = [[s.row() for s in visit] for visit in store.load_run().spans]
            traces.append([[r[2:10] + r[12:14] for r in visit] for visit in rows])
        assert traces[0] == traces[1], record[number]["moments"]


def test_resuming_needs_a_run(tmp_path):
    with pytest.raises(StoreError, match="no such results file"):
        al.Run.resume(str(tmp_path / "none.db"), al.Lab(generate()))
    assert list(tmp_path.iterdir()) == []
    Store(tmp_path / "empty.db").close()
    with pytest.raises(RunError, match="no run"):
        al.Run.resume(str(tmp_path / "empty.db"), al.Lab(generate()))


def test_a_run_that_had_ended_is_ended(tmp_path):
    made = al.Lab(generate("easy", 0), planner="reference", strategy="never")
    with Store(tmp_path) as store:
        run = al.autonomous.start(made, store=store)
        run.finish()
        again = al.Run.resume(store, made, run.run_id)
        assert again.finished
        assert again.states == run.states
        assert again.verdict.success
        assert again.replay().identical
        assert [s.row()[2:10] for s in again.spans[1:]] == [s.row()[2:10] for s in run.spans[1:]]
        with pytest.raises(RunError, match="the run is finished"):
            again.step()


def test_an_exception_in_a_node_is_as_if_the_visit_had_not_begun(tmp_path):
    """No process died here; what the node's calls did is in the journal, and is served."""
    made, log = [], tmp_path / "effects"
    killer = Killer()
    with Store(tmp_path) as store:
        run = al.autonomous.start(
            al.Lab(tools=tools(log, killer), planner=Fixed(plan(Random(1), 4)), strategy="never"),
            "do it", store=store,
        )  # fmt: skip
        run.run_until("plan_execution")
        settle = run.lab.executor

        class Trips:
            def submit(self, *arguments: Any) -> Any:
                return settle.submit(*arguments)

            def wait(self, *arguments: Any) -> Any:
                made.append(settle.wait(*arguments))
                raise OSError("tripped")

        run.lab.__dict__["executor"] = Trips()
        with pytest.raises(OSError, match="tripped"):
            run.step()
        assert len(made) == 1
        assert Address(2, "s0", 1) in run.journal.entries
        run.lab.__dict__["executor"] = settle
        run.finish()
        assert [line[0] for line in map(json.loads, log.read_text().splitlines())].count(
            "start"
        ) == sum(e.name != "executor" for e in run.journal.entries.values())
        assert run.states[3] == made[0].replace(**{
            name: getattr(run.states[3], name)
            for name in ("visit", "next_action", "current_task_index", "trigger")
        })  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
