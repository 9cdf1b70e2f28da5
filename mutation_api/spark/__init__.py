"""What the jobs share: Spark's session and JVM, credentials of workers, errors on their way back."""
