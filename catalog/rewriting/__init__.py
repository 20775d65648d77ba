"""Writes files of lake tables again: changed, merged, copied or foreign rows."""
