"""The package in Python: reservoirs and readouts in the hand, and training. docs/library.md teaches it."""
