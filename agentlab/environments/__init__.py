"""Simulated worlds: the contract, scenarios and their faults, suites; one file a world."""
