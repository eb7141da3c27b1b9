package actor;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The Redisson clients of this process, one for each combination of settings. */
final class Clients {
    private static final Map<String, RedissonClient> ALL = new HashMap<>();

    private Clients() {}

    /**
     * Connects to redis://HOST:PORT, or to a Cluster: redis+cluster://HOST:PORT,HOST:PORT. sharded is
     * Redisson's shardedSubscriptionMode, or "default". The other settings only keep a busy machine
     * from causing an error, and the client small. The settings are YAML, because releases before 3.29
     * have no such mode.
     */
    static synchronized RedissonClient get(String url, long watchdogMs, String sharded) throws IOException {
        String key = url + " " + watchdogMs + " " + sharded;
        RedissonClient client = ALL.get(key);
        if (client == null) {
            client = Redisson.create(Config.fromYAML(settings(url, watchdogMs, sharded)));
            ALL.put(key, client);
        }
        return client;
    }

    private static String settings(String url, long watchdogMs, String sharded) {
        String common = "threads: 4\nnettyThreads: 4\nlockWatchdogTimeout: " + watchdogMs + "\n";
        String patience = "  timeout: 30000\n  connectTimeout: 30000\n  subscriptionConnectionMinimumIdleSize: 1\n";
        if (!url.startsWith("redis+cluster://")) {
            return common + "singleServerConfig:\n  address: \"" + url + "\"\n" + patience
                    + "  connectionMinimumIdleSize: 2\n  connectionPoolSize: 32\n";
        }
        StringBuilder nodes = new StringBuilder();
        for (String server : url.substring("redis+cluster://".length()).split(",")) {
            nodes.append("    - \"redis://").append(server).append("\"\n");
        }
        String mode = sharded.equals("default") ? "" : "  shardedSubscriptionMode: \"" + sharded + "\"\n";
        return common + "clusterServersConfig:\n  nodeAddresses:\n" + nodes + patience + mode
                + "  masterConnectionMinimumIdleSize: 2\n  masterConnectionPoolSize: 32\n";
    }
}
