"""A plan as a validated contract: spec, validator, codec, bindings."""
