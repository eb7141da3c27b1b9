package actor;

import java.io.IOException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;

/**
 * The work under a lock, in a Redis server that all contenders share and no lock uses. Inside the
 * lock a contender reads a counter and writes it back, and marks in a list when it comes in and goes
 * out. The test reads the list: the order of its lines is the order of events, and needs no clock.
 */
final class Work implements AutoCloseable {
    private final Judge judge;
    private final String key;
    private final String self;
    private int rounds;
    private int writes;

    Work(String server, String key, String actor) throws IOException {
        judge = new Judge(server);
        this.key = key;
        self = ProcessHandle.current().pid() + "." + actor;
    }

    void critical(String kind, String token) throws IOException {
        mark("enter", kind, token);
        long before = counter();
        pause();
        if (kind.equals("read")) {
            if (counter() != before) {
                throw new IOException("overlap: a writer changed the counter during a read, round " + rounds);
            }
        } else if (!kind.equals("semaphore") && !kind.equals("permit")) {
            judge.call("SET", key + ":counter", Long.toString(before + 1));
            writes++;
        }
        mark("leave", kind, token);
        rounds++;
    }

    String report() {
        return "rounds=" + rounds + " writes=" + writes;
    }

    private void mark(String what, String kind, String token) throws IOException {
        long now = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
        String line = what + " " + kind + " " + self + " " + now + " " + (token.isEmpty() ? "-" : token);
        judge.call("RPUSH", key + ":log", line);
    }

    private long counter() throws IOException {
        return Long.parseLong(judge.call("GET", key + ":counter"));
    }

    private static void pause() {
        LockSupport.parkNanos(ThreadLocalRandom.current().nextInt(500) * 1000L);
    }

    @Override
    public void close() throws IOException {
        judge.close();
    }
}
