package org.apache.calcite.util;

import java.util.AbstractMap;

/** Calcite is not among pyspark's jars; some of Hive's own optimiser steps return its pairs. */
public class Pair<A, B> extends AbstractMap.SimpleImmutableEntry<A, B> {
  private static final long serialVersionUID = 1L;

  public final A left;
  public final B right;

  public Pair(A left, B right) {
    super(left, right);
    this.left = left;
    this.right = right;
  }

  public static <A, B> Pair<A, B> of(A left, B right) {
    return new Pair<>(left, right);
  }
}
