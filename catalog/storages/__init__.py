"""Storages by scheme: files of the local file system, objects in S3."""
