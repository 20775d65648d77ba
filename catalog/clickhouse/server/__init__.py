"""Reads ClickHouse servers of any version from 18.16 on over HTTP."""
