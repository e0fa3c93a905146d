"""The bench of what a node may use, and the one door to what is no value."""
