"""Common code of stores over HTTP with one request for each object."""
