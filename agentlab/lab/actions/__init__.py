"""Action types: how each kind of step is carried out."""
