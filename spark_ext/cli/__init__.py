"""The command line: parses options, calls `spark_ext.actions`, and prints through `output`."""
