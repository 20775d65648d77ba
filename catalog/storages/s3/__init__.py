"""S3 and compatible stores; only this package imports boto3."""
