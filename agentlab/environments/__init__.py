"""Simulated worlds, by name."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

from agentlab.environments.base import Environment
from agentlab.environments.suites import Suite
from agentlab.errors import UnknownNameError
