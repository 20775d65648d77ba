"""The jar for Spark SQL: its Java sources, its resource with the procedures, and its build."""
