package org.apache.hive.hcatalog.data;

/** What the listener of notifications needs of the HCatalog jar, which Maven Central does not have for 4.x. */
public class Pair<T, U> {
  public final T first;
  public final U second;

  public Pair(T first, U second) {
    this.first = first;
    this.second = second;
  }
}
