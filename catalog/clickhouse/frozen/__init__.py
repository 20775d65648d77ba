"""A source without a server: frozen or restored part folders, and their CREATE TABLE statement."""
