"""Worlds that nobody here wrote, behind the contract of ``agentlab.environments.base``."""
