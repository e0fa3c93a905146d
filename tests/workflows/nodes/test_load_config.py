"""``load_config``: the agent's configuration into the state; a failure is answered by template."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.lm.settings import ModelSettings
from agentlab.state.config import AgentConfig
from agentlab.workflows.nodes import load_config

FILE = """
agents:
  - {id: help, name: Help desk, model: openai/small, sub_agents: [other], tools: [look],
     temperature: 0.1, knowledge: [{dataset: faq}, {dataset: old, enabled: false},
                 {dataset: own, use_custom_config: true, retrieval: {k: 9}}]}
  - {id: other, description: Knows more}
models: [{model_id: openai/small, temperature: 0.9, max_tokens: 5, api_key: hush}]
tools: [{id: look, name: look, description: Look it up}]
knowledge_bases: [{id: faq, retrieval: {k: 3}}, {id: old}, {id: own, retrieval: {k: 1}}]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "agents.yaml"
    path.write_text(FILE)
    return path


def test_it_loads_agent_model_sub_agents_tools_and_knowledge(notes, file):
    lab = notes.lab(tools=[notes.tool("look")], agent=f"{file}:help")
    state = load_config(lab.initial_state("hi"), lab)
    assert (state.agent_id, state.error) == ("help", None)
    assert state.agent_config.name == "Help desk"
    assert [a.id for a in state.agent_config.sub_agents] == ["other"]
    assert [t.name for t in state.agent_config.tools] == ["look"]
    assert (state.llm_model_config.temperature, state.llm_model_config.max_tokens) == (0.1, 5)
    assert state.dataset_list == ("faq", "own")
    assert state.retrieval_config == {"faq": {"k": 3}, "own": {"k": 9}}
    assert "hush" not in str(state.to_json())


def test_without_a_file_the_agent_is_made_of_the_labs_tools(notes, chain):
    lab = al.Lab(chain())
    state = load_config(lab.initial_state(), lab)
    assert state.agent_id == "chain"
    assert [t.name for t in state.agent_config.tools] == ["advance", "advance_slowly"]
    assert state.agent_config.tools[0].parameters == lab.tools["advance"].parameters
    assert load_config(lab.initial_state(), notes.lab()).agent_id == "agent"


def test_an_agent_made_in_python(notes):
    agent = AgentConfig(id="mine", model=ModelSettings(model_id="openai/m"))
    lab = notes.lab(agent=agent)
    state = load_config(lab.initial_state(), lab)
    assert state.agent_config is agent
    assert state.llm_model_config.model_id == "openai/m"


@pytest.mark.parametrize(
    ("tools", "model", "text"),
    [
        (
            "[look]",
            "openai/small",
            "tool 'look' of agent 'help' is a function that the lab was not",
        ),
        ("[web]", "openai/small", "service type 'http' comes in a later stage"),
        ("[odd]", "openai/small", "unknown service type 'carrier pigeon'"),
        ("[]", "small", "no client knows the model 'small'"),
    ],
)
def test_what_the_agent_needs_must_be_at_hand(notes, tmp_path, tools, model, text):
    file = tmp_path / "agents.yaml"
    file.write_text(f"""
agents: [{{id: help, model: {model}, tools: {tools}}}]
models: [{{model_id: {model}}}]
tools:
  - {{id: look, name: look}}
  - {{id: web, name: web, service_type: http, endpoint: "https://example.org"}}
  - {{id: odd, name: odd, service_type: carrier pigeon}}
""")
    run = al.autonomous.start(notes.lab([], agent=f"{file}:help"), "hi")
    run.finish()
    assert run.visited == ["load_config", "final_response"]
    assert text in run.state.error
    assert set(run.lab.tools) == {"note", "broken"}


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        ("{file}:halp", "did you mean 'help'"),
        ("{file}.missing:help", "cannot be read"),
        ("{file}", "expected agent 'FILE:ID'"),
        (":help", "expected agent 'FILE:ID'"),
    ],
)
def test_a_failure_is_answered_by_the_template_and_nobody_else_is_asked(notes, file, agent, text):
    class Asked:
        def __getattr__(self, name):
            raise AssertionError(f"{name} was asked")

        def plan(self, request, bench):
            raise AssertionError("the planner was asked")

        def respond(self, state, bench):
            raise AssertionError("the responder was asked")

    lab = notes.lab(
        agent=agent.format(file=file), planner=Asked(), responder=Asked(), reflector=Asked()
    )
    run = al.autonomous.start(lab, "hi")
    run.finish()
    assert run.visited == ["load_config", "final_response"]
    assert text in run.state.error
    assert run.state.final_response == (f"Your request could not be carried out: {run.state.error}")
    assert run.state.task_plan is None
    assert run.recorder.of_kind("node")[0].error == run.state.error


def test_the_file_is_not_read_again_by_the_same_lab(notes, file):
    lab = notes.lab(tools=[notes.tool("look")], agent=f"{file}:help")
    first = lab.agent()
    file.unlink()
    assert lab.agent() is first
    assert lab.bind(seed=3).agent() is first
