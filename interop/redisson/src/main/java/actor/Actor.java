package actor;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RedissonClient;

/** A thread that takes locks and gives them back in the opposite order. */
final class Actor {
    /** Longer than any test waits for a lock. */
    private static final long FOREVER_MS = 120_000;

    private final String name;
    private final Deque<Taken> held = new ArrayDeque<>();
    private RedissonClient client;

    Actor(String name) {
        this.name = name;
    }

    String run(List<String> w) throws Exception {
        String first = w.size() > 1 ? w.get(1) : "";
        String second = w.size() > 2 ? w.get(2) : "";
        return switch (w.get(0)) {
            case "connect" -> connect(w);
            case "lock" -> take(first, second, Taken.NO_LIMIT, number(w, 3, 0), number(w, 4, 1));
            case "try" -> take(first, second, number(w, 3, 0), number(w, 4, 0), number(w, 5, 1));
            case "unlock" -> unlock();
            case "downgrade" -> downgrade();
            case "held" -> held.peek().isHeld() ? "ok" : "lost";
            case "strange" -> strange(first, second);
            case "force" -> "ok " + Taken.lock(client, first, second).forceUnlock();
            case "locked" -> "ok " + Taken.lock(client, first, second).isLocked();
            case "token" -> "ok " + client.getFencedLock(first).getToken();
            case "permits" -> "ok " + permits(first, second);
            case "setpermits" -> "ok " + setPermits(first, second, (int) number(w, 3, 1));
            case "setcount" -> "ok " + client.getCountDownLatch(first).trySetCount(number(w, 2, 1));
            case "count" -> "ok " + client.getCountDownLatch(first).getCount();
            case "down" -> down(first);
            case "drop" -> "ok " + client.getCountDownLatch(first).delete();
            case "await" -> await(first, number(w, 2, 0));
            case "rounds" -> rounds(first, second, number(w, 3, 1), w.get(4), w.get(5), number(w, 6, 0));
            case "enter" -> enter(first, second, w.get(3));
            case "close" -> close();
            default -> throw new IllegalArgumentException("unknown command " + w);
        };
    }

    private static long number(List<String> w, int i, long otherwise) {
        return w.size() > i ? Long.parseLong(w.get(i)) : otherwise;
    }

    /** connect URL WATCHDOG_MS [SHARDED]: see {@link Clients#get}. Answers with Redisson's client id. */
    private String connect(List<String> w) throws Exception {
        client = Clients.get(w.get(1), number(w, 2, 30_000), w.size() > 3 ? w.get(3) : "default");
        return "ok " + client.getId();
    }

    /**
     * lock KIND NAME [LEASE_MS [N]], try KIND NAME WAIT_MS [LEASE_MS [N]]: a lease of 0 is the
     * watchdog's. Answers a fenced lock's token.
     */
    private String take(String kind, String name, long waitMs, long leaseMs, long n) throws Exception {
        Taken t = Taken.take(client, kind, name, waitMs, leaseMs, (int) n);
        if (t == null) {
            return "busy";
        }
        held.push(t);
        return "ok " + t.token();
    }

    private String unlock() {
        held.pop().release();
        return "ok";
    }

    /** The writer takes the read lock, and then releases the write lock. */
    private String downgrade() throws Exception {
        held.push(held.pop().downgrade());
        return "ok";
    }

    /** strange KIND NAME: unlocks what this actor does not hold, so the answer must be "lost". */
    private String strange(String kind, String name) {
        Taken.lock(client, kind, name).unlock();
        return "ok";
    }

    private int permits(String kind, String name) {
        return kind.equals("permit")
                ? client.getPermitExpirableSemaphore(name).availablePermits()
                : client.getSemaphore(name).availablePermits();
    }

    private boolean setPermits(String kind, String name, int n) {
        return kind.equals("permit")
                ? client.getPermitExpirableSemaphore(name).trySetPermits(n)
                : client.getSemaphore(name).trySetPermits(n);
    }

    private String down(String name) {
        client.getCountDownLatch(name).countDown();
        return "ok";
    }

    private String await(String name, long ms) throws Exception {
        return client.getCountDownLatch(name).await(ms, TimeUnit.MILLISECONDS) ? "ok" : "busy";
    }

    /**
     * rounds KIND NAME N JUDGE KEY [MS]: KIND may also be rw: a write in every fifth round and a read in
     * the others. With MS it waits up to that time, and gives up many rounds. See {@link Work}. Answers
     * with the report.
     */
    private String rounds(String kind, String lock, long n, String judge, String key, long impatienceMs) throws Exception {
        try (Work work = new Work(judge, key, name)) {
            for (int i = 0; i < n; i++) {
                String k = !kind.equals("rw") ? kind : i % 5 == 0 ? "write" : "read";
                long ms = impatienceMs > 0 ? ThreadLocalRandom.current().nextLong(impatienceMs) : FOREVER_MS;
                Taken t = Taken.take(client, k, lock, ms, k.equals("permit") ? FOREVER_MS : 0, 1);
                if (t == null && impatienceMs > 0) {
                    continue;
                }
                if (t == null) {
                    throw new IllegalStateException("round " + i + ": no lock within " + FOREVER_MS + " ms");
                }
                work.critical(k, t.token());
                t.release();
            }
            return "ok " + work.report();
        }
    }

    /** enter KIND JUDGE KEY: does the work of a round without a lock. */
    private String enter(String kind, String judge, String key) throws Exception {
        try (Work work = new Work(judge, key, name)) {
            work.critical(kind, "");
            return "ok " + work.report();
        }
    }

    /** close: the actor's locks stay taken. */
    private String close() {
        held.clear();
        return "ok";
    }
}
