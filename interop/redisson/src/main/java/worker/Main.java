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
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A worker for "holdfast verify --worker" with Redisson's RLock, or RFencedLock or RFairLock if the
 * argument is fenced or fair. Its watchdog renews it, with the TTL as timeout. Everything else is as by
 * default. A thread id for each attempt makes it the owner.
 */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<Long, Attempt> ATTEMPTS = new ConcurrentHashMap<>();

    private record Attempt(RLock lock, long owner) {}

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JsonNode start = JSON.readTree(in.readLine());
        Config config = new Config();
        config.setLockWatchdogTimeout(start.get("ttl_ms").asLong());
        config.useSingleServer().setAddress(start.get("url").asText());
        RedissonClient redisson = Redisson.create(config);
        ExecutorService calls = Executors.newCachedThreadPool();
        String kind = args.length == 0 ? "" : args[0];
        switch (kind) {
            case "" -> say(Map.of("worker", "Redisson RLock", "wait", true));
            case "fenced" -> say(Map.of("worker", "Redisson RFencedLock", "wait", true, "tokens", true));
            case "fair" -> say(Map.of("worker", "Redisson RFairLock", "wait", true));
            default -> throw new IllegalArgumentException(kind);
        }
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode order = JSON.readTree(line);
            if (kind.equals("fenced") && order.get("do").asText().equals("lock")) {
                new Thread(() -> serve(redisson, kind, order)).start(); // the owner, whose id is used once
            } else {
                calls.execute(() -> serve(redisson, kind, order));
            }
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

    private static void serve(RedissonClient redisson, String kind, JsonNode order) {
        long id = order.get("id").asLong();
        try {
            switch (order.get("do").asText()) {
                case "lock" -> lock(redisson, kind, id, order.get("name").asText(), order.path("wait_ms").asLong());
                case "held" -> {
                    Attempt a = ATTEMPTS.get(id);
                    say(Map.of("id", id, "ok", a.lock.isHeldByThread(a.owner)));
                }
                case "unlock" -> {
                    Attempt a = ATTEMPTS.remove(id);
                    a.lock.unlockAsync(a.owner).get();
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

    private static void lock(RedissonClient redisson, String kind, long id, String name, long wait) throws Exception {
        if (kind.equals("fenced")) {
            RFencedLock lock = redisson.getFencedLock(name);
            Long token = lock.tryLockAndGetTokenAsync(wait, -1, TimeUnit.MILLISECONDS).get();
            if (token == null) {
                say(Map.of("id", id, "ok", false, "held", true));
                return;
            }
            ATTEMPTS.put(id, new Attempt(lock, Thread.currentThread().getId()));
            say(Map.of("id", id, "ok", true, "token", token));
            return;
        }
        RLock lock = kind.equals("fair") ? redisson.getFairLock(name) : redisson.getLock(name);
        boolean ok = lock.tryLockAsync(wait, -1, TimeUnit.MILLISECONDS, id).get();
        if (ok) {
            ATTEMPTS.put(id, new Attempt(lock, id));
        }
        say(ok ? Map.of("id", id, "ok", true) : Map.of("id", id, "ok", false, "held", true));
    }
}
