"""The command line: it parses, calls, and prints through `output`; it decides nothing."""
