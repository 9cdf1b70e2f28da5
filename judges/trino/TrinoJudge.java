package judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.inject.Binder;
import com.google.inject.Scopes;
import io.trino.filesystem.FileEntry;
import io.trino.filesystem.FileIterator;
import io.trino.filesystem.Location;
import io.trino.filesystem.cache.NoopSplitAffinityProvider;
import io.trino.filesystem.cache.SplitAffinityProvider;
import io.trino.filesystem.local.LocalFileSystem;
import io.trino.plugin.hive.HiveConnectorFactory;
import io.trino.server.testing.TestingTrinoServer;
import io.trino.spi.Plugin;
import io.trino.spi.connector.Connector;
import io.trino.spi.connector.ConnectorContext;
import io.trino.spi.connector.ConnectorFactory;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * A real Trino in this JVM: {@code TrinoJudge [property=value ...]}, with the settings of the server. Every line on
 * standard input is a request, a JSON object, and gets one line of JSON as answer: {@code serve} gives the address of
 * the server, and {@code catalog} adds a catalog of Trino's Hive connector. The process ends when its input does.
 */
public final class TrinoJudge {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String CONNECTOR = "hive_of_files";

  private final TestingTrinoServer server;

  private TrinoJudge(TestingTrinoServer server) {
    this.server = server;
  }

  public static void main(String[] arguments) throws Exception {
    // The server turns System.out into its log.
    PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    BufferedReader requests =
        new BufferedReader(new InputStreamReader(new FileInputStream(FileDescriptor.in), StandardCharsets.UTF_8));
    try {
      Map<String, String> settings = new LinkedHashMap<>();
      for (String argument : arguments) {
        int equals = argument.indexOf('=');
        settings.put(argument.substring(0, equals), argument.substring(equals + 1));
      }
      TestingTrinoServer server = TestingTrinoServer.builder().setProperties(settings).build();
      server.installPlugin(new HiveOfFiles());
      TrinoJudge judge = new TrinoJudge(server);
      for (String line = requests.readLine(); line != null; line = requests.readLine()) {
        answers.println(JSON.writeValueAsString(judge.answer(line)));
      }
    } catch (Throwable failure) {
      failure.printStackTrace();
      System.exit(1); // the threads of the server would keep the JVM alive
    }
    Runtime.getRuntime().halt(0);
  }

  private Map<String, String> answer(String line) {
    try {
      JsonNode request = JSON.readTree(line);
      if (request.get("do").asText().equals("catalog")) {
        Map<String, String> properties = new LinkedHashMap<>();
        request.get("properties").properties().forEach(each -> properties.put(each.getKey(), each.getValue().asText()));
        server.createCatalog(request.get("name").asText(), CONNECTOR, properties);
      }
      return Map.of("uri", server.getBaseUrl().toString());
    } catch (Throwable t) {
      StringWriter trace = new StringWriter();
      t.printStackTrace(new PrintWriter(trace));
      return Map.of(
          "error", t.getClass().getName(), "message", String.valueOf(t.getMessage()), "trace", trace.toString());
    }
  }

  /** Trino's own Hive connector, on the local file system below. */
  private static final class HiveOfFiles implements Plugin {
    private static void bind(Binder binder) {
      // Trino's own module of file systems, which is not used here, would bind it.
      binder.bind(SplitAffinityProvider.class).to(NoopSplitAffinityProvider.class).in(Scopes.SINGLETON);
    }

    @Override
    public Iterable<ConnectorFactory> getConnectorFactories() {
      return List.of(new ConnectorFactory() {
        @Override
        public String getName() {
          return CONNECTOR;
        }

        @Override
        public Connector create(String catalog, Map<String, String> properties, ConnectorContext context) {
          return HiveConnectorFactory.createConnector(
              catalog,
              properties,
              context,
              () -> HiveOfFiles::bind,
              Optional.empty(),
              false,
              Optional.of(identity -> new Files()));
        }
      });
    }
  }

  /**
   * The local file system, with paths named as the metastore names them. Trino's own names what it lists {@code
   * local:///…}, and its reader of ACID directories then refuses what is not below the table's {@code file:/…}.
   */
  private static final class Files extends LocalFileSystem {
    private static final String OWN = "local:///";

    Files() {
      super(Path.of("/"));
    }

    @Override
    public FileIterator listFiles(Location folder) throws IOException {
      FileIterator found = super.listFiles(folder);
      return new FileIterator() {
        @Override
        public boolean hasNext() throws IOException {
          return found.hasNext();
        }

        @Override
        public FileEntry next() throws IOException {
          FileEntry entry = found.next();
          Location place = named(entry.location(), folder);
          return new FileEntry(place, entry.length(), entry.lastModified(), entry.blocks());
        }
      };
    }

    @Override
    public Set<Location> listDirectories(Location folder) throws IOException {
      return super.listDirectories(folder).stream().map(each -> named(each, folder)).collect(Collectors.toSet());
    }

    @Override
    public Optional<Location> createTemporaryDirectory(Location target, String prefix, String relative)
        throws IOException {
      return super.createTemporaryDirectory(target, prefix, relative).map(made -> named(made, target));
    }

    /** A place that the file system lists, named in the way of the one that was asked for. */
    private static Location named(Location found, Location asked) {
      String path = found.toString();
      String start = asked.toString().startsWith("file:///") ? "file:///" : "file:/";
      return path.startsWith(OWN) ? Location.of(start + path.substring(OWN.length())) : found;
    }
  }
}
