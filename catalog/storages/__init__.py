"""Storages by scheme: the local file system, and the stores of the packages below."""
