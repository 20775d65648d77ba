"""What every interface calls: export, verify, archive, cancel, gc."""
