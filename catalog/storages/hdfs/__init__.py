"""Files in HDFS, over WebHDFS."""
