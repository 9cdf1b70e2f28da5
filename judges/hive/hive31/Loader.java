package judge;

import java.io.File;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;

/**
 * The system class loader of a JVM that runs Hive 3.1, chosen with {@code -Djava.system.class.loader}.
 *
 * <p>Hive 3.1 casts the loader of its classes to URLClassLoader; since Java 9 only a custom loader is one.
 */
public final class Loader extends URLClassLoader {
  public Loader(ClassLoader parent) throws MalformedURLException {
    super(classPath(), parent.getParent()); // the parent itself would load everything first
  }

  /** The JVM has replaced each {@code *} by the jars of the folder already. */
  private static URL[] classPath() throws MalformedURLException {
    String[] entries = System.getProperty("java.class.path").split(File.pathSeparator);
    URL[] urls = new URL[entries.length];
    for (int i = 0; i < urls.length; i++) {
      urls[i] = new File(entries[i]).toURI().toURL();
    }
    return urls;
  }
}
