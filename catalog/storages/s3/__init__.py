"""Objects in S3 and what speaks its protocol: the one door to boto3."""
