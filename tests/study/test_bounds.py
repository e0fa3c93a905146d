"""A study that is too large is refused before anything of it is made."""

from __future__ import annotations

import itertools
import os
import signal

import pytest

import agentlab as al
from agentlab.errors import AgentLabError, ConfigError, StudyError
from agentlab.study.bounds import CELLS, seeds_of

ARMS = al.grid(planner="search", strategy="never")


@pytest.mark.parametrize(
    "seeds",
    [10**12, 10**5000, range(10**12), itertools.count(), (i for i in range(10**9)), [10**5000],
     [2**63], [-(2**63)], [True], True, "abc", b"a", 0, -1, None, 1.5, [1.5], [], float("inf")],
    ids=lambda s: str(type(s).__name__),
)  # fmt: skip
def test_seeds_that_are_none_or_too_many(seeds):
    with pytest.raises(StudyError, match="seed") as caught:
        al.Study(ARMS, "quickstart", seeds=seeds)
    assert len(str(caught.value)) < 400


def test_seeds_that_are_some():
    assert seeds_of(3) == (0, 1, 2)
    assert seeds_of(iter([5, 5, -1])) == (5, -1)
    assert seeds_of({7}) == (7,)


def test_the_product_of_the_axes_is_counted_first():
    with pytest.raises(StudyError, match=r"12,000,000 runs; .* at most 1,000,000"):
        al.Study(ARMS, "quickstart", seeds=CELLS)
    with pytest.raises(StudyError, match="999,999,000,000 arms"):
        al.grid(strategy=["never"] * 10**6, workers=list(range(1, 10**6)))
    many = ",".join(map(str, range(1, 1001)))
    with pytest.raises(StudyError, match="stands for 1,000,000 budgets"):
        al.grid(strategy="on_error", budget=f"replans={many},seconds={many}")


@pytest.mark.parametrize(
    "number", [10**9, 0, -1, 1.5, "2", True, 10**5000], ids=lambda n: type(n).__name__
)
def test_workers_threads_and_processes_have_a_bound(number, tmp_path):
    study = al.Study(ARMS, "quickstart", seeds=1, out=tmp_path)
    for name in ("processes", "threads"):
        with pytest.raises(ConfigError, match=f"{name} from 1 to 1,000"):
            study.run(progress=False, **{name: number})
    with pytest.raises(AgentLabError, match="workers"):
        al.grid(workers=number)
    assert not list(tmp_path.iterdir())


def test_zero_has_one_sign():
    assert str(al.Study(ARMS, "quickstart", fault_rate=-0.0).fault_rates) == "(0.0,)"


class Kills:
    """A planner that ends its process, as the system does where memory runs out."""

    name = "kills"

    def __init__(self, how):
        self.how = how

    def plan(self, request, bench):
        if self.how == "exit":
            os._exit(7)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_worker_that_dies_is_one_error_and_the_rest_goes_on(how, tmp_path):
    suite = al.load_suite("quickstart")[:4]
    arms = al.grid(planner=[Kills(how), "search"], strategy="never")
    study = al.Study(arms, suite, seeds=1, out=tmp_path, controls=False)
    with pytest.raises(StudyError, match=r"a worker process died .* is kept"):
        study.run(processes=2, progress=False)
    rest = al.Study(arms[1:], suite, seeds=1, out=tmp_path, controls=False)
    assert list(rest.run(processes=2, progress=False)["status"]) == ["done"] * 4


def test_a_backend_that_waits_for_ever_is_refused(tmp_path):
    study = al.Study(ARMS, al.load_suite("quickstart")[:2], seeds=1, out=tmp_path, controls=False)
    with pytest.raises(ConfigError, match="waits for ever"):
        study.run(processes=2, backend="multiprocessing", progress=False)
