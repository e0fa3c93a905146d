"""The workflows that ship, by name."""

from __future__ import annotations

from agentlab.errors import UnknownNameError
from agentlab.workflows.autonomous import autonomous
from agentlab.workflows.resident import resident
from agentlab.workflows.workflow import Workflow
