"""The Java side of Spark SQL: its sources, the resource that tells it our procedures, its jar."""
