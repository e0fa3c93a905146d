"""Runs of configured agents that are kept, so that a folder alone replays or resumes them.

Beside a durable run (``trace/store.py``) stands what its lab was made of: the registry of agents,
the names of model, planner and strategy, a plan that was given, and what the MCP servers listed. A
replay makes its lab of that: no file of agents is read, no server is started, nobody is asked, and
keys are neither stored nor needed. To resume, servers and models must be there again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from agentlab.base.built_in import BUILT_IN
from agentlab.base.documents import Json
from agentlab.base.registry import registry
from agentlab.errors import RunError, StoreError, seen
from agentlab.lab.lab import Lab
from agentlab.minds.planners.fixed import Fixed
from agentlab.runs.graph import END, WAIT, Graph, Node
from agentlab.runs.people import BY_HAND
from agentlab.runs.run import Run
from agentlab.runs.trust import (
    FOR_PEOPLE,
    Answer,
    Use,
    agents_uses,
    agree,
    approve,
    in_order,
    in_replay,
    model_uses,
    name_uses,
)
from agentlab.state.config import AgentRegistry
from agentlab.trace.compare import ReplayReport
from agentlab.trace.packing import reading
from agentlab.trace.store import Store
from agentlab.trace.stored import StoredRun


@dataclass(frozen=True)
class Made:
    """What a lab is made of, as JSON.

    Parameters
    ----------
    agent : str
        Id in the registry.
    registry : AgentRegistry
    lm, planner, strategy : str or None
        Names; None: the agent's own.
    plan : Json
        Carried out as it is; None: a planner makes one.
    workers : int
        Steps that may be under way at once.
    workflow : str
    review : str or None
        "approve" or "reject", for each call that needs approval; None: people are asked.
    """

    agent: str
    registry: AgentRegistry
    lm: str | None = None
    planner: str | None = None
    strategy: str | None = None
    plan: Json = None
    workers: int = 1
    workflow: str = "autonomous"
    review: str | None = None

    def lab(self) -> Lab:
        """Return the lab."""
        planner = self.planner if self.plan is None else Fixed(self.plan)
        return Lab(
            agent=self.agent, agents=self.registry, lm=self.lm, planner=planner,
            strategy=self.strategy, workers=self.workers, review=self.review,
        )  # fmt: skip

    def uses(self, replay: bool = False) -> tuple[Use, ...]:
        """Return what a run, or a replay, of it would start, ask, import and open."""
        uses = agents_uses(self.registry) + model_uses(self.lm) + name_uses("planner", self.planner)
        uses += name_uses("strategy", self.strategy) + name_uses("workflow", self.workflow)
        if uses and self.review == "approve":
            uses.append(FOR_PEOPLE)
        return in_order(in_replay(uses) if replay else uses)

    def to_json(self) -> dict[str, Json]:
        """Return it as JSON, with what the servers that run list; without keys."""
        registry = self.registry.to_json()
        if self.registry.mcp_servers:
            from agentlab.tools.mcp import listings

            registry["listed"] = listings(self.registry.mcp_servers.values())
        names = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**names, "registry": registry}

    @classmethod
    def from_json(cls, document: dict[str, Any], *, listed: bool) -> Made:
        """Read it; ``listed``: go by what the servers listed, and start none."""
        registry = dict(document["registry"])
        known = registry.pop("listed", None) or {}
        source = AgentRegistry.from_json(registry, listed=known if listed else None)
        return cls(**{**document, "registry": source})


@contextmanager
def keeping(
    workflow: Graph, lab: Lab, made: Made, task: str, out: str | Path, handler: object = None,
    *, lock: bool = True,
) -> Iterator[Run]:  # fmt: skip
    """Open a run that is kept in a folder; nothing of it has run yet.

    Raises
    ------
    StoreError
        The folder cannot be written, or holds something else.
    """
    with Store(out, lock=lock) as store:
        if "definition" in store.meta():
            raise StoreError(f"{out}: holds the results of a study; choose another folder")
        run = Run.start(workflow, lab, task, store=store, handler=handler)
        key, written = _key(run.run_id), made.to_json()
        store.add_meta(**{key: written})
        approve(made.uses())
        try:
            yield run
        finally:
            if made.to_json() != written:  # servers that sub-agents started on the way
                store.add_meta(**{key: made.to_json()})


def load(
    out: str | Path, run: str = "", *, replay: bool, handler: object = None, lock: bool = True,
    trust: Answer = False,
) -> Run:  # fmt: skip
    """Return a kept run as far as it got, with a lab of what the folder names.

    Parameters
    ----------
    out : str or Path
        The folder.
    run : str
        Its id, or the beginning; empty: the latest.
    replay : bool
        To be looked at and replayed only: nothing is started or written.
    handler : object, optional
    lock : bool
        See ``Store``.
    trust : bool or callable
        Whether the user agrees to what the folder names, where another made it, or who asks (see
        ``agentlab.runs.trust``). ``look`` needs none.

    Raises
    ------
    StoreError, RunError
        There is no such folder or run, or it was kept by other means.
    TrustError
        The user does not agree.
    """
    run_id, meta = _found(out, run)
    made = meta.get(_key(run_id))
    if made is None:
        raise RunError(
            f"{out}: run {run_id} was not kept by 'agentlab run --out'; Run.resume(store, lab) "
            "goes on with it"
        )
    with reading(out):
        made_of = Made.from_json(made, listed=replay)
        agree(out, made_of.uses(replay), trust)
        graph = registry("workflow").build(made_of.workflow)
        store = Store(out, read_only=replay, lock=lock)
        return _checked(Run.resume(store, made_of.lab(), run_id, graph, handler))


def look(out: str | Path, run: str = "") -> Run:
    """Return a run of a store to be looked at, in the Inspector too: nothing it names is used.

    Its lab knows no tools and no models; it can neither be stepped nor replayed.

    Raises
    ------
    StoreError, RunError
        There is no such folder or run, or it is damaged.
    """
    run_id, _ = _found(out, run)
    with reading(out), Store(out, read_only=True) as store:
        stored = store.load_run(run_id)
        shipped = stored.workflow in BUILT_IN["workflow"]
        graph = registry("workflow").build(stored.workflow) if shipped else _stand_in(stored)
        lab = Lab(planner=Fixed([]), strategy="never")
        return _checked(Run.resume(store, lab, run_id, graph))


def _stand_in(stored: StoredRun) -> Graph:
    """Return a graph with the nodes that a run visited, in place of one that is not looked up."""
    names = dict.fromkeys(n for n in stored.visited if n not in BY_HAND) or {"(none)": None}
    nodes = [Node(name, lambda state, lab: state) for name in names]
    last = WAIT if stored.states[-1].final_response is None else END
    return Graph(stored.workflow, nodes, dict.fromkeys(names, last), next(iter(names)))


def _found(out: str | Path, run: str) -> tuple[str, dict[str, Any]]:
    """Return the id of the run that is meant, and what is known of the folder."""
    with Store(out, read_only=True) as store:
        known, meta = store.run_ids(), store.meta()
    if not known:
        holds = "a study, which agentlab eval goes on with" if "definition" in meta else "nothing"
        raise RunError(f"{out}: expected runs kept by 'agentlab run --out', it holds {holds}")
    ids = [i for i in known if i.startswith(run)]
    if not ids or (run and len(ids) > 1):
        problem = f"{len(ids)} runs start" if ids else "no run starts"
        raise RunError(f"{out}: {problem} with {seen(run)}; runs: {', '.join(known)}")
    return ids[-1], meta


def _checked(found: Run) -> Run:
    for node in found.visited:
        if node not in BY_HAND:
            found.workflow.nodes[node]  # a workflow's own, or the record is damaged
    return found


def replay(out: str | Path, run: str = "", *, trust: Answer = False) -> ReplayReport:
    """Run a kept run again with every call served from its record, and compare.

    Parameters and errors are those of ``load``.
    """
    return load(out, run, replay=True, trust=trust).replay()


def holds_runs(out: str | Path) -> bool:
    """Return whether a folder holds kept runs and no study."""
    with Store(out, read_only=True) as store:
        return bool(store.run_ids()) and "definition" not in store.meta()


def _key(run: str) -> str:
    return f"run {run}"
