"""Behaviour suites that any implementation of a contract can run."""
