package jdk.incubator.vector;

/** See {@link VectorShape}: looked at when Trino starts, and never used. */
public final class IntVector {
  public static final VectorSpecies SPECIES_PREFERRED = null;

  private IntVector() {}
}
