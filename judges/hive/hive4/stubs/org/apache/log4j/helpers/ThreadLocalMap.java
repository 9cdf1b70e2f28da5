package org.apache.log4j.helpers;

/** Tez uses this class of log4j 1; the bridge to log4j 2 does not have it. */
public class ThreadLocalMap extends InheritableThreadLocal<Object> {}
