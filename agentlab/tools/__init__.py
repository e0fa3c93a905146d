"""Tools: what an agent can call, with schemas, effect classes and permissions."""
