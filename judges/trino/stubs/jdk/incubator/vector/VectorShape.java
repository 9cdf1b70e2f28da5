package jdk.incubator.vector;

/** Stands for a module that small Javas lack. Trino asks it for the width of vectors, and with this answer uses none. */
public final class VectorShape {
  private VectorShape() {}

  public static VectorShape preferredShape() {
    return new VectorShape();
  }

  public int vectorBitSize() {
    return 0;
  }
}
