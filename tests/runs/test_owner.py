"""One owner: of many that would go on with a run at once one does, and the others are told who.

The processes of these tests run this file as a script: ``test_owner.py DO FOLDER``.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import agentlab as al
from agentlab.errors import AgentLabError, OwnedError, RunError, StoreError
from agentlab.minds.planners.fixed import Fixed
from agentlab.trace.store import Store

CALLS, TOGETHER = 5, 8


def lab(folder: Path, seconds: float = 0.0, workers: int = 1, during: Callable[[], None] = bool):
    """Return a lab whose plan pays five times; each payment is a line of the file ``effects``."""

    def pay(n: int) -> int:
        with open(folder / "effects", "a") as file:
            file.write(f"{n}\n")
        during()
        time.sleep(seconds)
        return n

    plan = [
        {"stepId": f"s{i}", "name": f"s{i}", "actionType": "call_tool", "targetResource": "pay",
         "parameters": {"n": i}, "dependencies": [f"s{i - 1}"] if i else []}
        for i in range(CALLS)
    ]  # fmt: skip
    tools = [al.tool(pay, effect="irreversible")]
    return al.Lab(tools=tools, planner=Fixed(plan), strategy="never", workers=workers)


def main(do: str, folder: Path) -> None:
    if do == "start":
        al.autonomous.start(lab(folder), "go", store=str(folder)).run_until("plan_execution")
        os._exit(0)
    if do == "hold":  # an owner that does nothing, until it is killed
        run = al.Run.resume(str(folder), lab(folder))
        (folder / "held").write_text(str(os.getpid()))
        time.sleep(600)
        del run
    if do == "hold, with a child":
        run = al.Run.resume(str(folder), lab(folder))
        if (child := os.fork()) == 0:
            os.close(1)  # the pipe that tells the test that its parent has ended
            os.close(2)
            time.sleep(600)
        (folder / "child").write_text(str(child))
        (folder / "held").write_text(str(os.getpid()))
        time.sleep(600)
    if do == "resume":
        made_of = lab(folder, 1.0)  # long enough for all to ask while it goes on
        with Store(folder, read_only=True) as store:
            al.Run.resume(store, made_of)
        (folder / f"ready{os.getpid()}").touch()
        end = time.monotonic() + 120
        while len(list(folder.glob("ready*"))) < TOGETHER and time.monotonic() < end:
            time.sleep(0.005)
        try:
            al.Run.resume(str(folder), made_of).finish()
            sys.stdout.write(f"finished {os.getpid()}")
        except AgentLabError as e:
            sys.stdout.write(f"{type(e).__name__}: {e}")


def process(do: str, folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, __file__, do, str(folder)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@contextmanager
def held(do: str, folder: Path) -> Iterator[int]:
    """Let a process own the run; yield its pid."""
    owner = process(do, folder)
    try:
        end = time.monotonic() + 60
        while not (folder / "held").exists() and time.monotonic() < end:
            time.sleep(0.01)
        yield int((folder / "held").read_text())
    finally:
        owner.kill()
        owner.communicate()


@pytest.fixture
def begun(tmp_path):
    """A folder with a durable run whose process ended before its first call."""
    process("start", tmp_path).communicate(timeout=60)
    assert not (tmp_path / "effects").exists()
    return tmp_path


def made(folder: Path) -> Counter[str]:
    return Counter((folder / "effects").read_text().split())


ONCE = Counter({str(n): 1 for n in range(CALLS)})


def test_of_eight_processes_one_goes_on_and_seven_are_told_who_does(begun):
    said = [
        p.communicate(timeout=120)[0].strip()
        for p in [process("resume", begun) for _ in range(TOGETHER)]
    ]
    [done] = [s for s in said if s.startswith("finished")]
    refused = [s for s in said if s.startswith("OwnedError")]
    assert len(refused) == TOGETHER - 1, said
    pid = done.removeprefix("finished ")
    for told in refused:
        assert re.search(rf"run \w+ in .* pid {pid} on \S+, since \d{{4}}-\d\d-\d\d ", told), told
    assert made(begun) == ONCE
    assert not list(begun.glob("*.lock"))


def test_readers_need_no_lock_and_no_permission_to_write(begun):
    with held("hold", begun) as pid:
        with Store(begun, read_only=True) as store:
            looked = al.Run.resume(store, lab(begun))
            assert looked.visited == ["load_config", "planning"]
            assert looked.replay().identical
            with pytest.raises(RunError, match="opened to be looked at"):
                looked.step()
            with pytest.raises(RunError, match="opened to be looked at"):
                looked.edit(user_input="else")
        with pytest.raises(OwnedError, match=rf"pid {pid} on"):
            al.Run.resume(str(begun), lab(begun))
    assert not (begun / "effects").exists()


@pytest.mark.parametrize("do", ["hold", "hold, with a child"])
def test_a_killed_owner_holds_nothing_and_neither_do_its_children(begun, do):
    with held(do, begun) as pid:
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}/task").exists() and _state(pid) != "Z":
            time.sleep(0.01)
        assert list(begun.glob("*.lock")), "what it left is no obstacle"
        al.Run.resume(str(begun), lab(begun)).finish()
    if (begun / "child").exists():
        os.kill(int((begun / "child").read_text()), signal.SIGKILL)
    assert made(begun) == ONCE


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_a_forked_child_goes_on_with_nothing_that_its_parent_owns(begun):
    run = al.Run.resume(str(begun), lab(begun))
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        told = []
        for go_on in (run.step, lambda: al.Run.resume(str(begun), lab(begun))):
            try:
                go_on()
                told.append("nothing")
            except OwnedError as e:
                told.append(str(e))
        os.write(write, "\n".join(told).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    first, second = os.read(read, 10_000).decode().split("\n")
    assert f"is owned by process {os.getpid()}, from which this one was forked" in first
    assert f"pid {os.getpid()} on" in second
    run.finish()
    assert made(begun) == ONCE


# ---- in one process --------------------------------------------------------------------------


def test_a_cell_that_is_run_again_takes_the_run_over(begun):
    older = al.Run.resume(str(begun), lab(begun))
    older.step()
    newer = al.Run.resume(str(begun), lab(begun))
    assert len(newer.visited) == len(older.visited) == 3
    for refused in (older.step, older.finish, lambda: older.edit(user_input="else")):
        with pytest.raises(OwnedError, match="taken over by an object that was made of it later"):
            refused()
    assert older.replay().identical
    newer.finish()
    assert made(begun) == ONCE


def test_what_a_thread_executes_is_not_taken_over(begun):
    inside, go_on = threading.Event(), threading.Event()

    def during():
        inside.set()
        go_on.wait(30)

    run = al.Run.resume(str(begun), lab(begun, during=during))
    thread = threading.Thread(target=run.finish)
    thread.start()
    assert inside.wait(30)
    with pytest.raises(OwnedError, match=rf"thread or object of this process: pid {os.getpid()} "):
        al.Run.resume(str(begun), lab(begun))
    go_on.set()
    thread.join()
    assert run.finished
    assert made(begun) == ONCE


def test_a_tool_does_not_take_its_own_run_over(begun):
    told = []

    def again():
        try:
            al.Run.resume(str(begun), lab(begun))
        except OwnedError as e:
            told.append(str(e))

    al.Run.resume(str(begun), lab(begun, during=again)).finish()
    assert len(told) == CALLS
    assert made(begun) == ONCE


def test_threads_that_resume_at_once_are_one_and_the_refused(begun):
    start, ended = threading.Barrier(TOGETHER), []

    def go_on():
        start.wait()
        try:
            al.Run.resume(str(begun), lab(begun, 0.02)).finish()
            ended.append("finished")
        except OwnedError:
            ended.append("refused")

    threads = [threading.Thread(target=go_on) for _ in range(TOGETHER)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(ended) == TOGETHER
    assert "finished" in ended
    assert made(begun) == ONCE


def test_a_run_that_has_ended_is_left_to_others_until_it_goes_on(begun):
    first = al.Run.resume(str(begun), lab(begun))
    first.finish()
    assert not list(begun.glob("*.lock"))
    second = al.Run.resume(str(begun), lab(begun))
    second.say("and more")
    with pytest.raises(OwnedError, match=f"pid {os.getpid()} on"):
        first.say("something else")
    second.finish()
    with pytest.raises(OwnedError, match="gone on with elsewhere meanwhile"):
        first.say("something else")
    second.say("a third time")  # nobody else went on with it
    assert second.visited.count("(say)") == 2


def test_runs_forks_and_sessions_of_one_store_go_on_side_by_side(tmp_path):
    with Store(tmp_path) as store, al.PlanningLoop(lab(tmp_path)) as loop:
        session = loop.start("go", store=store)
        run = al.autonomous.start(lab(tmp_path), "go", store=store)
        run.run_until("plan_execution")
        fork = run.fork(seed=3)
        twin = run.fork(seed=4)
        for one in (fork, run, twin):
            one.finish()
        session.wait(60)
        assert made(tmp_path) == Counter({str(n): 4 for n in range(CALLS)})
        again = al.Run.resume(store, lab(tmp_path), fork.run_id)
        assert again.finished
    assert not list(tmp_path.glob("*.lock"))


def test_the_run_of_a_session_is_not_taken_over_while_it_lives(tmp_path):
    waits = al.tool(lambda n: n, name="pay", effect="write", needs_approval=True,
                    parameters={"type": "object"})  # fmt: skip
    plan = [{"stepId": "s", "name": "s", "actionType": "call_tool", "targetResource": "pay",
             "parameters": {"n": 1}}]  # fmt: skip
    made_of = al.Lab(tools=[waits], planner=Fixed(plan))
    with Store(tmp_path) as store, al.PlanningLoop(made_of) as loop:
        session = loop.start("go", store=store)
        end = time.monotonic() + 30
        while not session.waiting and time.monotonic() < end:
            time.sleep(0.01)
        with pytest.raises(OwnedError, match="thread or object of this process"):
            al.Run.resume(store, made_of)
        session.stop()
        session.wait(30)
        assert al.Run.resume(store, made_of).run_id == session.run.run_id


def test_who_is_dropped_or_whose_store_is_closed_owns_nothing(begun):
    run = al.Run.resume(str(begun), lab(begun))
    [lock] = begun.glob("*.lock")
    del run
    gc.collect()
    assert not lock.exists()
    with Store(begun) as store:
        run = al.Run.resume(store, lab(begun))
        assert lock.exists()
    assert not lock.exists()
    with pytest.raises(OwnedError, match="was closed"):
        run.step()


def test_a_run_that_cannot_be_loaded_is_not_owned(begun):
    with pytest.raises(AgentLabError):
        al.Run.resume(str(begun), lab(begun), "nobody")
    with pytest.raises(AgentLabError, match="expected a Lab"):
        al.Run.resume(str(begun), None)
    assert not list(begun.glob("*.lock"))


# ---- where locks are not to be had --------------------------------------------------------------


@pytest.mark.parametrize("name", ["ENOLCK", "ENOTSUP", "EINVAL", "ENOSYS"])
def test_without_locks_it_says_how_to_go_on_all_the_same(begun, monkeypatch, name):
    import errno
    import fcntl

    def refuse(*arguments):
        raise OSError(getattr(errno, name), "none here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreError, match=r"no locks.*--no-lock \(lock=False\)"):
        al.Run.resume(str(begun), lab(begun))
    al.Run.resume(str(begun), lab(begun), lock=False).finish()
    assert made(begun) == ONCE


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_lock_that_leads_elsewhere_is_refused_and_not_followed(begun, kind):
    with Store(begun, read_only=True) as store:
        [run_id] = store.run_ids()
    lock, victim = begun / f"study.db-run-{run_id}.lock", begun / "victim"
    lock.unlink(missing_ok=True)
    victim.write_text("mine")
    lock.symlink_to(victim) if kind == "link" else os.mkfifo(lock)
    with pytest.raises(StoreError, match="lock"):
        al.Run.resume(str(begun), lab(begun))
    assert victim.read_text() == "mine"


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
