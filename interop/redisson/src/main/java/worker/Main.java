package worker;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A worker for "holdfast verify --worker" with Redisson's RLock, renewed by its watchdog, whose timeout
 * is the TTL. Everything else is as by default. A thread id for each attempt makes it the owner.
 */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<Long, RLock> LOCKS = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JsonNode start = JSON.readTree(in.readLine());
        Config config = new Config();
        config.setLockWatchdogTimeout(start.get("ttl_ms").asLong());
        config.useSingleServer().setAddress(start.get("url").asText());
        RedissonClient redisson = Redisson.create(config);
        ExecutorService calls = Executors.newCachedThreadPool();
        say(Map.of("worker", "Redisson RLock", "wait", true));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode order = JSON.readTree(line);
            calls.execute(() -> serve(redisson, order));
        }
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void say(Map<String, Object> line) {
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private static void serve(RedissonClient redisson, JsonNode order) {
        long id = order.get("id").asLong();
        try {
            switch (order.get("do").asText()) {
                case "lock" -> {
                    RLock lock = redisson.getLock(order.get("name").asText());
                    long wait = order.path("wait_ms").asLong();
                    if (lock.tryLockAsync(wait, -1, TimeUnit.MILLISECONDS, id).get()) {
                        LOCKS.put(id, lock);
                        say(Map.of("id", id, "ok", true));
                    } else {
                        say(Map.of("id", id, "ok", false, "held", true));
                    }
                }
                case "held" -> say(Map.of("id", id, "ok", LOCKS.get(id).isHeldByThread(id)));
                case "unlock" -> {
                    LOCKS.remove(id).unlockAsync(id).get();
                    say(Map.of("id", id, "ok", true));
                }
                default -> throw new IllegalArgumentException(order.toString());
            }
        } catch (ExecutionException e) {
            if (e.getCause() instanceof IllegalMonitorStateException) {
                say(Map.of("id", id, "ok", false));
            } else {
                say(Map.of("id", id, "error", String.valueOf(e.getCause())));
            }
        } catch (Exception e) {
            say(Map.of("id", id, "error", e.toString()));
        }
    }
}
