package judge;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.jdo.JDOHelper;
import org.datanucleus.api.jdo.JDOPersistenceManagerFactory;
import org.datanucleus.store.schema.SchemaAwareStoreManager;

/**
 * Creates the tables of all classes that DataNucleus maps at once, in a new Derby database.
 *
 * <p>Created on first use, they would come too late for the metastore's check of its direct SQL and for the compactor.
 */
final class MappedTables {
  /** Its table is created with those of transactions. */
  private static final String NOTIFICATION_LOG = "MTxnWriteNotificationLog";

  private MappedTables() {}

  static void make(String url) throws Exception {
    Properties properties = new Properties();
    properties.put("javax.jdo.PersistenceManagerFactoryClass", JDOPersistenceManagerFactory.class.getName());
    properties.put("javax.jdo.option.ConnectionURL", url);
    properties.put("javax.jdo.option.ConnectionDriverName", "org.apache.derby.jdbc.EmbeddedDriver");
    properties.put("datanucleus.schema.autoCreateAll", "true");
    properties.put("datanucleus.identifierFactory", "datanucleus1");
    properties.put("datanucleus.rdbms.useLegacyNativeValueStrategy", "true");
    properties.put("datanucleus.rdbms.initializeColumnInfo", "NONE");
    properties.put("datanucleus.plugin.pluginRegistryBundleCheck", "LOG");
    properties.put("datanucleus.connectionPoolingType", "None");
    JDOPersistenceManagerFactory factory =
        (JDOPersistenceManagerFactory) JDOHelper.getPersistenceManagerFactory(properties);
    ((SchemaAwareStoreManager) factory.getNucleusContext().getStoreManager())
        .createSchemaForClasses(mappedClasses(), new Properties());
    factory.close();
  }

  private static Set<String> mappedClasses() throws IOException {
    String mapping;
    try (InputStream in = MappedTables.class.getResourceAsStream("/package.jdo")) {
      mapping = new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
    Set<String> classes = new TreeSet<>();
    Matcher matcher = Pattern.compile("<class name=\"(\\w+)\"").matcher(mapping);
    while (matcher.find()) {
      if (!matcher.group(1).equals(NOTIFICATION_LOG)) {
        classes.add("org.apache.hadoop.hive.metastore.model." + matcher.group(1));
      }
    }
    return classes;
  }
}
