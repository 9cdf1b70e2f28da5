package org.apache.hive.hcatalog.data;

/** Needed by the listener of notifications; Maven Central does not have the HCatalog jar for 4.x. */
public class Pair<T, U> {
  public final T first;
  public final U second;

  public Pair(T first, U second) {
    this.first = first;
    this.second = second;
  }
}
