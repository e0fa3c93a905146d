"""Whatever decides: planners, strategies, deciders, reflectors, responders."""
