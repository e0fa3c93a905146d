"""Agent registries from YAML and TOML, and secrets that stay secret."""

from __future__ import annotations

import json
import traceback

import pytest

from agentlab.errors import ConfigError, UnknownNameError
from agentlab.lm.settings import ModelSettings
from agentlab.state.config import (
    AgentConfig,
    AgentRegistry,
    AgentSettings,
    KnowledgeBase,
    KnowledgeRelation,
    ToolSettings,
    load_registry,
)
from agentlab.state.state import State

SECRET = "sk-do-not-tell"

YAML = f"""
models:
  - modelId: small
    provider: openai
    baseUrl: http://localhost:8000
    apiKey: {SECRET}
    maxTokens: 100
    temperature: 0.7
    topP: 0.9
    supportsStreaming: true
agents:
  - id: helpdesk
    name: 客服
    systemPrompt: "You help. ${{not.a.reference}}"
    model: small
    maxTokens: 500
    temperature: 0
    supportsStreaming: false
    tools: [track]
    subAgents: [billing]
    knowledge:
      - dataset: manuals
      - dataset: faq
        useCustomConfig: true
        retrieval: {{topK: 3}}
      - dataset: old
        enabled: false
  - id: billing
    name: Billing
    description: Knows invoices
tools:
  - id: track
    name: track_parcel
    parameters: {{type: object, properties: {{id: {{type: string}}}}}}
knowledge_bases:
  - id: manuals
    retrieval: {{topK: 10}}
  - id: faq
    retrieval: {{topK: 10}}
  - id: old
"""

TOML = f"""
[[models]]
model_id = "small"
provider = "openai"
base_url = "http://localhost:8000"
api_key = "{SECRET}"
max_tokens = 100
temperature = 0.7
top_p = 0.9
supports_streaming = true

[[agents]]
id = "helpdesk"
name = "客服"
system_prompt = "You help. ${{not.a.reference}}"
model = "small"
max_tokens = 500
temperature = 0
supports_streaming = false
tools = ["track"]
sub_agents = ["billing"]
knowledge = [
  {{ dataset = "manuals" }},
  {{ dataset = "faq", use_custom_config = true, retrieval = {{ topK = 3 }} }},
  {{ dataset = "old", enabled = false }},
]

[[agents]]
id = "billing"
name = "Billing"
description = "Knows invoices"

[[tools]]
id = "track"
name = "track_parcel"
parameters = {{ type = "object", properties = {{ id = {{ type = "string" }} }} }}

[[knowledge_bases]]
id = "manuals"
retrieval = {{ topK = 10 }}

[[knowledge_bases]]
id = "faq"
retrieval = {{ topK = 10 }}

[[knowledge_bases]]
id = "old"
"""


def written(tmp_path, text, name="agents.yaml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(params=["yaml", "toml"])
def registry(request, tmp_path):
    text = YAML if request.param == "yaml" else TOML
    return load_registry(written(tmp_path, text, f"agents.{request.param}"))


def test_an_agent_with_everything_it_names(registry):
    agent = registry.load("helpdesk")
    assert agent.name == "客服"
    assert agent.system_prompt == "You help. ${not.a.reference}"
    assert [(s.id, s.name, s.description) for s in agent.sub_agents] == [
        ("billing", "Billing", "Knows invoices")
    ]
    assert [(t.id, t.name, t.parameters["properties"]) for t in agent.tools] == [
        ("track", "track_parcel", {"id": {"type": "string"}})
    ]
    assert {k.id: k.retrieval for k in agent.knowledge_bases} == {
        "manuals": {"topK": 10},
        "faq": {"topK": 3},
    }


def test_the_agents_own_settings_win_over_the_models(registry):
    model = registry.load("helpdesk").model
    assert (model.max_tokens, model.temperature, model.supports_streaming) == (500, 0, False)
    assert (model.top_p, model.supports_function_call) == (0.9, None)
    assert model.api_key.get_secret_value() == SECRET
    assert registry.models["small"].max_tokens == 100
    assert registry.load("billing").model is None


def test_both_formats_say_the_same(tmp_path):
    yaml = load_registry(written(tmp_path, YAML)).load("helpdesk")
    assert yaml == load_registry(written(tmp_path, TOML, "agents.toml")).load("helpdesk")


# ---- what is wrong with a registry -----------------------------------------------------------

CASES = {
    "agent": ({}, "helpdesc"),
    "model": ({"model": "smal"}, "a"),
    "tool": ({"tools": ("trak",)}, "a"),
    "sub-agent": ({"sub_agents": ("helpdesc",)}, "a"),
    "knowledge base": ({"knowledge": (KnowledgeRelation(dataset="manual"),)}, "a"),
}


@pytest.mark.parametrize(("fields", "asked"), CASES.values(), ids=list(CASES))
def test_unknown_ids_name_the_known_ones(fields, asked):
    registry = AgentRegistry(
        agents=[AgentSettings(id="a", **fields), AgentSettings(id="helpdesk")],
        models=[ModelSettings(model_id="small")],
        tools=[ToolSettings(id="track", name="t")],
        knowledge_bases=[KnowledgeBase(id="manuals")],
        source="here.yaml",
    )
    with pytest.raises(UnknownNameError, match=r"^here\.yaml: unknown .*did you mean '") as e:
        registry.load(asked)
    assert e.value.known


@pytest.mark.parametrize("kind", ["agents", "models", "tools", "knowledge_bases"])
def test_an_id_occurs_once(kind):
    record = {
        "agents": AgentSettings(id="x"),
        "models": ModelSettings(model_id="x"),
        "tools": ToolSettings(id="x", name="n"),
        "knowledge_bases": KnowledgeBase(id="x"),
    }[kind]
    with pytest.raises(ConfigError, match=r"registry: two .*s have the id 'x'"):
        AgentRegistry(**{kind: [record, record]})


@pytest.mark.parametrize(
    ("text", "name", "parts"),
    [
        ("agents:\n  - name: x\n", "a.yaml", ["field agents.0.id: is missing"]),
        (
            "agents:\n  - id: x\n    tool: [t]\n",
            "a.yaml",
            ["agents.0.tool: is no field of it"],
        ),
        ("agents: 5\n", "a.yaml", ["field agents: ", "got int"]),
        ("- 5\n", "a.yaml", ["field (document): ", "got list"]),
        ("agents:\n  - id: x\n   name: y\n", "a.yaml", ["not YAML", "line 3"]),
        ("agents: !!python/object/apply:os.getcwd []\n", "a.yaml", ["not YAML", "line 1"]),
        ("agents: [\x01]\n", "a.yaml", ["not YAML"]),
        ("agents = [\n", "a.toml", ["not TOML", "end of document"]),
        ("a = " + "[" * 5000, "a.toml", ["not TOML"]),
        ("a = " + "1" * 5000, "a.toml", ["not TOML"]),
        ("a = nan", "a.toml", ["no finite number"]),
        ("a = 2024-01-02", "a.toml", ["holds a date"]),
        ('models = [{modelId = "m", topP = 2.0}]', "a.toml", ["field models.0.topP: "]),
    ],
)
def test_a_file_that_says_something_else(tmp_path, text, name, parts):
    path = written(tmp_path, text, name)
    with pytest.raises(ConfigError) as e:
        load_registry(path)
    assert str(e.value).startswith(f"{path}: ")
    assert [p for p in parts if p not in str(e.value)] == []


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        load_registry(tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"agents: \xe9")
    with pytest.raises(ConfigError, match=r"latin\.yaml: cannot be read"):
        load_registry(tmp_path / "latin.yaml")


def test_an_empty_file_is_an_empty_registry(tmp_path):
    assert load_registry(written(tmp_path, "# nothing yet\n")).agents == {}


# ---- secrets ---------------------------------------------------------------------------------


def test_a_secret_is_nowhere_to_be_seen(registry):
    agent = registry.load("helpdesk")
    state = State(agent_config=agent, llm_model_config=agent.model)
    for record in (agent.model, agent, state):
        shown = [repr(record), str(record), record.model_dump_json(), json.dumps(record.to_json())]
        assert [text for text in shown if SECRET in text] == []
        assert "apiKey" not in shown[-1]
        assert record.digest == type(record).model_validate(record.to_json()).digest
    assert "**********" in repr(agent.model)
    assert AgentConfig.model_validate(agent.to_json()).model.api_key is None


@pytest.mark.parametrize(
    ("name", "text"),
    {
        "quote left open": ("a.yaml", 'models:\n  - modelId: m\n    apiKey: "{}\n'),
        "indentation": ("a.yaml", "models:\n  - modelId: m\n   apiKey: {}\n"),
        "two values": ("a.yaml", "models:\n  - modelId: m\n    apiKey: {}: x: y\n"),
        "no such tag": ("a.yaml", "models:\n  - modelId: m\n    apiKey: !x {}\n"),
        "no such alias": ("a.yaml", "models:\n  - modelId: m\n    apiKey: *{}\n"),
        "an anchor twice": ("a.yaml", "models: *x {}\n"),
        "a tab": ("a.yaml", "models:\n  - modelId: m\n\tapiKey: {}\n"),
        "no quotes": ("a.toml", "[[models]]\nmodelId = 'm'\napiKey = {}\n"),
        "a key twice": ("a.toml", "[[models]]\napiKey = '{0}'\napiKey = '{0}'\n"),
        "a list": ("a.yaml", "models:\n  - modelId: m\n    apiKey: [{}]\n"),
        "misspelled": ("a.yaml", "models:\n  - modelId: m\n    apikey: {}\n"),
        "wrong place": ("a.yaml", "apiKey: {}\n"),
        "no list": ("a.yaml", "models: {{modelId: m, apiKey: {}}}\n"),
        "no id": ("a.yaml", "models: [{{provider: x, apiKey: {}}}]\n"),
        "all of it": ("a.yaml", "{}\n"),
    }.values(),
)
def test_a_malformed_file_does_not_give_its_secret_away(tmp_path, name, text):
    path = written(tmp_path, text.format(SECRET), name)
    with pytest.raises(ConfigError) as e:
        load_registry(path)
    everything = "".join(traceback.format_exception(e.value))
    assert SECRET not in everything
    assert path.name in str(e.value)


def test_a_file_in_another_encoding_does_not_give_its_secret_away(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(f"apiKey: {SECRET}".encode("utf-16"))
    with pytest.raises(ConfigError) as e:
        load_registry(path)
    assert SECRET not in "".join(traceback.format_exception(e.value))


def test_two_models_with_one_id_do_not_give_their_secret_away():
    model = ModelSettings(model_id="m", api_key=SECRET)
    with pytest.raises(ConfigError) as e:
        AgentRegistry(models=[model, model])
    assert SECRET not in str(e.value)


# ---- the spelling of other systems -----------------------------------------------------------

FOREIGN = """
agents:
  - agentId: help
    llmModelId: big
    subAgentIds: [clerk]
    toolIds: [look]
    datasets: [{datasetId: docs, useCustomConfig: true, customConfig: {k: 3}}]
  - agent_id: clerk
models: [{modelId: big}]
tools:
  - {id: look, toolId: t1, name: look, parameterSchema: {type: object, properties: {q: {}}},
     responseSchema: {type: string}, serviceType: function, timeoutMs: 500}
knowledge_bases: [{dataset_id: docs, retrievalSettings: {k: 9}}]
"""
OURS = """
agents:
  - id: help
    model: big
    sub_agents: [clerk]
    tools: [look]
    knowledge: [{dataset: docs, use_custom_config: true, retrieval: {k: 3}}]
  - id: clerk
models: [{model_id: big}]
tools:
  - {id: look, tool_id: t1, name: look, parameters: {type: object, properties: {q: {}}},
     returns: {type: string}, service_type: function, timeout_ms: 500}
knowledge_bases: [{id: docs, retrieval: {k: 9}}]
"""


def test_the_spelling_of_other_systems_says_the_same(tmp_path):
    for name, text in (("foreign", FOREIGN), ("ours", OURS)):
        (tmp_path / f"{name}.yaml").write_text(text)
    foreign, ours = (load_registry(tmp_path / f"{n}.yaml") for n in ("foreign", "ours"))
    assert foreign.load("help") == ours.load("help")
    assert foreign.load("help").tools[0].parameters["properties"] == {"q": {}}
    written = {k: v for k, v in foreign.to_json().items() if k != "source"}
    assert written == {k: v for k, v in ours.to_json().items() if k != "source"}
    assert AgentRegistry.from_json(foreign.to_json()).load("help") == ours.load("help")


@pytest.mark.parametrize(
    "twice",
    [
        "agents: [{id: a, agent_id: b}]",
        "tools: [{id: t, name: t, parameters: {}, parameterSchema: {}}]",
    ],
)
def test_one_thing_said_twice_is_refused(tmp_path, twice):
    (tmp_path / "a.yaml").write_text(twice)
    with pytest.raises(ConfigError, match=r"agent_id|parameterSchema"):
        load_registry(tmp_path / "a.yaml")
