"""Test suites that every implementation of a contract must pass."""
