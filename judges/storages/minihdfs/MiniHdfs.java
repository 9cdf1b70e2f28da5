package judge;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayDeque;
import java.util.Deque;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.Groups;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.security.token.TokenIdentifier;

/** A real HDFS in this JVM: MiniHdfs DIRECTORY DATANODES NAMENODES [key=value ...]; answers lines of JSON, ends with its input. */
public final class MiniHdfs {
  private final MiniDFSCluster cluster;
  private final int nameNodes;
  private final Configuration conf;
  private final Deque<DataNodeProperties> stopped = new ArrayDeque<>();

  private MiniHdfs(MiniDFSCluster cluster, int nameNodes, Configuration conf) {
    this.cluster = cluster;
    this.nameNodes = nameNodes;
    this.conf = conf;
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    int dataNodes = Integer.parseInt(arguments[1]);
    int nameNodes = Integer.parseInt(arguments[2]);
    HdfsConfiguration conf = new HdfsConfiguration();
    conf.set("dfs.datanode.hostname", "127.0.0.1");
    for (int i = 3; i < arguments.length; i++) {
      int equals = arguments[i].indexOf('=');
      conf.set(arguments[i].substring(0, equals), arguments[i].substring(equals + 1));
    }
    UserGroupInformation.setConfiguration(conf);
    Groups.getUserToGroupsMappingServiceWithLoadedConfiguration(conf); // otherwise only groups of the operating system
    MiniDFSCluster.Builder builder = new MiniDFSCluster.Builder(conf, new File(arguments[0])).numDataNodes(dataNodes);
    if (nameNodes > 1) {
      builder.nnTopology(MiniDFSNNTopology.simpleHATopology());
    }
    MiniDFSCluster cluster = builder.build();
    if (nameNodes > 1) {
      cluster.transitionToActive(0);
    }
    cluster.waitActive();
    MiniHdfs self = new MiniHdfs(cluster, nameNodes, conf);
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      answers.println(new Gson().toJson(self.answer(line)));
    }
    Runtime.getRuntime().halt(0);
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
      case "addresses":
        for (int i = 0; i < nameNodes; i++) {
          answer.addProperty("namenode" + i, "127.0.0.1:" + cluster.getNameNodePort(i));
        }
        break;
      case "restart_namenode":
        cluster.restartNameNode(0, true);
        break;
      case "start_namenode":
        cluster.restartNameNode(request.get("index").getAsInt(), false);
        break;
      case "active":
        answer.addProperty("index", active());
        break;
      case "heal":
        heal();
        break;
      case "stop_datanode":
        stopped.push(cluster.stopDataNode(request.get("index").getAsInt()));
        break;
      case "safe_mode":
        files().setSafeMode(
            request.get("on").getAsBoolean()
                ? org.apache.hadoop.fs.SafeModeAction.ENTER : org.apache.hadoop.fs.SafeModeAction.LEAVE);
        break;
      case "fail_over":
        int to = request.get("to").getAsInt();
        if (cluster.getNameNode(1 - to) != null) {
          cluster.transitionToStandby(1 - to);
        }
        cluster.transitionToActive(to);
        break;
      case "stop_namenode":
        cluster.shutdownNameNode(request.get("index").getAsInt());
        break;
      case "quota":
        files().setQuota(path(request), request.get("names").getAsLong(), request.get("bytes").getAsLong());
        break;
      case "snapshot":
        files().allowSnapshot(path(request));
        files().createSnapshot(path(request), request.get("name").getAsString());
        break;
      case "delete_snapshot":
        files().deleteSnapshot(path(request), request.get("name").getAsString());
        break;
      case "mkdir":
        files().mkdirs(path(request));
        break;
      case "chmod":
        files().setPermission(path(request), new FsPermission(request.get("mode").getAsString()));
        break;
      case "chown":
        files().setOwner(path(request), request.get("user").getAsString(), request.get("group").getAsString());
        break;
      case "token":
        writeToken(request);
        break;
      case "cancel_token":
        Credentials held = Credentials.readTokenStorageFile(new File(request.get("file").getAsString()), conf);
        as(request, () -> {
          for (Token<? extends TokenIdentifier> token : held.getAllTokens()) {
            token.cancel(conf);
          }
          return null;
        });
        break;
      case "acl":
        files().modifyAclEntries(path(request), AclEntry.parseAclSpec(request.get("spec").getAsString(), true));
        break;
      default:
        throw new IllegalArgumentException("unknown request " + request.get("do"));
    }
    return answer;
  }

  /** Let the NameNode issue a delegation token to the owner of a keytab, and write it as Hadoop does. */
  private void writeToken(JsonObject request) throws Exception {
    Credentials issued = new Credentials();
    String renewer = request.get("renewer").getAsString();
    as(request, () -> FileSystem.newInstance(files().getUri(), conf).addDelegationTokens(renewer, issued));
    Credentials written = new Credentials();
    for (Token<? extends TokenIdentifier> token : issued.getAllTokens()) {
      if (request.has("service")) {
        token.setService(new Text(request.get("service").getAsString()));
      }
      written.addToken(token.getService(), token);
    }
    try (DataOutputStream out = new DataOutputStream(new FileOutputStream(request.get("file").getAsString()))) {
      written.writeTokenStorageToStream(out, Credentials.SerializedFormat.valueOf(request.get("format").getAsString()));
    }
  }

  private static void as(JsonObject request, PrivilegedExceptionAction<Object> work) throws Exception {
    UserGroupInformation.loginUserFromKeytabAndReturnUGI(
        request.get("principal").getAsString(), request.get("keytab").getAsString()).doAs(work);
  }

  /** Start all nodes, activate the first NameNode that can be active, and leave safe mode. */
  private void heal() throws Exception {
    for (int i = 0; i < nameNodes; i++) {
      if (cluster.getNameNode(i) == null) {
        cluster.restartNameNode(i, false);
      }
    }
    if (nameNodes > 1 && active() < 0) {
      cluster.transitionToActive(0);
    }
    while (!stopped.isEmpty()) {
      cluster.restartDataNode(stopped.pop(), true);
    }
    try {
      files().setSafeMode(org.apache.hadoop.fs.SafeModeAction.LEAVE);
    } catch (EOFException e) { // a connection to a NameNode that has been stopped
      files().setSafeMode(org.apache.hadoop.fs.SafeModeAction.LEAVE);
    }
    cluster.waitActive();
  }

  private int active() {
    for (int i = 0; i < nameNodes; i++) {
      if (cluster.getNameNode(i) != null && cluster.getNameNode(i).isActiveState()) {
        return i;
      }
    }
    return -1;
  }

  private DistributedFileSystem files() throws Exception {
    if (nameNodes == 1) {
      return cluster.getFileSystem();
    }
    if (active() >= 0) {
      return cluster.getFileSystem(active());
    }
    throw new IllegalStateException("no NameNode is active");
  }

  private static Path path(JsonObject request) {
    return new Path(request.get("path").getAsString());
  }
}
