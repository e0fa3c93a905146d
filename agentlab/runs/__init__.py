"""A graph of nodes and one run of it."""
