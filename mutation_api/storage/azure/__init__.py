"""Azure's blob storage and Data Lake Storage."""
