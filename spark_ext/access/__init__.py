"""The policy of a server: what SQL users may do, checked before anything is opened or done."""
