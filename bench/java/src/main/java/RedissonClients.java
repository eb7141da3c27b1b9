import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Clients of Redisson, with its RLock. They share the threads of the process; each has connections of its own, and as few as
 * its threads need, so that a hundred clients fit into one process.
 */
final class RedissonClients implements Contend.Clients {
	private final List<RedissonClient> all = new ArrayList<>();
	private final EventLoopGroup loops = new NioEventLoopGroup(2 * Runtime.getRuntime().availableProcessors());
	private final ExecutorService executor = Executors.newFixedThreadPool(2 * Runtime.getRuntime().availableProcessors());

	RedissonClients(String server, int n, int threads) {
		int each = (threads + n - 1) / n;
		for (int i = 0; i < n; i++) {
			Config c = new Config();
			c.setEventLoopGroup(loops).setExecutor(executor);
			c.useSingleServer().setAddress("redis://" + server).setConnectionMinimumIdleSize(1)
					.setConnectionPoolSize(Math.min(64, each + 1)).setSubscriptionConnectionMinimumIdleSize(1);
			all.add(Redisson.create(c));
		}
	}

	@Override
	public Contest.Mutex mutex(int i, String name) {
		RLock lock = all.get(i).getLock(name);
		return new Contest.Mutex() {
			@Override
			public void acquire() {
				lock.lock();
			}

			@Override
			public void release() {
				lock.unlock();
			}
		};
	}

	@Override
	public void close() {
		all.parallelStream().forEach(RedissonClient::shutdown);
		executor.shutdown();
		loops.shutdownGracefully();
	}
}
