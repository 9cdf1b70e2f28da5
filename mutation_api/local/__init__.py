"""The local engine: change sets as Arrow, written in this process by threads, without Spark or a JVM."""
