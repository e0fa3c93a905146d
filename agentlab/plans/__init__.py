"""Plans: steps with data flow between them, and their graph."""
