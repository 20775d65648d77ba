"""The demonstration: where it lives, what it fills ClickHouse with, and who reads the lake back.

`spark_ext/cli/commands/demo.py` tells the story; the export in it is the ordinary one.
"""
