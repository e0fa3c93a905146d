"""Replan strategies: trigger × scope × budget × what happens when it is spent."""
