"""The tables of `mergeberg.system`: a file for each, all in `spark_ext.procedures.registry`."""
