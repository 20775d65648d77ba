"""The tables of `mergeberg.system`, which `spark_ext.procedures.registry` lists."""
