"""An agent as a lab has it: its configuration looked up, its model connected, its tools at hand.

A lab loads its agent when it is made, and remembers what went wrong: ``load_config`` tells of it.
Tools of MCP servers come when they are first asked for, since servers are processes; every lab that
is bound from the same one shares them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

from agentlab.base.documents import Json
from agentlab.environments.suites import find_agents, find_recording
from agentlab.errors import AgentLabError, ConfigError, UnknownNameError, seen, suggest
from agentlab.lm.model import Model
from agentlab.state.config import AgentConfig, AgentRegistry, ToolSettings, load_registry
from agentlab.tools.listing import as_listed
from agentlab.tools.mcp import SERVERS
from agentlab.tools.tool import Tool, ToolRegistry

_EQUIPPING = threading.Lock()

SERVICES = ("function", "environment", "mcp")


class Agent:
    """An agent of a lab.

    Parameters
    ----------
    agent : str, AgentConfig or None
        An id where there is a registry, "FILE:ID" where there is none; None: one that has whatever
        tools the lab was given.
    registry : AgentRegistry or None
        Where its sub-agents are looked up.
    given : iterable of Tool
        Tools of the world, and Python functions.
    world : str
        What an agent without a configuration is called.

    Attributes
    ----------
    configured : AgentConfig or None
        None: there is none, or it could not be loaded.
    """

    def __init__(
        self, agent: str | AgentConfig | None, registry: AgentRegistry | None,
        given: Iterable[Tool], world: str,
    ) -> None:  # fmt: skip
        self.registry, self._world = registry, world
        self._given = ToolRegistry(given)
        self._equipped: ToolRegistry | None = None
        self._failure: AgentLabError | None = None
        self.configured: AgentConfig | None = None
        if isinstance(agent, AgentConfig):
            self.configured = agent
        elif agent is not None:
            try:
                self.registry, self.configured = find_agent(agent, registry)
            except AgentLabError as e:
                self._failure = e
        if self.configured is not None:
            self._given = _asking(self.configured, self._given)

    def connect(self) -> Model | None:
        """Connect the model of the configuration, where it has one."""
        if self.configured is None or self.configured.model is None:
            return None
        from agentlab.lm.connect import connect

        try:
            return connect(settings=self.configured.model, recordings=find_recording)
        except AgentLabError as e:
            self._failure = e
            return None

    def config(self) -> AgentConfig:
        """Return the configuration, with everything that it needs at hand.

        Raises
        ------
        ConfigError, UnknownNameError
            The file, an id in it, a tool or a server is not what it must be.
        """
        if self._failure is not None:
            raise self._failure
        if self.configured is None:
            self.configured = AgentConfig(
                id=self._world, name=self._world, tools=tuple(map(_settings, self._given.values()))
            )
            self._equipped = self._given
        self._equip(self.configured)
        return self.configured

    @property
    def tools(self) -> ToolRegistry:
        """The tools given and configured; those given where the others are not to be had."""
        if self._equipped is not None:
            return self._equipped
        if self._failure is None and self.configured is not None:
            try:
                return self._equip(self.configured)
            except AgentLabError:  # ``config`` tells of it
                pass
        return self._given

    @property
    def real(self) -> bool:
        """True when it has functions or tools of servers; no server is started to find out."""
        if any(t.function is not None for t in self._given.values()):
            return True
        config = self.configured
        return config is not None and (
            bool(config.mcp_servers) or any(t.service_type == "mcp" for t in config.tools)
        )

    def having(self, tools: Iterable[Tool] | ToolRegistry) -> Agent:
        """Return the agent with these tools in place of all that it has."""
        other = copy(self)
        other._given = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        if self.configured is not None:
            other._given = _asking(self.configured, other._given)
        other._equipped = other._given
        return other

    def _equip(self, config: AgentConfig) -> ToolRegistry:
        with _EQUIPPING:
            if self._equipped is None:
                listed = None if self.registry is None else self.registry.listed
                self._equipped = equipped(config, self._given, listed)
            return self._equipped


def equipped(
    config: AgentConfig, given: ToolRegistry, listed: Mapping[str, Json] | None = None
) -> ToolRegistry:
    """Return the tools given, and those of the configuration's MCP servers.

    Parameters
    ----------
    config : AgentConfig
    given : ToolRegistry
    listed : mapping, optional
        What the servers list; given, none is started.

    Raises
    ------
    ConfigError
        A configured tool is not to be had.
    """
    for settings in config.tools:
        where = f"tool {seen(settings.name)} of agent {seen(config.id)}"
        if settings.service_type == "http":
            raise ConfigError(f"{where}: service type 'http' comes in a later stage; use 'mcp'")
        if settings.service_type not in SERVICES:
            raise UnknownNameError("service type", settings.service_type, SERVICES, where)
        if settings.service_type != "mcp" and settings.name not in given:
            raise ConfigError(
                f"{where} is a function that the lab was not given: Lab(tools=[...]) with a tool "
                f"of that name; {suggest(settings.name, given)}"
            )
    if not config.mcp_servers and all(t.service_type != "mcp" for t in config.tools):
        return given
    tools = ToolRegistry([*given.values(), *server_tools(config, listed)])
    return _asking(config, tools)


def _asking(config: AgentConfig, tools: ToolRegistry) -> ToolRegistry:
    """Return the tools; those need approval, too, of which the configuration says so.

    A server's tool needs it under every name that the agent has for it.
    """
    asks = {n for t in config.tools if t.needs_approval for n in (t.name, t.endpoint)}
    if asks.isdisjoint(tools):
        return tools
    return ToolRegistry(
        replace(t, needs_approval=True) if t.name in asks else t for t in tools.values()
    )


def find_agent(
    agent: str, registry: AgentRegistry | None = None
) -> tuple[AgentRegistry, AgentConfig]:
    """Return an agent, and the registry it stands in: that of the file, in "FILE:ID".

    Raises
    ------
    ConfigError
        It is not "FILE:ID", or the file cannot be read.
    UnknownNameError
        The registry has no such agent, or not what the agent names.
    """
    if registry is not None:
        return registry, registry.load(agent)
    path, colon, agent_id = agent.rpartition(":")
    if not colon or not path:
        raise ConfigError(
            f"expected agent 'FILE:ID' such as 'agents.yaml:helpdesk', got {seen(agent)}"
        )
    registry = load_registry(find_agents(path))
    return registry, registry.load(agent_id)


def _settings(tool: Tool) -> ToolSettings:
    return ToolSettings(
        id=tool.name, tool_id=tool.name, name=tool.name, description=tool.description,
        parameters=tool.parameters, returns=tool.returns, service_type=tool.service,
        timeout_ms=max(1, round(tool.timeout * 1000)),
    )  # fmt: skip


def server_tools(config: AgentConfig, listed: Mapping[str, Any] | None = None) -> list[Tool]:
    """Return the tools that an agent has from MCP servers; starts the servers.

    Parameters
    ----------
    config : AgentConfig
    listed : mapping, optional
        What ``listings`` returned; given, no server is started.

    Raises
    ------
    ConfigError
        A server cannot be started, or has no tool that the configuration names.
    """
    servers = {
        s.id: SERVERS.client(s).tools if listed is None else as_listed(s.id, listed)
        for s in config.mcp_servers
    }
    tools = [t for i in config.offered for t in servers[i].values()]
    for settings in config.tools:
        if settings.service_type != "mcp":
            continue
        where = f"tool {seen(settings.name)} of agent {seen(config.id)}"
        server, slash, name = (settings.endpoint or "").partition("/")
        if not slash:
            told = settings.endpoint
            raise ConfigError(f"{where}: expected endpoint 'server/tool', got {seen(told)}")
        if server not in servers:
            raise ConfigError(
                f"{where}: unknown MCP server {seen(server)}; {suggest(server, servers)}"
            )
        known = servers[server]
        if name not in known:
            raise ConfigError(f"{where}: {server} has no tool {seen(name)}; {suggest(name, known)}")
        described = settings.description or known[name].description
        tools.append(replace(known[name], name=settings.name, description=described))
    return tools
