"""Studies: arms compared over scenarios, fault rates and seeds, and the numbers that follow."""
