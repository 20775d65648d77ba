"""HDFS over WebHDFS."""
