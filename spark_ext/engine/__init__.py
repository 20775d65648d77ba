"""Runs the tasks of an export: Java, Spark sessions, jobs and slices."""
