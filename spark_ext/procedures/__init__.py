"""The procedures of `CALL <catalog>.system.<name>(...)`, one file per group; see `registry`."""
