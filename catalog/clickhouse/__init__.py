"""Reads ClickHouse: an embedded engine in a child process, servers, snapshots, frozen parts."""
