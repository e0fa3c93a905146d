"""agentlab."""
