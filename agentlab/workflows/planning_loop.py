"""The planning loop: starts sessions of ``resident``, lets them hear of events, stops them.

What a session is: see ``agentlab.workflows.sessions``.
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import Future
from typing import Any

from agentlab.errors import UnknownNameError
from agentlab.lab.lab import Lab
from agentlab.lab.named import executor_named
from agentlab.minds.strategies.presets import event_driven
from agentlab.runs.given import lab_of
from agentlab.state.decisions import ReplanDecision
from agentlab.state.events import ContextChangeEvent
from agentlab.workflows.resident import resident
from agentlab.workflows.sessions import (
    STOP_SECONDS,
    LoopConfig,
    PlanningLoopRegistry,
    PlanningLoopSession,
)


class PlanningLoop:
    """Looks after goals: starts sessions, lets them hear of events, stops them.

    Parameters
    ----------
    lab : Lab
        What every session works with; the strategy of a session follows from its configuration.
    registry : PlanningLoopRegistry, optional
        Default: one of its own.

    Examples
    --------
    >>> import agentlab as al
    >>> with al.PlanningLoop(al.Lab(al.load_suite("chain")[0])) as loop:
    ...     session = loop.start()
    ...     state = session.wait(60)
    >>> print(session.status)
    COMPLETED
    """

    def __init__(self, lab: Lab, registry: PlanningLoopRegistry | None = None) -> None:
        self.lab = lab_of(lab)
        self.registry = registry if registry is not None else PlanningLoopRegistry()

    def start(
        self, goal: str | None = None, handler: object | None = None,
        config: LoopConfig | None = None, **options: Any,
    ) -> PlanningLoopSession:  # fmt: skip
        """Start a session and return it at once.

        Parameters
        ----------
        goal : str, optional
            Default: the scenario's task.
        handler : object, optional
            Hears stream events (see ``agentlab.lab.handler.Handler``), on the session's thread.
        config : LoopConfig, optional
        **options
            For ``Run.start``, e.g. ``session_id``, ``store``.

        Raises
        ------
        ConfigError
            A model is to decide and there is none, or threads are to run a simulated world.
        """
        config = config or LoopConfig()
        decider = config.decider or ("rules" if self.lab.model is None else "lm")
        strategy = event_driven(
            config.react_threshold, config.batch_react_size, config.milestones, decider,
            config.max_replans, when_no_plan=config.when_no_plan,
        )  # fmt: skip
        world = self.lab.environment
        executor = self.lab.executor
        wall = executor.wall or world is None
        chosen = config.executor or ("threads" if wall else "simulated")
        if executor.wall != (chosen == "threads"):
            executor = executor_named(chosen, self.lab.workers, world, self.lab.cast.real)
        lab = self.lab.bind(strategy=strategy, executor=executor)
        options = {"session_id": uuid.uuid4().hex[:12], **options}
        run = resident.start(lab, goal, handler=handler, **options)
        session = PlanningLoopSession(run, config, lambda s: self.registry.remove(s.session_id))
        self.registry.register(session)
        session.start()
        return session

    def publish_event(self, session_id: str, event: ContextChangeEvent) -> None:
        """Let a session know that something happened; any thread may call it.

        Raises
        ------
        UnknownNameError, RunError
            There is no such session, it has ended, or the event is of another.
        """
        self.registry.get(session_id).run.publish(event)

    def react(self, session_id: str) -> Future[ReplanDecision]:
        """Ask a session for a decision as things stand.

        Raises
        ------
        UnknownNameError, RunError
            There is no such session, or it has ended.
        """
        return self.registry.get(session_id).react()

    def execute_replan(
        self, session: PlanningLoopSession, decision: ReplanDecision
    ) -> Future[ReplanDecision]:
        """Let a session carry out a decision that was made elsewhere.

        Raises
        ------
        PlanEditError
            It cancels a step that is completed or does not exist.
        RunError
            The session has ended.
        """
        return session.decide(decision)

    def stop(self, session_id: str) -> None:
        """Stop a session within a second, whatever it does; one that has ended stays as it is."""
        try:
            session = self.registry.get(session_id)
        except UnknownNameError:
            return
        session.stop()
        self.registry.remove(session_id)

    def get_session(self, session_id: str) -> PlanningLoopSession:
        """Return a session that has not ended.

        Raises
        ------
        UnknownNameError
            There is none of that id.
        """
        return self.registry.get(session_id)

    def __enter__(self) -> PlanningLoop:
        return self

    def __exit__(self, *raised: object) -> None:
        left = self.registry.active_sessions
        for session in left:
            session.ask_to_stop()
        end = time.monotonic() + STOP_SECONDS
        for session in left:
            session.stop(max(0.0, end - time.monotonic()))
            self.registry.remove(session.session_id)
