"""The version of the package, spelled once."""

__version__ = "0.1.0"
