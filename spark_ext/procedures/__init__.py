"""The procedures of `CALL <catalog>.system.<name>(...)`; `spark_ext.sql.dispatch` lists them."""
