package judge;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.security.Groups;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;
import org.apache.hadoop.yarn.server.nodemanager.NodeManager;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;

/**
 * A real YARN in this JVM: MiniYarn DIRECTORY HOST,HOST [key=value ...]; answers lines of JSON, ends with its input.
 *
 * <p>MiniYARNCluster chooses names and folders of its NodeManagers by itself, so they are made here.
 */
public final class MiniYarn {
  private static final long REGISTRATION_MILLIS = 60_000;
  private static final String PRINCIPAL = "yarn.resourcemanager.principal";
  private static final String KEYTAB = "yarn.resourcemanager.keytab";

  private final MiniYARNCluster cluster;
  private final YarnConfiguration conf;
  private final List<Node> nodes = new ArrayList<>();

  private MiniYarn(MiniYARNCluster cluster, YarnConfiguration conf) {
    this.cluster = cluster;
    this.conf = conf;
  }

  /** A NodeManager under a name of this machine; this process has logged in already. */
  private static final class Node extends NodeManager {
    final String host;

    Node(String host) {
      this.host = host;
    }

    @Override
    protected void doSecureLogin() {}
  }

  public static void main(String[] arguments) {
    try {
      serve(arguments);
      Runtime.getRuntime().halt(0);
    } catch (Throwable t) {
      t.printStackTrace();
      Runtime.getRuntime().halt(1); // what was started so far would keep the JVM
    }
  }

  private static void serve(String[] arguments) throws Exception {
    PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    DefaultMetricsSystem.setMiniClusterMode(true); // several NodeManagers in one JVM
    YarnConfiguration conf = new YarnConfiguration();
    for (int i = 2; i < arguments.length; i++) {
      int equals = arguments[i].indexOf('=');
      conf.set(arguments[i].substring(0, equals), arguments[i].substring(equals + 1));
    }
    UserGroupInformation.setConfiguration(conf);
    Groups.getUserToGroupsMappingServiceWithLoadedConfiguration(conf);
    if (UserGroupInformation.isSecurityEnabled()) {
      UserGroupInformation.loginUserFromKeytab(conf.get(PRINCIPAL), conf.get(KEYTAB));
    }
    System.setProperty("test.build.data", new File(arguments[0], "cluster").toString());
    MiniYARNCluster cluster = new MiniYARNCluster("yarn", 1, 0, 1, 1);
    cluster.init(conf);
    cluster.start();
    MiniYarn self = new MiniYarn(cluster, conf);
    String[] hosts = arguments[1].split(",");
    for (int i = 0; i < hosts.length; i++) {
      self.startNode(hosts[i], new File(arguments[0], "node" + i));
    }
    self.awaitNodes(hosts.length);
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      answers.println(new Gson().toJson(self.answer(line)));
    }
    self.stopContainers();
  }

  private void startNode(String host, File folder) throws Exception {
    YarnConfiguration own = new YarnConfiguration(cluster.getConfig());
    own.set(YarnConfiguration.NM_ADDRESS, host + ":0");
    own.set(YarnConfiguration.NM_LOCALIZER_ADDRESS, host + ":0");
    own.set(YarnConfiguration.NM_WEBAPP_ADDRESS, host + ":0");
    own.set(YarnConfiguration.NM_LOCAL_DIRS, new File(folder, "local").toString());
    own.set(YarnConfiguration.NM_LOG_DIRS, new File(folder, "logs").toString());
    Node node = new Node(host);
    node.init(own);
    node.start();
    nodes.add(node);
  }

  private void awaitNodes(int count) throws Exception {
    long end = System.currentTimeMillis() + REGISTRATION_MILLIS;
    while (cluster.getResourceManager().getResourceScheduler().getNumClusterNodes() < count) {
      if (System.currentTimeMillis() > end) {
        throw new IllegalStateException("the NodeManagers do not register");
      }
      Thread.sleep(50);
    }
  }

  private JsonObject answer(String line) {
    try {
      return act(JsonParser.parseString(line).getAsJsonObject());
    } catch (Throwable t) {
      StringWriter trace = new StringWriter();
      t.printStackTrace(new PrintWriter(trace));
      JsonObject answer = new JsonObject();
      answer.addProperty("error", t.getClass().getName());
      answer.addProperty("message", String.valueOf(t.getMessage()));
      answer.addProperty("trace", trace.toString());
      return answer;
    }
  }

  private JsonObject act(JsonObject request) throws Exception {
    JsonObject answer = new JsonObject();
    switch (request.get("do").getAsString()) {
      case "settings":
        for (Map.Entry<String, String> each : cluster.getConfig()) {
          if (each.getKey().startsWith("yarn.resourcemanager.") && each.getKey().endsWith("address")
              && !each.getValue().contains("${")) {
            answer.addProperty(each.getKey(), each.getValue());
          }
        }
        break;
      case "applications":
        JsonArray applications = new JsonArray();
        for (RMApp each : cluster.getResourceManager().getRMContext().getRMApps().values()) {
          JsonObject one = new JsonObject();
          one.addProperty("id", each.getApplicationId().toString());
          one.addProperty("name", each.getName());
          one.addProperty("user", each.getUser());
          one.addProperty("state", each.createApplicationState().toString());
          one.addProperty("final_status", each.getFinalApplicationStatus().toString());
          one.addProperty("attempts", each.getAppAttempts().size());
          one.addProperty("diagnostics", each.getDiagnostics().toString());
          applications.add(one);
        }
        answer.add("applications", applications);
        break;
      case "containers":
        JsonArray containers = new JsonArray();
        for (Node node : nodes) {
          for (ContainerId each : node.getNMContext().getContainers().keySet()) {
            JsonObject one = new JsonObject();
            one.addProperty("id", each.toString());
            one.addProperty("host", node.host);
            containers.add(one);
          }
        }
        answer.add("containers", containers);
        break;
      default:
        throw new IllegalArgumentException("unknown request " + request.get("do"));
    }
    return answer;
  }

  /** Containers are programs of their own; none outlives the cluster. */
  private void stopContainers() {
    for (Node node : nodes) {
      node.stop();
    }
  }
}
