package org.junit.jupiter.api;

/** What Hadoop's own test cluster asks of a library that is not among its jars: that its folder is there. */
public final class Assertions {
  private Assertions() {}

  public static void assertTrue(boolean condition, String message) {
    if (!condition) {
      throw new AssertionError(message);
    }
  }
}
