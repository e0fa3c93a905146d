"""Planners: who makes plans, and plans for what remains."""
