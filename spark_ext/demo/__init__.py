"""The demo: its directory, its data in ClickHouse, and the readers that query the lake.

`spark_ext/cli/commands/demo.py` runs it, with the same export as `mergeberg export`.
"""
