package interop;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;

/**
 * The work under a lock, in files that all contenders share; worker_test.go's work does the same.
 * It needs no clock: inside the lock a contender keeps a marker in the folder, which only one can
 * create, and looks for the markers of contenders that it excludes.
 */
final class Work {
    private final Path counter;
    private final Path log;
    private final Path writer; // the marker of an exclusive holder
    private final Path readers; // a folder with a marker for each reader
    private final Path slots; // a folder with a marker for each permit in use
    private final long pid = ProcessHandle.current().pid();
    private final String self;
    private final int limit;
    private int rounds;
    private int writes;
    private int shared; // rounds in which another reader was inside
    private int full; // rounds in which all permits were in use

    Work(Path counter, Path log, String actor, int limit) {
        this.counter = counter;
        this.log = log;
        this.limit = limit;
        writer = counter.resolveSibling("writer");
        readers = counter.resolveSibling("readers");
        slots = counter.resolveSibling("slots");
        self = pid + "." + actor;
    }

    void critical(String kind) throws IOException {
        switch (kind) {
            case "mutex", "write" -> alone(kind);
            case "read" -> together();
            case "semaphore" -> permit();
            default -> throw new IllegalArgumentException("unknown kind " + kind);
        }
        rounds++;
    }

    String report() {
        return "rounds=" + rounds + " writes=" + writes + " shared=" + shared + " full=" + full;
    }

    private void alone(String kind) throws IOException {
        enter(writer, kind);
        String others = list(readers);
        if (!others.isEmpty()) {
            throw overlap(kind, "readers " + others);
        }
        long n = read();
        pause(500);
        Files.writeString(counter, Long.toString(n + 1));
        writes++;
        leave(writer, kind);
    }

    private void together() throws IOException {
        Path marker = readers.resolve(self);
        enter(marker, "read");
        if (Files.exists(writer)) {
            throw overlap("read", "the writer " + Files.readString(writer));
        }
        long before = read();
        pause(1000);
        long after = read();
        if (before != after) {
            throw overlap("read", "a writer: the counter went from " + before + " to " + after);
        }
        if (list(readers).contains(" ")) {
            shared++;
        }
        leave(marker, "read");
    }

    private void permit() throws IOException {
        Path marker = null;
        for (int i = 0; marker == null && i < limit; i++) {
            try {
                marker = Files.createFile(slots.resolve(Integer.toString(i)));
            } catch (FileAlreadyExistsException e) {
                // it belongs to another contender
            }
        }
        if (marker == null) {
            throw overlap("semaphore", "as many as there are permits");
        }
        note("enter", "semaphore");
        pause(5000); // permits are slow to take: hold this one while others take theirs
        if (list(slots).split(" ").length == limit) {
            full++;
        }
        leave(marker, "semaphore");
    }

    private void enter(Path marker, String kind) throws IOException {
        try {
            Files.writeString(marker, self, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
        } catch (FileAlreadyExistsException e) {
            throw overlap(kind, "the owner of " + marker.getFileName());
        }
        note("enter", kind);
    }

    private void leave(Path marker, String kind) throws IOException {
        note("leave", kind);
        Files.delete(marker);
    }

    /** Writes each line in one write, so that lines of several processes do not mix. */
    private void note(String what, String kind) throws IOException {
        long now = ChronoUnit.NANOS.between(Instant.EPOCH, Instant.now());
        byte[] line = (what + " " + kind + " " + pid + " " + now + "\n").getBytes(StandardCharsets.UTF_8);
        Files.write(log, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private IOException overlap(String kind, String whom) {
        return new IOException("overlap: " + kind + " of " + self + ", round " + rounds + ", met " + whom);
    }

    private long read() throws IOException {
        return Long.parseLong(Files.readString(counter));
    }

    private static String list(Path folder) throws IOException {
        try (var files = Files.list(folder)) {
            return String.join(" ", files.map(f -> f.getFileName().toString()).toList());
        }
    }

    private static void pause(int micros) {
        LockSupport.parkNanos(ThreadLocalRandom.current().nextInt(micros) * 1000L);
    }
}
