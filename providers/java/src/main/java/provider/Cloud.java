package provider;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiConsumer;

/**
 * The cloud: a state file that providers in any language can use in turn (providers/README.md describes it). In your own provider this class is the client of your cloud's API. It does not
 * know gRPC: it offers operations that can be slow and can fail, and a copy of the last state. Operations block. If a thread is interrupted while one waits, the operation
 * writes nothing, and normally throws InterruptedException.
 */
final class Cloud {
  private static final int FORMAT = 1;
  /** The time that another process may hold the state file, in seconds. */
  private static final int PATIENCE = 5;
  /** The codes of errors of the cloud, not of the request. */
  private static final Set<String> TROUBLES = Set.of("THROTTLED", "CREDENTIALS", "UNAVAILABLE");

  static final ObjectMapper JSON = new ObjectMapper();

  /** The cloud at one moment. It is immutable: a write creates a new one. Load balancers by handle, routes by name; clockOffset is the cloud's time less the system's. */
  record State(
      List<JsonNode> instances,
      Map<String, JsonNode> byName,
      Map<String, JsonNode> byProviderId,
      Map<String, ObjectNode> loadBalancers,
      Map<String, ObjectNode> routes,
      long lastNumber,
      long clockOffset) {

    long nowMs() {
      return System.currentTimeMillis() + clockOffset;
    }

    /** The load balancers without those whose deletion has ended. */
    List<ObjectNode> living() {
      long now = nowMs();
      return loadBalancers.values().stream().filter(lb -> lb.path("gone_at_ms").asLong(Long.MAX_VALUE) > now).toList();
    }

    /** The state without a load balancer. */
    State without(String handle) {
      Map<String, ObjectNode> rest = new TreeMap<>(loadBalancers);
      rest.remove(handle);
      return new State(instances, byName, byProviderId, rest, routes, lastNumber, clockOffset);
    }
  }

  /** One write: objects by handle or name, null for objects to remove. */
  record Write(String line, Map<String, ObjectNode> loadBalancers, Map<String, ObjectNode> routes, long lastNumber) {
    static Write loadBalancer(String line, String handle, ObjectNode lb, long lastNumber) {
      return new Write(line, one(handle, lb), Map.of(), lastNumber);
    }

    static Write route(String line, String name, ObjectNode route) {
      return new Write(line, Map.of(), one(name, route), 0);
    }

    private static Map<String, ObjectNode> one(String key, ObjectNode value) {
      Map<String, ObjectNode> map = new HashMap<>();
      map.put(key, value);
      return map;
    }
  }

  /** The result of a decision: an answer, and a write if one is needed. */
  record Decision<T>(T answer, Write write) {}

  private interface Work<T> {
    T run() throws Fail, InterruptedException;
  }

  interface Decide<T> {
    Decision<T> on(State state) throws Fail;
  }

  private final Path path;
  private final ReentrantLock turn = new ReentrantLock(true);
  /** Called when another process has changed the cloud: before, after. */
  volatile BiConsumer<State, State> onForeignChange = (before, after) -> {};
  /** When the cloud last answered (a refusal of one object is an answer), and how it has failed since then; null if it has not. */
  volatile Instant lastSuccess;
  volatile String trouble;
  private State state = new State(List.of(), Map.of(), Map.of(), Map.of(), Map.of(), 0, 0);
  private JsonNode instancesNode = JSON.createArrayNode();
  private String file;
  private long learnedAt;

  Cloud(Path path) {
    this.path = path;
  }

  /** A new, empty cloud. Only at the start: if the file is missing later, that does not show that the instances are gone (INST-1). */
  void createIfMissing() throws Fail {
    if (!Files.exists(path)) {
      save(state, new Write("", Map.of(), Map.of(), 0));
      file = null;
    }
  }

  /** One operation that asks the cloud, unless it was read at most maxAgeMs ago. */
  State read(long maxAgeMs) throws Fail, InterruptedException {
    synchronized (this) {
      if (maxAgeMs > 0 && learnedAt != 0 && System.nanoTime() - learnedAt <= TimeUnit.MILLISECONDS.toNanos(maxAgeMs)) return state;
    }
    return operation(this::look);
  }

  /** One operation that may write: decide gets the current cloud. */
  <T> T write(Decide<T> decide) throws Fail, InterruptedException {
    return operation(() -> alone(() -> {
      State now = look();
      Decision<T> decision = decide.on(now);
      if (decision.write != null) {
        // A cancelled call ends here, before its write (CORE-8).
        if (Thread.interrupted()) throw new InterruptedException();
        save(now, decision.write);
      }
      return decision.answer;
    }));
  }

  /** One operation: the clusters and disks that the cloud knows; no provider writes them. */
  JsonNode catalogue() throws Fail, InterruptedException {
    return operation(() -> json(".catalogue.json"));
  }

  /** Runs an operation under the set weather. The delay holds no lock, so it delays no other operation. */
  private <T> T operation(Work<T> work) throws Fail, InterruptedException {
    try {
      JsonNode weather = json(".weather.json");
      Thread.sleep(weather.path("slow_ms").asLong());
      if (weather.hasNonNull("fail")) {
        String code = weather.get("fail").asText();
        throw new Fail(code, "the cloud is set to answer " + code + " to every operation");
      }
      T result = work.run();
      note(null);
      return result;
    } catch (Fail fail) {
      // An interrupt closes the file during a read: then the error is not the cloud's.
      if (Thread.interrupted()) throw new InterruptedException();
      note(TROUBLES.contains(fail.code) ? fail.getMessage() : null);
      throw fail;
    }
  }

  private void note(String trouble) {
    this.trouble = trouble;
    if (trouble == null) lastSuccess = Instant.now();
  }

  /**
   * Runs the work as the only writer of this and all other processes. Java's file locks are not those of flock(2). The command of that name (util-linux) holds the lock as long as
   * we hold its input. It echoes our line after it has the lock.
   */
  private <T> T alone(Work<T> work) throws Fail, InterruptedException {
    if (!turn.tryLock(PATIENCE, TimeUnit.SECONDS)) throw new Fail("UNAVAILABLE", "the state file is busy for longer than " + PATIENCE + " s");
    Process holder = null;
    try {
      holder = new ProcessBuilder("flock", "--exclusive", "--wait", "" + PATIENCE, path + ".lock", "cat").redirectError(ProcessBuilder.Redirect.INHERIT).start();
      holder.getOutputStream().write('!');
      holder.getOutputStream().flush();
      if (holder.getInputStream().read() < 0) throw new Fail("UNAVAILABLE", "the command flock did not get " + path + ".lock within " + PATIENCE + " s; does another process hold it?");
      return work.run();
    } catch (IOException error) {
      throw new Fail("UNAVAILABLE", path + ".lock cannot be locked: " + error.getMessage() + "; is the command flock (util-linux) installed?");
    } finally {
      // The end of the command releases the lock.
      if (holder != null) holder.destroy();
      turn.unlock();
    }
  }

  /** The current state; the file is read only if it is not the one in memory. onForeignChange gets the changes of others. */
  synchronized State look() throws Fail {
    try {
      String found = identity(path);
      if (!found.equals(file)) parse(JSON.readTree(Files.readAllBytes(path)), found);
    } catch (IOException | RuntimeException error) {
      throw new Fail("UNAVAILABLE", path + ": the state file cannot be read: " + error);
    }
    learnedAt = System.nanoTime();
    return state;
  }

  private static String identity(Path path) throws IOException {
    Map<String, Object> of = Files.readAttributes(path, "unix:ino,size,lastModifiedTime");
    return of.get("ino") + " " + of.get("size") + " " + of.get("lastModifiedTime");
  }

  private void parse(JsonNode content, String found) {
    if (content.path("format").asInt() != FORMAT) throw new IllegalArgumentException("format " + content.path("format") + " is not " + FORMAT);
    Map<String, ObjectNode> loadBalancers = new TreeMap<>();
    for (JsonNode lb : content.required("load_balancers")) loadBalancers.put(lb.required("handle").asText(), (ObjectNode) lb);
    Map<String, ObjectNode> routes = new TreeMap<>();
    for (JsonNode route : content.required("routes")) routes.put(route.required("name").asText(), (ObjectNode) route);
    List<JsonNode> instances = new ArrayList<>();
    Map<String, JsonNode> byName = new HashMap<>();
    Map<String, JsonNode> byProviderId = new HashMap<>();
    for (JsonNode instance : content.required("instances")) {
      instances.add(instance);
      byName.put(instance.required("name").asText(), instance);
      byProviderId.put(instance.path("provider_id").asText(), instance);
    }
    long clockOffset = content.required("now_ms").asLong() - content.required("saved_at_unix_ms").asLong();
    State before = state;
    boolean first = file == null;
    state = new State(instances, byName, byProviderId, loadBalancers, routes, content.required("last_number").asLong(), clockOffset);
    instancesNode = content.get("instances");
    file = found;
    if (!first) onForeignChange.accept(before, state);
  }

  /** Replaces the file atomically: after a kill at any time, the path has the whole old or the whole new file. */
  private synchronized void save(State before, Write write) throws Fail {
    Map<String, ObjectNode> loadBalancers = new TreeMap<>();
    for (ObjectNode lb : before.living()) loadBalancers.put(lb.get("handle").asText(), lb);
    Map<String, ObjectNode> routes = new TreeMap<>(before.routes);
    change(loadBalancers, write.loadBalancers);
    change(routes, write.routes);
    long lastNumber = Math.max(before.lastNumber, write.lastNumber);
    long now = System.currentTimeMillis();
    ObjectNode content = JSON.createObjectNode().put("format", FORMAT).put("now_ms", Math.max(0, now + before.clockOffset)).put("saved_at_unix_ms", now).put("last_number", lastNumber);
    content.set("instances", instancesNode);
    ArrayNode lbs = content.putArray("load_balancers");
    loadBalancers.values().forEach(lbs::add);
    ArrayNode all = content.putArray("routes");
    routes.values().forEach(all::add);
    try {
      Path fresh = beside(".new");
      put(fresh, JSON.writeValueAsBytes(content), false);
      String found = identity(fresh);
      Files.move(fresh, path, StandardCopyOption.ATOMIC_MOVE);
      if (!write.line.isEmpty()) put(beside(".writes"), (write.line + "\n").getBytes(StandardCharsets.UTF_8), true);
      file = found;
    } catch (IOException error) {
      throw new Fail("UNAVAILABLE", path + ": the state file cannot be written: " + error);
    }
    state = new State(before.instances, before.byName, before.byProviderId, loadBalancers, routes, lastNumber, before.clockOffset);
  }

  /** Uses a stream: an interrupt would close a channel, and a write that has begun must finish. */
  private static void put(Path path, byte[] bytes, boolean append) throws IOException {
    try (FileOutputStream out = new FileOutputStream(path.toFile(), append)) {
      out.write(bytes);
    }
  }

  private static void change(Map<String, ObjectNode> objects, Map<String, ObjectNode> changes) {
    changes.forEach((key, value) -> {
      if (value == null) objects.remove(key);
      else objects.put(key, value);
    });
  }

  private JsonNode json(String suffix) throws Fail {
    try {
      return JSON.readTree(Files.readAllBytes(beside(suffix)));
    } catch (NoSuchFileException missing) {
      return JSON.createObjectNode();
    } catch (IOException error) {
      throw new Fail("UNAVAILABLE", beside(suffix) + " cannot be read: " + error);
    }
  }

  private Path beside(String suffix) {
    return path.resolveSibling(path.getFileName() + suffix);
  }

  /** Compares the objects as the file has them. */
  static boolean equal(JsonNode one, JsonNode other) {
    try {
      return one != null && other != null && JSON.readTree(one.toString()).equals(JSON.readTree(other.toString()));
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }

}
