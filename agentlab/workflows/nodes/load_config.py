"""``load_config``: the agent's configuration into the state."""

from __future__ import annotations

from agentlab.errors import AgentLabError
from agentlab.lab.bench import Bench
from agentlab.runs.graph import node
from agentlab.state.state import State


@node
def load_config(state: State, lab: Bench) -> State:
    """Load the agent; a failure writes ``error``, and no LM is called after it."""
    try:
        agent = lab.agent()
    except (AgentLabError, OSError) as e:
        lab.emit("on_error", str(e))
        return state.replace(error=str(e))
    return state.put(
        agent_id=agent.id,
        agent_config=agent,
        llm_model_config=agent.model,
        dataset_list=tuple(k.id for k in agent.knowledge_bases),
        retrieval_config={k.id: k.retrieval for k in agent.knowledge_bases},
    )
