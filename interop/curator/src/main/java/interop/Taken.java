package interop;

import java.util.Collection;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/** A lock or permit that the current thread holds. */
final class Taken {
    /** Releases it. */
    private interface Release {
        void run() throws Exception;
    }

    private final Release release;
    private final InterProcessReadWriteLock writing; // the lock whose write lock this is, or null

    private Taken(Release release, InterProcessReadWriteLock writing) {
        this.release = release;
        this.writing = writing;
    }

    /**
     * Waits for up to ms; null if it got no lock. Each call is a contender of its own. The kinds are
     * mutex, read, write, semaphore, and two recipes that use these: semaphore-mutex, leader.
     */
    static Taken take(CuratorFramework client, String kind, String path, long ms, int limit, int permits) throws Exception {
        switch (kind) {
            case "mutex":
                return lock(new InterProcessMutex(client, path), ms, null);
            case "read":
                return lock(new InterProcessReadWriteLock(client, path).readLock(), ms, null);
            case "write":
                InterProcessReadWriteLock rw = new InterProcessReadWriteLock(client, path);
                return lock(rw.writeLock(), ms, rw);
            case "semaphore":
                InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, limit);
                Collection<Lease> leases = semaphore.acquire(permits, ms, TimeUnit.MILLISECONDS);
                return leases == null ? null : new Taken(() -> semaphore.returnAll(leases), null);
            case "semaphore-mutex":
                return lock(new InterProcessSemaphoreMutex(client, path), ms, null);
            case "leader":
                return lead(client, path, ms);
            default:
                throw new IllegalArgumentException("unknown kind " + kind);
        }
    }

    private static Taken lock(InterProcessLock lock, long ms, InterProcessReadWriteLock writing) throws Exception {
        return lock.acquire(ms, TimeUnit.MILLISECONDS) ? new Taken(lock::release, writing) : null;
    }

    /** Leads until the release. */
    private static Taken lead(CuratorFramework client, String path, long ms) throws InterruptedException {
        CountDownLatch leads = new CountDownLatch(1);
        CountDownLatch resigns = new CountDownLatch(1);
        LeaderSelector selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework c) throws InterruptedException {
                leads.countDown();
                resigns.await();
            }
        });
        selector.start();
        if (!leads.await(ms, TimeUnit.MILLISECONDS)) {
            selector.close();
            return null;
        }
        return new Taken(resigns::countDown, null);
    }

    void release() throws Exception {
        release.run();
    }

    /** Takes the read lock while it holds the write lock, then releases the write lock. */
    Taken downgrade() throws Exception {
        if (writing == null) {
            throw new IllegalStateException("it is not held for writing");
        }
        InterProcessLock read = writing.readLock();
        read.acquire();
        release.run();
        return new Taken(read::release, null);
    }
}
