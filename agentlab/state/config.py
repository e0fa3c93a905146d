"""Agent configuration, and the registry it is loaded from (one YAML or TOML file, or Python).

An agent names its model, tools, sub-agents and knowledge bases; unknown ids are errors that name
the known ones. Where other systems spell a field otherwise (``parameterSchema``, ``agent_id``,
``customConfig``), their spelling is read as well. Five LM settings (max_tokens, temperature,
top_p, supports_streaming, supports_function_call) take the agent's own value before the model's.
API keys are secrets: they print as ``**********`` and never serialise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field, ValidationError
from pydantic.alias_generators import to_camel

from agentlab.base.documents import Json, is_json
from agentlab.base.files import DOCUMENT, read_file, shown
from agentlab.base.refusals import explain
from agentlab.base.strict_json import read_yaml
from agentlab.base.values import Document, Value
from agentlab.errors import ConfigError, JsonError, UnknownNameError, seen
from agentlab.lm.settings import ModelSettings
from agentlab.tools.server import McpServer


def _also(name: str, *others: str, **options: Any) -> Any:
    """Return a field that is read under other names as well, each in snake and camel case."""
    known = [spelt for other in (name, *others) for spelt in (other, to_camel(other))]
    return Field(validation_alias=AliasChoices(*dict.fromkeys(known)), **options)


class ToolSettings(Value):
    """A tool as an agent's configuration describes it."""

    id: str
    tool_id: str = ""
    name: str
    description: str = ""
    parameters: Document = _also("parameters", "parameter_schema", default={"type": "object"})
    returns: Document = _also("returns", "response_schema", default={})
    service_type: str = "function"
    """"function": a Python function of that name, given to the lab; "mcp": see ``endpoint``."""
    endpoint: str | None = None
    """For "mcp": ``server/tool``."""
    timeout_ms: int = Field(default=30_000, gt=0)
    needs_approval: bool = False
    """A person must approve each call. False takes nothing away from a tool that says so itself."""


class KnowledgeBase(Value):
    """A knowledge base and how it is searched."""

    id: str = _also("id", "dataset_id")
    name: str = ""
    retrieval: Document = _also("retrieval", "retrieval_settings", default={})


class KnowledgeRelation(Value):
    """An agent's use of a knowledge base."""

    dataset: str = _also("dataset", "dataset_id")
    enabled: bool = True
    use_custom_config: bool = False
    retrieval: Document = _also("retrieval", "custom_config", "retrieval_settings", default={})


class AgentSettings(Value):
    """One agent as the file spells it."""

    id: str = _also("id", "agent_id")
    name: str = ""
    description: str = ""
    system_prompt: str = ""
    user_prompt: str = ""
    model: str | None = _also("model", "model_id", "llm_model_id", default=None)
    max_tokens: int | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, ge=0, le=1)
    supports_streaming: bool | None = None
    supports_function_call: bool | None = None
    sub_agents: tuple[str, ...] = _also("sub_agents", "sub_agent_ids", default=())
    tools: tuple[str, ...] = _also("tools", "tool_ids", default=())
    mcp_servers: tuple[str, ...] = ()
    """Servers whose tools it may all use, as ``server/tool``."""
    knowledge: tuple[KnowledgeRelation, ...] = _also("knowledge", "datasets", default=())
    planner: str | None = None
    strategy: str | None = None


class SubAgent(Value):
    """A sub-agent as prompts describe it."""

    id: str
    name: str = ""
    description: str = ""


class AgentConfig(Value):
    """An agent with everything it names looked up: what ``load_config`` puts into the state."""

    id: str
    name: str = ""
    description: str = ""
    system_prompt: str = ""
    user_prompt: str = ""
    sub_agents: tuple[SubAgent, ...] = ()
    tools: tuple[ToolSettings, ...] = ()
    model: ModelSettings | None = None
    knowledge_bases: tuple[KnowledgeBase, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()
    """Those whose tools it may all use, and those that single tools of it name."""
    offered: tuple[str, ...] = ()
    """Ids of the former."""
    planner: str | None = None
    strategy: str | None = None


_OWN_FIRST = ("max_tokens", "temperature", "top_p", "supports_streaming", "supports_function_call")
_AS_THEY_ARE = (
    "id", "name", "description", "system_prompt", "user_prompt", "planner", "strategy",
)  # fmt: skip


class AgentRegistry:
    """Agents, models, tools and knowledge bases by id.

    Parameters
    ----------
    agents, models, tools, knowledge_bases, mcp_servers : iterable
        The records; ids (for models: ``model_id``) must be unique.
    source : str
        Named in errors.
    listed : mapping, optional
        What the MCP servers list, by id (see ``agentlab.tools.mcp.listings``); given, no server is
        started, and their tools are there to be replayed only.
    """

    def __init__(
        self,
        agents: Iterable[AgentSettings] = (),
        models: Iterable[ModelSettings] = (),
        tools: Iterable[ToolSettings] = (),
        knowledge_bases: Iterable[KnowledgeBase] = (),
        source: str = "registry",
        mcp_servers: Iterable[McpServer] = (),
        listed: Mapping[str, Json] | None = None,
    ) -> None:
        self.source, self.listed = source, listed
        self.agents = self._by_id("agent", ((a.id, a) for a in agents))
        self.models = self._by_id("model", ((m.model_id, m) for m in models))
        self.tools = self._by_id("tool", ((t.id, t) for t in tools))
        self.knowledge_bases = self._by_id("knowledge base", ((k.id, k) for k in knowledge_bases))
        self.mcp_servers = self._by_id("MCP server", ((m.id, m) for m in mcp_servers))

    def _by_id(self, kind: str, items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in items:
            if key in found:
                raise ConfigError(f"{self.source}: two {kind}s have the id {seen(key)}")
            found[key] = item
        return found

    def _get(self, kind: str, table: Mapping[str, Any], key: str) -> Any:
        if key not in table:
            raise UnknownNameError(kind, key, table, where=self.source)
        return table[key]

    def to_json(self) -> dict[str, Any]:
        """Return the records as JSON, without keys."""
        kinds = ("agents", "models", "tools", "knowledge_bases", "mcp_servers")
        records = {kind: tuple(getattr(self, kind).values()) for kind in kinds}
        return {"source": self.source, **_File(**records).to_json()}

    @classmethod
    def from_json(
        cls, document: Mapping[str, Any], listed: Mapping[str, Json] | None = None
    ) -> AgentRegistry:
        """Return the registry that ``to_json`` wrote."""
        records = {k: v for k, v in document.items() if k != "source"}
        return _registry(_File.model_validate(records), document["source"], listed)

    def load(self, agent_id: str) -> AgentConfig:
        """Return an agent with everything it names looked up.

        Raises
        ------
        UnknownNameError
            The agent, or something it names, does not exist.
        """
        agent: AgentSettings = self._get("agent", self.agents, agent_id)
        where = [self._get("agent", self.agents, i) for i in agent.sub_agents]
        model = None
        if agent.model is not None:
            model = self._get("model", self.models, agent.model)
            own = {n: getattr(agent, n) for n in _OWN_FIRST if getattr(agent, n) is not None}
            model = model.replace(**own)
        tools = tuple(self._get("tool", self.tools, i) for i in agent.tools)
        single = [(t.endpoint or "").partition("/")[0] for t in tools if t.service_type == "mcp"]
        return AgentConfig(
            **{name: getattr(agent, name) for name in _AS_THEY_ARE},
            sub_agents=tuple(
                SubAgent(id=a.id, name=a.name, description=a.description) for a in where
            ),
            tools=tools,
            model=model,
            knowledge_bases=tuple(self._knowledge(r) for r in agent.knowledge if r.enabled),
            mcp_servers=tuple(
                self._get("MCP server", self.mcp_servers, i)
                for i in dict.fromkeys((*agent.mcp_servers, *single))
            ),
            offered=agent.mcp_servers,
        )

    def _knowledge(self, relation: KnowledgeRelation) -> KnowledgeBase:
        base: KnowledgeBase = self._get("knowledge base", self.knowledge_bases, relation.dataset)
        return base.replace(retrieval=relation.retrieval) if relation.use_custom_config else base


class _File(Value):
    agents: tuple[AgentSettings, ...] = ()
    models: tuple[ModelSettings, ...] = ()
    tools: tuple[ToolSettings, ...] = ()
    knowledge_bases: tuple[KnowledgeBase, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()


def load_registry(path: str | Path) -> AgentRegistry:
    """Load a registry from a YAML (safe load) or TOML file; "-" is YAML from standard input.

    Raises
    ------
    ConfigError
        The file cannot be read or says something else than it must.
    """
    path = Path(path)
    try:
        text = read_file(path, ConfigError, DOCUMENT, stdin=True)
        file = _File.model_validate(_document(path, text))
    except ValidationError as e:
        told = explain(e, _File, show=False)  # it may hold a secret
        raise ConfigError(f"{shown(path)}: {told}") from None
    return _registry(file, shown(path))


def _registry(file: _File, source: str, listed: Mapping[str, Json] | None = None) -> AgentRegistry:
    return AgentRegistry(
        file.agents, file.models, file.tools, file.knowledge_bases, source, file.mcp_servers, listed
    )


def _document(path: Path, text: str) -> Any:
    if path.suffix == ".toml":
        import tomllib

        try:
            document = tomllib.loads(text)
        except (ValueError, RecursionError) as e:  # numbers and nesting without end are so, too
            raise ConfigError(f"{shown(path)}: not TOML: {e}") from None
        if not is_json(document):
            holds = "a date, a time, or no finite number: JSON has none"
            raise ConfigError(f"{shown(path)}: holds {holds}")
        return document
    try:
        return read_yaml(text) or {}
    except JsonError as e:
        raise ConfigError(f"{shown(path)}: not YAML: {e}") from None
