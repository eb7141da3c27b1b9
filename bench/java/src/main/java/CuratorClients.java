import java.util.ArrayList;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Clients of Curator, whose name is a path, with its InterProcessMutex. */
final class CuratorClients implements Contend.Clients {
	private final List<CuratorFramework> all = new ArrayList<>();

	CuratorClients(String[] servers, int session, int n) throws InterruptedException {
		for (int i = 0; i < n; i++) {
			CuratorFramework c = CuratorFrameworkFactory.newClient(
					servers[i % servers.length], session, 15_000, new ExponentialBackoffRetry(1000, 3));
			c.start();
			all.add(c);
		}
		for (CuratorFramework c : all) {
			c.blockUntilConnected();
		}
	}

	@Override
	public Contest.Mutex mutex(int i, String name) {
		InterProcessMutex mutex = new InterProcessMutex(all.get(i), name);
		return new Contest.Mutex() {
			@Override
			public void acquire() throws Exception {
				mutex.acquire();
			}

			@Override
			public void release() throws Exception {
				mutex.release();
			}
		};
	}

	@Override
	public void close() {
		all.parallelStream().forEach(CuratorFramework::close);
	}
}
