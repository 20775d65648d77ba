"""The procedures of `CALL <catalog>.system.<name>(...)`: a file per group, all in `registry`."""
