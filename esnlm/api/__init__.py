"""The Python interface: reservoirs, readouts and training. docs/library.md is its tutorial."""
