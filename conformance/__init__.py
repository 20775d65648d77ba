"""Requirement ids, and test suites for implementations of the contracts, by public names only."""
