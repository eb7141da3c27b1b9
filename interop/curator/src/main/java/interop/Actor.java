package interop;

import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryNTimes;
import org.apache.curator.utils.ZKPaths;

/** A ZooKeeper session that holds at most one lock at a time. One thread calls its methods. */
final class Actor {
    /** Longer than any test waits for a lock. */
    private static final long FOREVER_MS = 120_000;

    private final String name;
    private CuratorFramework client;
    private Taken held;

    Actor(String name) {
        this.name = name;
    }

    String run(List<String> w) throws Exception {
        String kind = w.size() > 1 ? w.get(1) : "";
        return switch (w.get(0)) {
            case "connect" -> connect(w.get(1), Integer.parseInt(w.get(2)));
            case "lock" -> take(kind, w.get(2), FOREVER_MS, number(w, 3), number(w, 4));
            case "try" -> take(kind, w.get(2), Long.parseLong(w.get(3)), number(w, 4), number(w, 5));
            case "unlock" -> unlock();
            case "downgrade" -> downgrade();
            case "participants" -> participants(kind, w.get(2));
            case "revoke" -> revoke(w.get(1));
            case "rounds" -> rounds(kind, w.get(2), Integer.parseInt(w.get(3)), Path.of(w.get(4)), Path.of(w.get(5)), number(w, 6));
            case "close" -> close();
            default -> throw new IllegalArgumentException("unknown command " + w);
        };
    }

    private static int number(List<String> w, int i) {
        return w.size() > i ? Integer.parseInt(w.get(i)) : 1;
    }

    /** connect HOST:PORT[/CHROOT] SESSION_MS: answers the session timeout that the server granted. */
    private String connect(String servers, int sessionMs) throws Exception {
        client = CuratorFrameworkFactory.builder()
                .connectString(servers)
                .sessionTimeoutMs(sessionMs)
                .connectionTimeoutMs(15_000)
                .retryPolicy(new RetryNTimes(20, 100))
                .ensembleTracker(false)
                .build();
        client.start();
        if (!client.blockUntilConnected(15, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection to " + servers);
        }
        return "ok " + client.getZookeeperClient().getZooKeeper().getSessionTimeout();
    }

    /** lock KIND PATH [LIMIT [PERMITS]], try KIND PATH MS [LIMIT [PERMITS]]: see {@link Taken#take}. */
    private String take(String kind, String path, long ms, int limit, int permits) throws Exception {
        if (held != null) {
            throw new IllegalStateException("this actor holds a lock");
        }
        held = Taken.take(client, kind, path, ms, limit, permits);
        return held == null ? "busy" : "ok";
    }

    private String unlock() throws Exception {
        Taken t = held;
        held = null;
        t.release();
        return "ok";
    }

    /** The writer takes the read lock, and then releases the write lock. */
    private String downgrade() throws Exception {
        held = held.downgrade();
        return "ok";
    }

    /** participants KIND PATH: the names of the nodes that Curator counts, in its order. */
    private String participants(String kind, String path) throws Exception {
        Collection<String> nodes = switch (kind) {
            case "mutex" -> new InterProcessMutex(client, path).getParticipantNodes();
            case "read" -> new InterProcessReadWriteLock(client, path).readLock().getParticipantNodes();
            case "write" -> new InterProcessReadWriteLock(client, path).writeLock().getParticipantNodes();
            case "semaphore" -> new InterProcessSemaphoreV2(client, path, 1).getParticipantNodes();
            default -> throw new IllegalArgumentException("unknown kind " + kind);
        };
        // A semaphore has names, the others have paths.
        return "ok " + String.join(" ", nodes.stream().map(n -> n.startsWith("/") ? ZKPaths.getNodeFromPath(n) : n).toList());
    }

    /** revoke PATH: asks the holder of a mutex to give up the lock, as Curator does. */
    private String revoke(String path) throws Exception {
        Revoker.attemptRevoke(client, new InterProcessMutex(client, path).getParticipantNodes().iterator().next());
        return "ok";
    }

    /**
     * rounds KIND PATH N COUNTERFILE LOGFILE [LIMIT]: KIND may also be rw: a write in every fifth
     * round and a read in the others. PATH "-" does the work without a lock. Answers with the report.
     */
    private String rounds(String kind, String path, int n, Path counter, Path log, int limit) throws Exception {
        Work work = new Work(counter, log, name, limit);
        for (int i = 0; i < n; i++) {
            String k = !kind.equals("rw") ? kind : i % 5 == 0 ? "write" : "read";
            Taken t = path.equals("-") ? null : Taken.take(client, k, path, FOREVER_MS, limit, 1);
            if (t == null && !path.equals("-")) {
                throw new IllegalStateException("round " + i + ": no lock within " + FOREVER_MS + " ms");
            }
            work.critical(k);
            if (t != null) {
                t.release();
            }
        }
        return "ok " + work.report();
    }

    /** close: ends the session, and with it its lock. */
    private String close() {
        client.close();
        held = null;
        return "ok";
    }
}
