"""Checks claims of papers, and others, against the results of studies."""
