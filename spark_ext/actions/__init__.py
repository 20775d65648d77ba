"""The actions behind all interfaces: export, verify, archive, cancel, gc and others."""
