package actor;

import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** A lock, or permits, that an actor has taken. */
interface Taken {
    /** Waits as long as it takes. */
    long NO_LIMIT = -1;

    TimeUnit MS = TimeUnit.MILLISECONDS;

    void release();

    default boolean isHeld() {
        throw new UnsupportedOperationException("Redisson does not know");
    }

    default Taken downgrade() throws InterruptedException {
        throw new UnsupportedOperationException("no writer");
    }

    /** The fencing token, or the id of a permit, or empty. */
    default String token() {
        return "";
    }

    /**
     * Takes a mutex, fair, fenced, spin, read or write lock, or several mutexes with names separated
     * by commas (multi), or n permits of a semaphore or one of an expirable semaphore (permit).
     * Returns null if it is not free in time. A lease of 0 is the watchdog's; a permit then never
     * expires.
     */
    static Taken take(RedissonClient client, String kind, String name, long waitMs, long leaseMs, int n)
            throws InterruptedException {
        return switch (kind) {
            case "semaphore" -> semaphore(client.getSemaphore(name), waitMs, n);
            case "permit" -> permit(client.getPermitExpirableSemaphore(name), waitMs, leaseMs);
            case "fenced" -> fenced(client.getFencedLock(name), waitMs, leaseMs);
            case "write" -> new Writer(client.getReadWriteLock(name)).take(waitMs, leaseMs);
            default -> new Lock(lock(client, kind, name), "").take(waitMs, leaseMs);
        };
    }

    static RLock lock(RedissonClient client, String kind, String name) {
        return switch (kind) {
            case "mutex" -> client.getLock(name);
            case "fair" -> client.getFairLock(name);
            case "fenced" -> client.getFencedLock(name);
            case "spin" -> client.getSpinLock(name);
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            case "multi" -> client.getMultiLock(Stream.of(name.split(",")).map(client::getLock).toArray(RLock[]::new));
            default -> throw new IllegalArgumentException("unknown kind " + kind);
        };
    }

    private static Taken semaphore(RSemaphore s, long waitMs, int n) throws InterruptedException {
        if (waitMs == NO_LIMIT) {
            s.acquire(n);
        } else if (waitMs == 0 ? !s.tryAcquire(n) : !s.tryAcquire(n, waitMs, MS)) {
            return null;
        }
        return () -> s.release(n);
    }

    private static Taken permit(RPermitExpirableSemaphore s, long waitMs, long leaseMs) throws InterruptedException {
        long lease = leaseMs > 0 ? leaseMs : -1;
        String id = waitMs == NO_LIMIT ? s.acquire(lease, MS) : s.tryAcquire(waitMs, lease, MS);
        return id == null ? null : new Taken() {
            @Override
            public void release() {
                if (!s.tryRelease(id)) {
                    throw new IllegalMonitorStateException("the permit has expired");
                }
            }

            @Override
            public String token() {
                return id;
            }
        };
    }

    private static Taken fenced(RFencedLock lock, long waitMs, long leaseMs) {
        long lease = leaseMs > 0 ? leaseMs : -1;
        Long token = waitMs != NO_LIMIT ? lock.tryLockAndGetToken(waitMs, lease, MS)
                : leaseMs > 0 ? lock.lockAndGetToken(leaseMs, MS) : lock.lockAndGetToken();
        return token == null ? null : new Lock(lock, token.toString());
    }

    /** An RLock of any kind. */
    class Lock implements Taken {
        private final RLock lock;
        private final String token;

        Lock(RLock lock, String token) {
            this.lock = lock;
            this.token = token;
        }

        Taken take(long waitMs, long leaseMs) throws InterruptedException {
            if (waitMs == NO_LIMIT) {
                if (leaseMs > 0) {
                    lock.lock(leaseMs, MS);
                } else {
                    lock.lock();
                }
                return this;
            }
            boolean got = leaseMs > 0 ? lock.tryLock(waitMs, leaseMs, MS) : waitMs > 0 ? lock.tryLock(waitMs, MS) : lock.tryLock();
            return got ? this : null;
        }

        @Override
        public void release() {
            lock.unlock();
        }

        @Override
        public boolean isHeld() {
            return lock.isHeldByCurrentThread();
        }

        @Override
        public String token() {
            return token;
        }
    }

    /** The writer of a read/write lock. */
    final class Writer extends Lock {
        private final RReadWriteLock both;

        Writer(RReadWriteLock both) {
            super(both.writeLock(), "");
            this.both = both;
        }

        @Override
        public Taken downgrade() throws InterruptedException {
            Taken reader = new Lock(both.readLock(), "").take(0, 0);
            if (reader == null) {
                throw new IllegalStateException("the writer must get the read lock at once");
            }
            release();
            return reader;
        }
    }
}
