"""The package as a library: reservoirs and readouts in Python, without a configuration file. docs/library.md teaches it."""
