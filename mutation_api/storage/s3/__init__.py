"""S3 and the stores that speak its protocol."""
