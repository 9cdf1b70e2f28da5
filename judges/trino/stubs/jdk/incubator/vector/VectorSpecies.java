package jdk.incubator.vector;

/** See {@link VectorShape}. */
public interface VectorSpecies {}
