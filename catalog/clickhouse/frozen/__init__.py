"""Reads frozen or restored part folders and their CREATE TABLE statement, without a server."""
