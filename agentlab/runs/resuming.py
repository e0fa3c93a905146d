"""A durable run: begun, or loaded to go on with it or to look at it; owned from the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from agentlab.base.registry import registry
from agentlab.lab.lab import Lab
from agentlab.runs.given import bound
from agentlab.runs.graph import Graph
from agentlab.runs.stepping import Stepper
from agentlab.runs.trust import Answer, agree, name_uses
from agentlab.runs.visits import Lineage
from agentlab.state.state import State

if TYPE_CHECKING:
    from agentlab.trace.owner import Owner
    from agentlab.trace.store import Store, StoreJournal

R = TypeVar("R", bound=Stepper)


def begun(
    store: Store, run: str, workflow: str, first: State, parent: str | None = None, at: int = 0
) -> tuple[StoreJournal, Owner]:
    """Write a run's first state (see ``Store.start_run``); return its journal and its owner."""
    owner = store.run_owner(run)
    owner.claim()
    try:
        return store.start_run(run, workflow, first, parent, at), owner
    except BaseException:
        owner.release()
        raise


def resumed(
    kind: type[R], store: Store, lab: Lab, run_id: str | None, workflow: Graph | None, trust: Answer
) -> R:
    """Return a stored run as it got, owned where the store is open for writing.

    Parameters
    ----------
    kind : type of Run
    store : Store
    lab : Lab
    run_id : str or None
        None: the latest.
    workflow : Graph or None
        None: the one of the name that is stored.
    trust : bool or callable
        To import what that name stands for (see ``agentlab.runs.trust``).

    Raises
    ------
    OwnedError, StoreError, RunError, TrustError
        Somebody else goes on with it, there is no such run, or it is damaged.
    """
    if store.read_only:
        return _loaded(kind, store, lab, run_id, workflow, trust, None)
    named = store.run_named(run_id)
    owner = store.run_owner(named)
    older = owner.claim(take_over=True)
    try:
        if older is not None and (bearer := older.bearer()) is not None:
            bearer.retire()
        return _loaded(kind, store, lab, named, workflow, trust, owner)
    except BaseException:
        owner.release()
        raise


def _loaded(
    kind: type[R], store: Store, lab: Lab, run_id: str | None, workflow: Graph | None,
    trust: Answer, owner: Owner | None,
) -> R:  # fmt: skip
    found = store.load_run(run_id)
    if workflow is None:
        agree(store.path, name_uses("workflow", found.workflow), trust)
    graph: Graph = workflow or registry("workflow").build(found.workflow)
    lab = bound(lab, graph)
    journal: Any = found.journal
    run = kind(
        graph, lab, found.states, found.visited, journal=journal, run_id=found.run, store=store,
        owner=owner,
        lineage=None if found.parent is None else Lineage(found.parent, found.origin),
    )  # fmt: skip
    run.origin, run._edits = found.origin, found.edits
    for spans in found.spans:
        run._marks.append(len(run.spans))
        run.spans.extend(spans)
    return run
