"""Checks what SQL users of a shared server may do, before a statement opens or changes anything."""
