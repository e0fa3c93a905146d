"""Workflows: a graph with ways to start it, one page a workflow; sessions of the resident one."""
